"""Certify one model: one row per test image."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.command_line.pictures import PictureOptions
from rs.models import InferenceEngine
from rs.runtime import PrecisionChoice
from rs.runtime.progress import say, say_next

STOP_DEFAULTS = {"beta": 0.01, "step": 100}
"""Settings of certification that stops early, as in ``certify.stop`` of a recipe."""


@dataclass(frozen=True, kw_only=True)
class CertificateOptions:
    """Values in place of the recipe's."""

    n0: Annotated[
        int | None,
        typer.Option(help="Noisy copies per image that select the class; default: the recipe's."),
    ] = None
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            "--draws",
            help="Noisy copies per image that determine the radius (more: larger radii, more "
            "time); default: the recipe's.",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        typer.Option(help="Failure probability of each certificate; default: the recipe's."),
    ] = None
    noise: shell.NoiseOption = None
    precision: Annotated[
        PrecisionChoice | None, typer.Option(help="Precision; auto: tf32 on CUDA, else float32.")
    ] = None
    engine: Annotated[
        InferenceEngine | None,
        typer.Option(help="How the network runs; quantized: in int8, on a CPU."),
    ] = None


def main(
    model: shell.ModelArgument,
    *,
    out: Annotated[Path, shell.file_option("Row file, *.tsv.")],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Recipe for --data: the section recipes.DATASET.certify of --params; default: the "
            "name of the data set."
        ),
    ] = None,
    data: shell.PreparedData = None,
    sigma: shell.Sigma = None,
    subset: Annotated[
        str | None, typer.Option(help="all, {first: 500}, {stride: 20} or {range: [500, 1000]}.")
    ] = None,
    share: shell.Share = None,
    params: shell.ParamsFile = shell.DEFAULT_PARAMS,
    network: shell.Network = None,
    device: shell.Device = "auto",
    batch: shell.Batch = None,
    certificate: CertificateOptions,
    at_radius: Annotated[
        str | None,
        typer.Option(
            help="Only decide which of these radii hold, such as 0.25,0.5, and stop early."
        ),
    ] = None,
    pictures: PictureOptions,
) -> None:
    """Certify a model on the test split: one row per image.

    An interrupted certification continues where it stopped.

    With --images, certify pictures in a folder, without a prepared data set or a parameter file.
    The defaults are then n0 = 100, n = 1,000 and alpha = 0.001. With --resize, --crop or --convert,
    radii are those of the converted images.

    Example:
        rs certify models/digits/0.25/advmacer/0 --data data/digits --out rows.tsv
        rs certify my_package.models:build --sigma 0.5 --data data/cifar10 \\
            --subset '{stride: 20}' --out mine.tsv
        rs certify my_package.models:build --sigma 0.5 --images photos \\
            --classes names.txt --convert --resize 256 --crop 224 --out mine.tsv
    """
    pictures.check_sources(data, required=True)
    values, recipe = shell.recipe_parameters(dataset, params, data)
    from rs.certification import certify_model
    from rs.certification.load import load
    from rs.params import parse
    from rs.runtime.device import resolve_device
    from rs.runtime.processes import is_first_process
    from rs.smoothing.settings import SmoothingOptions
    from rs.statistics.certificate import UNLABELED

    overrides = asdict(certificate)
    if at_radius is not None:
        radii = shell.parse_radii(at_radius, "--at-radius")
        overrides["stop"] = {"at_radius": radii, **STOP_DEFAULTS}
    if subset is not None:
        overrides["subset"] = parse(subset, "--subset")
    settings = certify_model.certification_settings(values, recipe, overrides)
    shell.launch(values)
    base, images = pictures.load(load(model, network=network), data)
    options = SmoothingOptions(
        sigma=sigma, device=resolve_device(device), batch=batch, calibration=data
    )
    certify_model.certify_model(
        base,
        images,
        settings,
        options,
        out=out,
        share=share,
        without_noise=data is None,  # the sidecars of studies do not state it
    )
    if is_first_process():
        is_labeled = not (images.labels == UNLABELED).any()
        next_commands = [f"rs show {out}"]
        if is_labeled and settings.takes_all_samples and share is None:
            next_commands.append(f"rs report {out} --out report.html")
        say(f"rows in {out}")
        say_next(*next_commands)
