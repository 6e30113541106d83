"""Milliseconds of a training step of each method: the standard loop, ART, and every engine of this
project.

``python -m benchmarks.steps --architecture resnet20``. The steps are those of the recipe `cifar10`
at sigma 0.25: 256 noisy images each, MACER's 1,024. All ways run side by side, interleaved. The
standard loop has its own process, as its users run it; on a CPU it also runs in ours, which keeps
its memory. ART has its own process, after the others. Images and labels are random.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.apart import apart
from benchmarks.art_loop import in_art
from benchmarks.common import (
    CLASSES,
    ENGINES,
    SIGMA,
    Architecture,
    machine,
    network,
    side_by_side,
    torchs_defaults,
)
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rs.data.images import PackedImages
    from rs.methods.base import Method
    from rs.training.trainer import Trainer

EPOCH = 100
"""Number of an epoch after every warm-up."""

REFERENCE = "the standard loop, torch's float32"
KEPT = "the standard loop, memory kept"
ART = "ART, float32"
IN_ART = ("gaussian", "smoothadv", "macer")
"""Methods ART has; its SmoothAdv takes one draw only, so its step is of as many images as ours is
of noisy ones.
"""

Way = Callable[[], float]
"""Takes the steps of an epoch, and returns their mean loss."""


TITLE = """\
# Milliseconds per training step

Each method with the images per step of its recipe, or with as many as --images says.
"""


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet20,
    methods: Annotated[str | None, typer.Option(help="Methods, with commas; default: all.")] = None,
    images: Annotated[
        int | None, typer.Option(min=1, help="Images of a step, instead of the recipe's.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the median is taken.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = os.cpu_count() or 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engines: Annotated[str, typer.Option(help="Engines, with commas.")] = "plain,folded,compiled",
    art: Annotated[
        Path | None,
        typer.Option(
            help="Python of an environment with this project and adversarial-robustness-toolbox."
        ),
    ] = None,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print a Markdown table: milliseconds per step, and times faster than the standard loop."""
    import torch

    from rs.methods import METHODS
    from rs.params import read_params
    from rs.runtime.device import resolve_device
    from rs.training.recipe import training_recipe

    torch.set_num_threads(threads)
    where = resolve_device(device)
    chosen = [one for one in ENGINES if one[0] in engines.split(",")]
    ours = [KEPT] if where.type == "cpu" else []
    names = [REFERENCE, *ours, *([ART] if art else []), *(", ".join(one) for one in chosen)]
    print(TITLE)
    print(
        f"| method | noisy images | {' | '.join(names)} | the fastest: times faster than the "
        "standard loop |"
    )
    print(f"|---|---:|{'---:|' * len(names)}---:|")
    for name in methods.split(",") if methods else METHODS:
        recipe = training_recipe(read_params(params), "cifar10", name, SIGMA)
        steps_per_batch, draws = recipe.method.steps_per_batch, getattr(recipe.method, "draws", 1)
        size = images or recipe.training.batch // steps_per_batch
        with steps(architecture, recipe.method, size, where, chosen) as ways:
            seconds = {
                way: value / steps_per_batch
                for way, value in side_by_side(ways, rounds, device).items()
            }
        ratio = seconds[REFERENCE] / min(seconds[", ".join(one)] for one in chosen)
        if art is not None and name in IN_ART:
            seconds[ART] = json.loads(
                in_art(art, "step", architecture.value, name, size * draws, rounds, threads)
            )
        cells = [f"{1e3 * seconds[way]:,.1f}" if way in seconds else "" for way in names]
        print(f"| {name} | {size * draws:,} | {' | '.join(cells)} | {ratio:.1f} |", flush=True)
    print(f"\nms a step, {architecture.value}, median of {rounds} rounds")
    print(machine(device))


@contextmanager
def steps(
    architecture: Architecture,
    method: Method,
    images: int,
    device: torch.device,
    engines: list[tuple[str, str]],
) -> Iterator[dict[str, Way]]:
    """Ways of an epoch of one batch, of ``images`` images a step; each has a network of its own,
    and is warm.
    """
    data = random_images(architecture.shape, images * method.steps_per_batch)
    with apart(device, field_alone, architecture, method, data, len(data)) as ways:
        model, _ = network(architecture, device)
        if device.type == "cpu":
            ways[KEPT] = field_steps(model, method, data, device, len(data))
        for engine, precision in engines:
            trainer = own_trainer(model, method, data, device, engine, precision, len(data))
            ways[f"{engine}, {precision}"] = own_epoch(trainer)
        for way in ways.values():
            way()
        yield ways


def field_alone(
    device: torch.device, architecture: Architecture, method: Method, data: PackedImages, batch: int
) -> dict[str, Way]:
    """The standard loop, with a network of its own."""
    return {REFERENCE: field_steps(network(architecture, device)[0], method, data, device, batch)}


def random_images(shape: tuple[int, ...], count: int) -> PackedImages:
    """Images of this shape (C, H, W) and labels, of no meaning."""
    import numpy as np

    from rs.data.images import PackedImages
    from rs.data.meta import Meta

    channels, rng = shape[0], np.random.default_rng(1)
    pixels = rng.integers(256, size=(count, *shape), dtype=np.uint8)
    labels = rng.integers(CLASSES, size=count)
    classes = tuple(map(str, range(CLASSES)))
    meta = Meta(
        name="random", classes=classes, shape=shape, mean=(0.5,) * channels, std=(0.25,) * channels,
        source="", sizes={"train": count}, sha256={"train": ""},
    )  # fmt: skip
    return PackedImages(meta, pixels, labels)


def field_steps(
    model: nn.Module, method: Method, data: PackedImages, device: torch.device, batch: int
) -> Way:
    """An epoch as standard code runs it: channels first, the optimizer's class, each loss
    fetched at once.
    """
    import torch

    from rs.runtime.streams import Stream, stream

    own = copy.deepcopy(model).to(memory_format=torch.contiguous_format).train()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def epoch() -> float:
        losses = []
        x, y = torch.from_numpy(data.images).float() / 255, torch.from_numpy(data.labels)
        size = batch // method.steps_per_batch
        for part, labels in zip(x.split(size), y.split(size), strict=True):
            rng = stream(0, Stream.STEP, device=device)
            part, labels = part.to(device), labels.to(device)
            with torchs_defaults():
                loss = method.loss(own, part, labels, sigma=SIGMA, rng=rng, epoch=EPOCH).loss
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    return epoch


def own_trainer(
    model: nn.Module,
    method: Method,
    data: PackedImages,
    device: torch.device,
    engine: str,
    precision: str,
    batch: int,
) -> Trainer:
    """A training of a copy of the model."""
    from rs.params import read_params
    from rs.training.recipe import RunOptions, training_recipe
    from rs.training.trainer import Trainer

    published = training_recipe(
        read_params(Path("params.yaml")), "cifar10", "gaussian", SIGMA
    ).training
    settings = replace(
        published,
        epochs=1,
        batch=batch,
        learning_rate=0.01,
        milestones=[],
        precision=precision,
        engine=engine,
        eval_every=0,
    )
    own = copy.deepcopy(model).train()
    return Trainer(
        own, method, data, data, settings, RunOptions(sigma=SIGMA, seed=0, device=device)
    )


def own_epoch(trainer: Trainer) -> Way:
    """An epoch as this project takes it, without the evaluation."""

    def epoch() -> float:
        trainer.epoch(EPOCH)
        return trainer.progress.history[-1]["loss"]

    return epoch


if __name__ == "__main__":
    run(main)
