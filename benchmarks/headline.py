"""The figures that decide whether a study takes days: a certificate of n = 100,000, and an epoch of AdvMacer.

``python -m benchmarks.headline --device cuda`` on a machine with a GPU takes minutes. The paper needs 8.9 seconds a
certificate, and 372 or 192 seconds an epoch of CIFAR-10 with 8 or 4 draws, on a V100, with ResNet-110. Beside each
figure stands the field's way, in float32, measured in the same run; and at last what the profiler says takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks import forwards, roofline
from benchmarks.common import N0, SIGMA, Architecture, machine, network, side_by_side
from benchmarks.steps import REFERENCE, Way, field_steps, own_steps, random_images
from stages.shell import ParamsFile, run

if TYPE_CHECKING:
    import torch

    from rs.methods.advmacer import AdvMacer

IMAGES = 50_000
"""Images of an epoch of CIFAR-10."""

PAPER = {8: 372.0, 4: 192.0}
"""Seconds an epoch on a V100, by the number of draws (paper, table 2: 15.5 and 8.0 hours for 150 epochs)."""


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet110,
    n: Annotated[int, typer.Option(min=100, help="Draws of a certificate; seconds are scaled to 100,000.")] = 100_000,
    batches: Annotated[str, typer.Option(help="Noisy images at once, with commas.")] = "400,1000,2700",
    images: Annotated[int, typer.Option(min=1, help="Images of a piece of an epoch; seconds are scaled.")] = 2560,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the median is taken.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    out: Annotated[Path | None, typer.Option(help="Folder for roofline.png and the profiler's tables.")] = None,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print Markdown tables of certificates and epochs, and what takes the time."""
    from rs.device import device_named
    from rs.params import read
    from rs.recipe import training_recipe

    where = device_named(device)
    limits = roofline.ceilings(where)
    sizes = [int(word) for word in batches.split(",")]
    picture = out / "roofline.png" if out else None
    print("\n".join(forwards.table(forwards.measure(architecture, n, sizes, where, limits, picture))), flush=True)
    print(f"\n{architecture.value}, {N0} + {n} draws, best of batches {batches}; the paper: 8.9 s on a V100\n")

    method = training_recipe(read(params), "cifar10", "advmacer", SIGMA).method
    print("\n".join(epochs(architecture, method, images, rounds, where)))
    print(f"\nseconds an epoch of {IMAGES:,} images, from {images}, AdvMacer with {method.steps} steps of attack\n")
    for name, way in profiled(architecture, method, sizes[-1], images, where).items():
        print(profile(name, way, where, out))
    print(f"{limits}\n{machine(device)}")


def epochs(
    architecture: Architecture, method: AdvMacer, images: int, rounds: int, device: torch.device
) -> Iterator[str]:
    """Lines of the table of epochs, by the number of draws."""
    yield "| draws | the field's way, float32 | compiled, float32 | compiled, bfloat16 | ratio | paper, V100 |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for draws, paper in PAPER.items():
        one = replace(method, draws=draws)
        ways = training_ways(architecture, one, images, device)
        for way in ways.values():
            way()
        seconds = [value * IMAGES / images for value in side_by_side(ways, rounds, device.type).values()]
        cells = " | ".join(f"{value:,.1f}" for value in seconds)
        yield f"| {draws} | {cells} | {seconds[0] / seconds[-1]:.1f} | {paper:,.0f} |"


def training_ways(architecture: Architecture, method: AdvMacer, images: int, device: torch.device) -> dict[str, Way]:
    """Ways of training on so many images, in batches of the recipe: 256 noisy images a step."""
    model, _ = network(architecture, device)
    data = random_images(architecture, images)
    ways = {REFERENCE: field_steps(model, method, data, device, 256)}
    for precision in ("float32", "bfloat16"):
        ways[f"compiled, {precision}"] = own_steps(model, method, data, device, "compiled", precision, 256)
    return ways


def profiled(
    architecture: Architecture, method: AdvMacer, size: int, images: int, device: torch.device
) -> dict[str, Callable[[], object]]:
    """What is worth a look by the profiler, warm."""
    model, x = network(architecture, device)
    made = forwards.arranged(model, x, "compiled", "bfloat16", size)
    data = random_images(architecture, min(images, 512))
    ways: dict[str, Callable[[], object]] = {
        "certificate": forwards.certification(made, x, 5 * size, size),
        "training": own_steps(model, method, data, device, "compiled", "bfloat16", 256),
    }
    for way in ways.values():
        way()
    return ways


def profile(name: str, way: Callable[[], object], device: torch.device, out: Path | None) -> str:
    """The ten operations that take most of the device's time; the whole table goes into ``out``."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profiler(activities=kinds) as made:
        way()
    order = f"self_{device.type}_time_total"
    averages = made.key_averages()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.profile.txt").write_text(averages.table(sort_by=order, row_limit=100), encoding="utf-8")
    attribute = f"self_{'device' if device.type == 'cuda' else 'cpu'}_time_total"
    rows = sorted(averages, key=lambda event: -getattr(event, attribute))
    total = sum(getattr(event, attribute) for event in rows)
    lines = [f"{name}: {total / 1e3:,.1f} ms on the device, of which"]
    for event in rows[:10]:
        lines.append(f"  {getattr(event, attribute) / total:6.1%}  {event.count:6}x  {event.key[:90]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(main)
