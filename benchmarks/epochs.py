"""Seconds of a training epoch of each method of a recipe, side by side: what ACR against training
time is drawn by.

``python -m benchmarks.epochs cifar10-cpu --data data/cifar10-cpu --out seconds.csv``. The methods
take turns, each with a few batches of its last epoch at a time, so that other work on the machine
slows all of them alike; seconds are scaled to the whole train split. ``python -m stages.tables
--epoch-seconds seconds.csv`` draws with them.
"""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.common import machine, side_by_side
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rs.data.images import PackedImages

SEED = 0


def main(
    dataset: Annotated[str, typer.Argument(help="Name of the recipe.")],
    data: Annotated[Path, typer.Option(file_okay=False, help="Prepared data set.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="CSV of seconds per epoch by method.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, with commas; default: all but cat-rs and hard-drop, whose lines are "
            "added by hand."
        ),
    ] = None,
    sigma: Annotated[float, typer.Option(help="Noise level.")] = 0.5,
    batches: Annotated[int, typer.Option(min=1, help="Batches of a turn.")] = 16,
    rounds: Annotated[
        int, typer.Option(min=1, help="Turns of each, of which the median is taken.")
    ] = 5,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Measure seconds of a training epoch of each method, side by side, and print the machine."""
    import pandas as pd
    import torch

    from rs.data import images
    from rs.methods import METHODS, method_class
    from rs.params import read_params
    from rs.runtime.device import resolve_device

    resolve_device("cpu")  # keeps memory, as the stages do
    torch.set_num_threads(threads)
    values, train = read_params(params), images.load_images(data, "train")
    names = methods.split(",") if methods else []
    for name in METHODS:
        kind = method_class(name)
        needs_targets = "targets" in {field.name for field in fields(kind)}
        has_more_than_epochs = needs_targets or hasattr(kind, "image_weights")
        if not methods and not has_more_than_epochs:
            names.append(name)
    turns, scales = {}, {}
    for name in names:
        turns[name], scales[name] = turn(values, dataset, name, sigma, train, batches)
        turns[name]()  # warm
    seconds = side_by_side(turns, rounds)
    table = pd.DataFrame(
        {"method": names, "seconds": [round(seconds[name] * scales[name], 2) for name in names]}
    )
    table.to_csv(out, index=False, lineterminator="\n")
    print(table.to_markdown(index=False))
    print(f"\nmedian of {rounds} turns of {batches} batches each; {machine()}", file=sys.stderr)


def turn(
    values: dict[str, Any],
    dataset: str,
    method: str,
    sigma: float,
    train: PackedImages,
    batches: int,
) -> tuple[Callable[[], None], float]:
    """A turn of a method, ``batches`` of its batches, and how many turns an epoch has."""
    import torch

    from rs.models import architectures
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.trainer import Trainer

    recipe, meta = training_recipe(values, dataset, method, sigma), train.meta
    model = architectures.build(
        recipe.architecture, meta.shape, len(meta.classes), meta.mean, meta.std, SEED
    )
    count = min(len(train), batches * recipe.training.batch)
    part = replace(train, images=train.images[:count], labels=train.labels[:count])
    settings = replace(recipe.training, eval_every=0)
    options = RunOptions(sigma=sigma, seed=SEED, device=torch.device("cpu"))
    trainer = Trainer(model, recipe.method, part, part, settings, options)
    return lambda: trainer.epoch(settings.epochs - 1), len(train) / len(part)


if __name__ == "__main__":
    run(main)
