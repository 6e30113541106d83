"""Write the targets of training images for cat-rs: the votes of a model on noisy copies of them."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.errors import printable


def main(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a Gaussian model at sigma 0.25.")],
    dataset: Annotated[str, typer.Option(help="Recipe: recipes.DATASET.targets of the parameters.")],
    data: shell.DataFolder,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write, *.safetensors.")],
    draws: Annotated[int | None, typer.Option(min=1, help="Noisy copies of an image, instead of the recipe's.")] = None,
    params: shell.ParamsFile = Path("params.yaml"),
    device: shell.Device = "auto",
) -> None:
    """Write the targets of training images for cat-rs: the votes of a model on noisy copies of them.

    Example:
        rs targets models/digits/0.25/gaussian/0 --dataset digits \\
            --data data/digits --out targets/digits.safetensors
    """
    values = shell.parameters(params, dataset)
    from dataclasses import replace

    from rs.data.images import load_images
    from rs.params import load_section
    from rs.runtime.device import device_named, limit_threads
    from rs.training.image_votes import TargetSettings, write_targets

    settings = load_section(values, f"recipes.{dataset}.targets", TargetSettings)
    images = load_images(data, "train")
    limit_threads(images.meta.shape)
    settings = settings if draws is None else replace(settings, draws=draws)
    write_targets(model, images, settings, device_named(device), out)
    print(printable(f"targets of {len(images):,} images from {settings.draws:,} draws of {model} in {out}"))
