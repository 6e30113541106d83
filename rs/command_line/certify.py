"""Certify one model: one row per test image."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rs.command_line.shell import Batch, DataFolder, Device, ParamsFile, launch, parameters

EXAMPLE = """\
rs certify models/digits/0.25/advmacer/0 --dataset digits \\
    --data data/digits --out rows.tsv
rs certify my_package.models:build --sigma 0.5 --dataset cifar10 \\
    --data data/cifar10 --subset '{stride: 20}' --out mine.tsv"""


def main(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Model folder, ensemble *.json, or module:function that returns an nn.Module."
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Recipe to follow: recipes.DATASET.certify of the parameters.")],
    data: DataFolder,
    out: Annotated[Path, typer.Option(dir_okay=False, help="Row file to write, *.tsv.")],
    sigma: Annotated[
        float | None, typer.Option(help="Noise std in pixels of [0, 1]; default: the model's own.")
    ] = None,
    n0: Annotated[int | None, typer.Option(help="Draws that select the class, instead of the recipe's.")] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", "--draws", help="Draws that bound its probability, instead of the recipe's."),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Failure probability, instead of the recipe's.")] = None,
    noise: Annotated[
        Literal["gaussian", "grid"] | None,
        typer.Option(help="grid: rounded to multiples of 1/255, with which rounding cannot break the certificate."),
    ] = None,
    subset: Annotated[str | None, typer.Option(help="all, {first: 500}, {stride: 20} or {range: [500, 1000]}.")] = None,
    at_radius: Annotated[
        float | None,
        typer.Option(help="Decide only whether this radius is certified, from far fewer draws."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Stop when the radius is known to within this, in pixels of [0, 1]."),
    ] = None,
    rule: Annotated[Literal["cumulative", "betting"], typer.Option(help="By which --at-radius stops.")] = "cumulative",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how long it would take on this machine, and write nothing.")
    ] = False,
    params: ParamsFile = Path("params.yaml"),
    device: Device = "auto",
    batch: Batch = None,
) -> None:
    """Certify MODEL on the test split; an interrupted certification continues where it stopped."""
    values = parameters(params, dataset)
    from rs.certification.certify_model import certification_settings, certify_model, summary
    from rs.params import parse
    from rs.runtime.device import device_named
    from rs.runtime.processes import rank_and_world_size
    from rs.storage import certificate_rows
    from rs.study.subset import subset_name

    stop = {"at_radius": at_radius, "tolerance": tolerance, "rule": rule, "beta": 0.001, "step": 100}
    chosen = parse(subset, "--subset") if subset else None
    if chosen is not None:
        subset_name(chosen)  # it says what a subset must be, where the check of all settings names types
    overrides = {"n0": n0, "n": n, "alpha": alpha, "noise": noise, "subset": chosen}
    overrides["stop"] = stop if (at_radius, tolerance) != (None, None) else None
    settings = certification_settings(values, dataset, overrides)
    launch(values)
    place = device_named(device)
    certify_model(model, data, settings, sigma=sigma, device=place, batch=batch, out=out, dry_run=dry_run)
    if not dry_run and rank_and_world_size()[0] == 0:
        print(f"{summary(certificate_rows.read(out))}; rows in {out}")
