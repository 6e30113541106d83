"""Certify one model: one row per test image."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.pictures import Classes, Convert, Crop, Images, Resize, check_sources, pictures
from rs.command_line.shell import (
    Batch,
    Device,
    Network,
    Noise,
    ParamsFile,
    Sigma,
    launch,
    parameters,
    radii_named,
    warn_of_another_data_set,
)
from rs.errors import InputError

EXAMPLE = """\
rs certify models/digits/0.25/advmacer/0 --dataset digits \\
    --data data/digits --out rows.tsv
rs certify my_package.models:build --sigma 0.5 --dataset cifar10 \\
    --data data/cifar10 --subset '{stride: 20}' --out mine.tsv
rs certify my_package.models:build --sigma 0.5 --images photos \\
    --classes names.txt --convert --resize 256 --crop 224 --out mine.tsv"""


NAMELESS = "none"
"""Name of the recipe where there are no parameters."""

PARAMS = Path("params.yaml")
"""The parameters where none are named."""


def main(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Model folder, ensemble *.json, or module:function that returns an nn.Module."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Row file to write, *.tsv; --dry-run needs none.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Recipe to follow: recipes.DATASET.certify of the parameters; --images needs none."),
    ] = None,
    data: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of the prepared data set.")] = None,
    images: Images = None,
    classes: Classes = None,
    resize: Resize = None,
    crop: Crop = None,
    convert: Convert = False,
    sigma: Sigma = None,
    n0: Annotated[int | None, typer.Option(help="Draws that select the class, instead of the recipe's.")] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", "--draws", help="Draws that bound its probability, instead of the recipe's."),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Failure probability, instead of the recipe's.")] = None,
    noise: Noise = None,
    subset: Annotated[str | None, typer.Option(help="all, {first: 500}, {stride: 20} or {range: [500, 1000]}.")] = None,
    at_radius: Annotated[
        str | None,
        typer.Option(help="Decide only which of these radii, like 0.25,0.5, are certified, from far fewer draws."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Stop when the radius is known to within this, in pixels of [0, 1]."),
    ] = None,
    acr_error: Annotated[
        float | None,
        typer.Option(help="Stop once the expected loss of average certified radius is at most this."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how long it would take on this machine, and write nothing.")
    ] = False,
    params: ParamsFile = PARAMS,
    network: Network = None,
    device: Device = "auto",
    batch: Batch = None,
) -> None:
    """Certify MODEL on the test split; an interrupted certification continues where it stopped.

    With --images, certify pictures in a folder, without a prepared data set or a parameter file. The defaults are then
    n0 = 100, n = 1,000 and alpha = 0.001. With --resize, --crop or --convert, radii are those of the converted images.
    """
    if data is None and images is None:
        raise InputError("give --data, a prepared data set, with --dataset; or --images, a folder of pictures")
    check_sources(data, images, classes, resize, crop, convert)
    if data is not None and dataset is None:
        raise InputError("give --dataset, the recipe for --data: a key of recipes in the parameters, as cifar10")
    if out is None and not dry_run:
        raise InputError("give --out, the file to write rows to; --dry-run alone needs none")
    if dataset is None and params != PARAMS:
        raise InputError(
            f"--params {params} is for --dataset, a recipe in it, which is not given; give both, or neither"
        )
    values = {} if dataset is None else parameters(params, dataset)
    from rs.certification.certify_model import (
        NO_RECIPE,
        certification_settings,
        certify_model,
        certify_split,
        summary,
        warn_of_radii_out_of_reach,
    )
    from rs.certification.load import load, register_network
    from rs.data.pictures import Conversion
    from rs.params import parse
    from rs.runtime.device import device_named
    from rs.runtime.processes import rank_and_world_size
    from rs.smoothing.settings import SmoothingOptions
    from rs.storage import certificate_rows
    from rs.storage.row_writer import check_row_file_name
    from rs.study.subset import subset_name

    if out is not None and not dry_run:
        check_row_file_name(out)
    asked = {"at_radius": radii_named(at_radius, "--at-radius"), "tolerance": tolerance, "acr_error": acr_error}
    given = [f"--{name.replace('_', '-')}" for name, question in asked.items() if question is not None]
    if len(given) > 1:
        raise InputError(f"give one of --at-radius, --tolerance and --acr-error, got {' and '.join(given)}")
    chosen = None
    if subset is not None:
        chosen = parse(subset, "--subset")
        subset_name(chosen)  # it says what a subset must be, where the check of all settings names types
    overrides = {"n0": n0, "n": n, "alpha": alpha, "noise": noise, "subset": chosen}
    if given:
        overrides["stop"] = asked | {"beta": 0.01, "step": 100}
    recipes = values if dataset is not None else {"recipes": {NAMELESS: {"certify": NO_RECIPE}}}
    settings = certification_settings(recipes, dataset or NAMELESS, overrides)
    if network is not None:
        register_network(network)
    launch(values)
    options = SmoothingOptions(sigma=sigma, device=device_named(device), batch=batch)
    out_rows = None if dry_run else out
    if data is not None:
        warn_of_another_data_set(values, str(dataset), data)
        certify_model(model, data, settings, options, out=out_rows)
    elif images is not None:
        base = load(model)
        warn_of_radii_out_of_reach(settings, base.noise_std(sigma))
        base, shown = pictures(images, classes, base, Conversion(resize, crop, convert))
        certify_split(base, shown, settings, options, out=out_rows)
    if out is not None and not dry_run and rank_and_world_size()[0] == 0:
        print(f"{summary(certificate_rows.read_rows(out))}; rows in {out}")
