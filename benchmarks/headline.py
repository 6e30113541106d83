"""The figures that decide whether a study takes days: a certificate of n = 100,000, and an epoch of
AdvMacer.

``python -m benchmarks.headline --device cuda`` on a machine with a GPU takes some minutes. The
paper needs 8.9 seconds a certificate, and 372 or 192 seconds an epoch of CIFAR-10 with 8 or 4
draws, on a V100, with ResNet-110. Beside each figure stands the field's way, measured in the same
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks import forwards, roofline
from benchmarks.apart import apart
from benchmarks.common import N0, SIGMA, Architecture, machine, network, side_by_side
from benchmarks.steps import REFERENCE, field_alone, own_epoch, own_trainer, random_images
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rs.data.images import PackedImages
    from rs.methods.advmacer import AdvMacer
    from rs.training.trainer import Trainer

IMAGES = 50_000
"""Images of an epoch of CIFAR-10."""

PAPER = {8: 372.0, 4: 192.0}
"""Seconds an epoch on a V100, by the number of draws (paper, table 2: 15.5 and 8.0 hours for 150
epochs).
"""

NOISY = 256
"""Noisy images of a step, however many draws: one shape, so one compilation."""


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet110,
    n: Annotated[
        int, typer.Option(min=100, help="Draws of a certificate; seconds are scaled to 100,000.")
    ] = 20_000,
    batches: Annotated[
        str, typer.Option(help="Noisy images at once, with commas; multiples of 100.")
    ] = "2700",
    images: Annotated[
        int, typer.Option(min=NOISY, help="Images of a piece of an epoch; seconds are scaled.")
    ] = 1280,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the median is taken.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print Markdown tables of epochs and certificates."""
    from rs.params import read_params
    from rs.runtime.device import device_named
    from rs.training.recipe import training_recipe

    where = device_named(device)
    method = training_recipe(read_params(params), "cifar10", "advmacer", SIGMA).method
    (model, _), data = network(architecture, where), random_images(architecture.shape, images)
    trained = trainers(model, method, data, where)
    for line in epochs(trained, architecture, method, data, rounds, where):
        print(line, flush=True)
    print(
        f"\nseconds an epoch of {IMAGES:,} images, from {images}; AdvMacer, {method.steps} steps "
        "of attack\n"
    )
    limits, sizes = roofline.ceilings(where), [int(word) for word in batches.split(",")]
    print(
        "\n".join(forwards.table(forwards.measure(architecture, n, sizes, where, limits, rounds)))
    )
    print(
        f"\n{architecture.value}, {N0} + {n} draws, best of batches {batches}; the paper: 8.9 s on "
        "a V100\n"
    )
    print(f"{limits}\n{machine(device)}")


def trainers(
    model: nn.Module, method: AdvMacer, data: PackedImages, device: torch.device
) -> dict[str, Trainer]:
    """Our ways of training, warm; their method can be changed."""
    made = {
        f"{engine}, {precision}": own_trainer(model, method, data, device, engine, precision, NOISY)
        for engine, precision in (("plain", "float32"), ("compiled", "bfloat16"))
    }
    for trainer in made.values():
        own_epoch(trainer)()
    return made


def epochs(
    trained: Mapping[str, Trainer],
    architecture: Architecture,
    method: AdvMacer,
    data: PackedImages,
    rounds: int,
    device: torch.device,
) -> Iterator[str]:
    """Lines of the table of epochs, by the number of draws."""
    yield f"| draws | {REFERENCE} | {' | '.join(trained)} | compiled: times faster than the field's | paper, V100 |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for draws, paper in PAPER.items():
        one = replace(method, draws=draws)
        with apart(device, field_alone, architecture, one, data, NOISY) as ways:
            for name, trainer in trained.items():
                trainer.method = one
                ways[name] = own_epoch(trainer)
            seconds = [
                value * IMAGES / len(data)
                for value in side_by_side(ways, rounds, device.type).values()
            ]
        cells = " | ".join(f"{value:,.1f}" for value in seconds)
        yield f"| {draws} | {cells} | {seconds[0] / seconds[-1]:.1f} | {paper:,.0f} |"


if __name__ == "__main__":
    run(main)
