"""The figures that decide whether a study takes days: a certificate of n = 100,000, and an epoch of AdvMacer.

``python -m benchmarks.headline --device cuda`` on a machine with a GPU takes some minutes. The paper needs 8.9 seconds
a certificate, and 372 or 192 seconds an epoch of CIFAR-10 with 8 or 4 draws, on a V100, with ResNet-110. Beside each
figure stands the field's way, measured in the same run; and at last what the profiler says takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
"""Seconds an epoch on a V100, by the number of draws (paper, table 2: 15.5 and 8.0 hours for 150 epochs)."""

NOISY = 256
"""Noisy images of a step, however many draws: one shape, so one compilation."""


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet110,
    n: Annotated[int, typer.Option(min=100, help="Draws of a certificate; seconds are scaled to 100,000.")] = 20_000,
    batches: Annotated[str, typer.Option(help="Noisy images at once, with commas; multiples of 100.")] = "2700",
    images: Annotated[int, typer.Option(min=NOISY, help="Images of a piece of an epoch; seconds are scaled.")] = 1280,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, of which the median is taken.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    out: Annotated[Path | None, typer.Option(help="Folder for roofline.png and the profiler's tables.")] = None,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print Markdown tables of epochs and certificates, and what takes the time."""
    from rs.params import read_params
    from rs.runtime.device import device_named
    from rs.training.recipe import training_recipe

    where = device_named(device)
    method = training_recipe(read_params(params), "cifar10", "advmacer", SIGMA).method
    (model, x), data = network(architecture, where), random_images(architecture.shape, images)
    trained = trainers(model, method, data, where)
    for line in epochs(trained, architecture, method, data, rounds, where):
        print(line, flush=True)
    print(f"\nseconds an epoch of {IMAGES:,} images, from {images}; AdvMacer, {method.steps} steps of attack\n")
    print(profile("training", own_epoch(trained["compiled, bfloat16"]), where, out), flush=True)

    limits, sizes = roofline.ceilings(where), [int(word) for word in batches.split(",")]
    picture = out / "roofline.png" if out else None
    print("\n".join(forwards.table(forwards.measure(architecture, n, sizes, where, limits, picture, rounds))))
    print(f"\n{architecture.value}, {N0} + {n} draws, best of batches {batches}; the paper: 8.9 s on a V100\n")
    made = forwards.optimized(model, x, "compiled", "bfloat16", sizes[-1])
    certify = forwards.certification(made, x, 5 * sizes[-1], sizes[-1])
    certify()
    print(profile("certificate", certify, where, out))
    print(f"{limits}\n{machine(device)}")


def trainers(model: nn.Module, method: AdvMacer, data: PackedImages, device: torch.device) -> dict[str, Trainer]:
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
            seconds = [value * IMAGES / len(data) for value in side_by_side(ways, rounds, device.type).values()]
        cells = " | ".join(f"{value:,.1f}" for value in seconds)
        yield f"| {draws} | {cells} | {seconds[0] / seconds[-1]:.1f} | {paper:,.0f} |"


def profile(name: str, way: Callable[[], object], device: torch.device, out: Path | None) -> str:
    """The ten operations that take most of the device's time; the whole table goes into ``out``."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    gpu = device.type == "cuda"
    with profiler(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as made:
        way()
    averages = made.key_averages()
    attribute = f"self_{'device' if gpu else 'cpu'}_time_total"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        table = averages.table(sort_by=f"self_{device.type}_time_total", row_limit=100)
        (out / f"{name}.profile.txt").write_text(table, encoding="utf-8")
    # On a GPU a kernel's time is its own and that of the operation that launched it: only kernels are counted.
    events = [one for one in averages if not gpu or (one.device_type == DeviceType.CUDA and not one.is_user_annotation)]
    rows = sorted(events, key=lambda event: -getattr(event, attribute))
    total = sum(getattr(event, attribute) for event in rows)
    lines = [f"{name}: {total / 1e3:,.1f} ms on the device, of which"]
    for event in rows[:10]:
        lines.append(f"  {getattr(event, attribute) / total:6.1%}  {event.count:6}x  {event.key[:90]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(main)
