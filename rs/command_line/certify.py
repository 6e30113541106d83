"""Certify one model: one row per test image."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rs.command_line import shell
from rs.command_line.pictures import PictureOptions
from rs.errors import InputError
from rs.models import InferenceEngine, PrecisionChoice
from rs.runtime.progress import say
from rs.smoothing import STOPPING_RULES

DEFAULT_RECIPE = "finetune"
"""Recipe of the package that is followed where none is named."""

DEFAULT_PARAMS = Path("params.yaml")
"""The parameters where none are named."""


@dataclass(frozen=True, kw_only=True)
class RecipeOverrides:
    """Values in place of the recipe's."""

    n0: Annotated[int | None, typer.Option(help="Number of draws that select the class.")] = None
    n: Annotated[
        int | None,
        typer.Option("--n", "--draws", help="Number of draws that bound its probability."),
    ] = None
    alpha: Annotated[
        float | None, typer.Option(help="Failure probability of each certificate.")
    ] = None
    noise: shell.NoiseOption = None
    precision: Annotated[
        PrecisionChoice | None, typer.Option(help="Precision; auto: tf32 on CUDA, else float32.")
    ] = None
    engine: Annotated[
        InferenceEngine | None, typer.Option(help="How the network runs; quantized: in int8.")
    ] = None
    subset: Annotated[
        str | None, typer.Option(help="all, {first: 500}, {stride: 20} or {range: [500, 1000]}.")
    ] = None

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        from rs.params import parse
        from rs.study.subset import subset_name

        if self.subset is None:
            return asdict(self)
        subset = parse(self.subset, "--subset")
        subset_name(
            subset
        )  # it says what a subset must be, where the check of all settings names types
        return asdict(self) | {"subset": subset}


@dataclass(frozen=True, kw_only=True)
class StopOptions:
    """Stop before all draws, by one rule."""

    at_radius: Annotated[str | None, typer.Option(help=STOPPING_RULES["at_radius"])] = None
    acr_error: Annotated[float | None, typer.Option(help=STOPPING_RULES["acr_error"])] = None

    def rule(self) -> dict[str, Any] | None:
        """Return the section ``stop`` of a recipe; ``None`` without an option.

        Raises:
            InputError: If there are radii that are no numbers, or both options.
        """
        if self.at_radius is not None and self.acr_error is not None:
            raise InputError("give --at-radius or --acr-error, got both")
        questions = asdict(self) | {"at_radius": shell.radii_named(self.at_radius, "--at-radius")}
        is_given = any(value is not None for value in questions.values())
        return questions | {"beta": 0.01, "step": 100} if is_given else None


def main(
    model: shell.ModelArgument,
    *,
    out: Annotated[Path, typer.Option(dir_okay=False, help="Row file, *.tsv.")],
    times: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="File for the seconds of each image; default: beside the rows."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Recipe for --data: the section recipes.DATASET.certify of --params."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the prepared data set.")
    ] = None,
    sigma: shell.Sigma = None,
    share: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Every N-th image from the I-th on; rs merge puts shares together."
        ),
    ] = None,
    params: shell.ParamsFile = DEFAULT_PARAMS,
    network: shell.Network = None,
    device: shell.Device = "auto",
    batch: shell.Batch = None,
    overrides: RecipeOverrides,
    stop: StopOptions,
    pictures: PictureOptions,
) -> None:
    """Certify a model on the test split: one row per image.

    An interrupted certification continues where it stopped.

    With --images, certify pictures in a folder, without a prepared data set or a parameter file.
    The defaults are then n0 = 100, n = 1,000 and alpha = 0.001. With --resize, --crop or --convert,
    radii are those of the converted images.

    Example:
        rs certify models/digits/0.25/advmacer/0 --dataset digits \\
            --data data/digits --out rows.tsv
        rs certify my_package.models:build --sigma 0.5 --dataset cifar10 \\
            --data data/cifar10 --subset '{stride: 20}' --out mine.tsv
        rs certify my_package.models:build --sigma 0.5 --images photos \\
            --classes names.txt --convert --resize 256 --crop 224 --out mine.tsv
    """
    pictures.check_sources(data, required=True)
    if data is not None and dataset is None:
        raise InputError(
            "give --dataset, the recipe for --data: a key of recipes in the parameters, as cifar10"
        )
    if dataset is None and params != DEFAULT_PARAMS:
        raise InputError(
            f"--params {params} is for --dataset, a recipe in it, which is not given; give both, "
            "or neither"
        )
    values = {} if dataset is None else shell.parameters(params, dataset)
    from rs import params as parameters
    from rs.certification import certify_model
    from rs.certification.load import load
    from rs.runtime.device import device_named
    from rs.runtime.processes import rank_and_world_size
    from rs.smoothing.settings import SmoothingOptions
    from rs.statistics.certificate import UNLABELLED

    chosen = {"stop": stop.rule()} | overrides.values()
    settings = certify_model.certification_settings(
        values or parameters.packaged(), dataset or DEFAULT_RECIPE, chosen
    )
    shell.launch(values)
    base, images = pictures.load(load(model, network=network), data)
    options = SmoothingOptions(
        sigma=sigma, device=device_named(device), batch=batch, calibration=data
    )
    certify_model.certify_model(
        base, images, settings, options, out=out, share=share, seconds=times
    )
    if rank_and_world_size()[0] == 0:
        is_whole = settings.stop is None and share is None
        has_page = is_whole and not (images.labels == UNLABELLED).any()
        report = f", or rs report {out} --out report.html" if has_page else ""
        say(f"rows in {out}; next: rs show {out}{report}")
