"""The command ``rs targets``, which makes the targets of training images for several trainings."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.runtime.progress import say


def main(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder of a Gaussian model, or zoo:NAME.")
    ],
    dataset: Annotated[
        str, typer.Option(help="Recipe: targets of recipes.DATASET.cat-rs in the parameters.")
    ],
    data: shell.DataFolder,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write, *.safetensors.")],
    draws: Annotated[
        int | None, typer.Option(min=1, help="Noisy copies of an image, instead of the recipe's.")
    ] = None,
    params: shell.ParamsFile = Path("params.yaml"),
    device: shell.Device = "auto",
    network: shell.Network = None,
) -> None:
    """Write the targets of training images for cat-rs: the votes of a model on noisy copies.

    Trainings make such targets themselves. A file of them (rs train --targets) saves that time in
    several trainings on the same images, as with the 10,000 copies per image of the paper.

    Example:
        rs targets models/digits/0.25/gaussian/0 --dataset digits \\
            --data data/digits --out targets/digits.safetensors
    """
    values = shell.parameters(params, dataset)
    from rs.data.images import load_images
    from rs.methods.base import TargetSettings
    from rs.models.zoo import path_of_model
    from rs.params import validate
    from rs.recipes import merge
    from rs.runtime.device import limit_threads, resolve_device
    from rs.smoothing.user_networks import register_networks
    from rs.training.image_votes import write_targets

    if network is not None:
        register_networks(network)
    hyperparameters, _ = merge(values, f"recipes.{dataset}.cat-rs")
    where = f"recipes.{dataset}.cat-rs.targets"
    settings = validate(TargetSettings, hyperparameters.get("targets"), where)
    train = load_images(data, "train")
    limit_threads(train.meta.shape)
    if draws is not None:
        settings["draws"] = draws
    write_targets(path_of_model(model), train, settings, resolve_device(device), out)
    say(f"targets from {settings['draws']:,} draws of {model} in {out}")
