"""Noisy forward passes a second in certification: the field's loop, ART, and every engine of this
project.

``python -m benchmarks.forwards --architecture resnet110``. All ways run side by side, interleaved,
each at its best batch; the field's loop in a process of its own, as its users run it, and on a CPU
once more in ours, whose memory is kept; ART in a process of its own, after the others. Weights are
random, but batch norms have seen noisy images.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from benchmarks import roofline
from benchmarks.apart import apart
from benchmarks.art_loop import in_art
from benchmarks.common import (
    ALPHA,
    CLASSES,
    N0,
    ROUNDS,
    SIGMA,
    Architecture,
    engines_on,
    machine,
    network,
    side_by_side,
    torchs_defaults,
)
from rs.command_line.shell import run

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rs.certification.inference import Optimized

REFERENCE = "the field's loop, torch's float32"
KEPT = "the field's loop, memory kept"
NOISES = ("gaussian", "grid")

Way = Callable[[], object]
"""Certifies one image, with n0 + n draws."""


class Measured(NamedTuple):
    """One row of the table."""

    batch: int  # at which it is fastest
    speed: float  # noisy forwards a second
    share: float | None = None  # of what the roofline allows
    votes: float | None = (
        None  # share of the noisy images on which it votes as the plain network in float32 does
    )
    noise: tuple[float, ...] | None = (
        None  # share of its processor time that noise takes, for each kind of noise
    )


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet110,
    n: Annotated[
        int, typer.Option(min=100, help=f"Draws that bound a probability, after {N0} that select.")
    ] = 1000,
    batches: Annotated[
        str,
        typer.Option(
            help="Noisy images at once, with commas; each way takes its best, ours of multiples of "
            "100."
        ),
    ] = "32,100,300",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = os.cpu_count() or 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    art: Annotated[
        Path | None,
        typer.Option(
            help="Python of an environment with this project, adversarial-robustness-toolbox and "
            "statsmodels."
        ),
    ] = None,
) -> None:
    """Print a Markdown table: noisy forwards a second, their ratio to the field's loop, and how
    engines vote.
    """
    import torch

    from rs.runtime.device import device_named

    torch.set_num_threads(threads)
    sizes, load = [int(word) for word in batches.split(",")], os.getloadavg()[0]
    limits = roofline.ceilings(where := device_named(device))
    found = measure(architecture, n, sizes, where, limits)
    if art is not None:
        speeds = json.loads(in_art(art, "certify", architecture.value, n, threads, *sizes))
        size = max(speeds, key=speeds.get)
        found["ART, certify"] = Measured(int(size), speeds[size])
    print("\n".join(table(found)))
    print(
        f"\n{architecture.value}, {N0} + {n} draws, best of batches {batches}, median of {ROUNDS} "
        "rounds"
    )
    print(f"{limits}\n{machine(device)}; {load:.1f} other processes at work")


def measure(
    architecture: Architecture,
    n: int,
    sizes: list[int],
    device: torch.device,
    limits: roofline.Ceilings,
    rounds: int = ROUNDS,
) -> dict[str, Measured]:
    """Measure the field's loop and every engine, and compare them with the roofline.

    Engines evaluate whole blocks of noise, so they have the sizes that are made of such.
    """
    from rs.smoothing.noise import BLOCK

    model, x = network(architecture, device)
    own = [size for size in sizes if size % BLOCK == 0] or [BLOCK]
    known = engines_on(device)
    made = {
        key: optimized(model, x, *key)
        for key in [(*engine, size) for engine in known for size in own]
    }
    spent: dict[tuple[str, int], list[float]] = defaultdict(list)
    with apart(device, field_loops, architecture, n, sizes) as loops:
        ways: dict[tuple[str, int], Way] = {(REFERENCE, size): loops[size] for size in sizes}
        if device.type == "cpu":
            ways |= {(KEPT, size): field_loop(model, x, n, size) for size in sizes}
        for (engine, precision, size), network_as_run in made.items():
            key = (f"{engine}, {precision}", size)
            ways[key] = counted(certification(network_as_run, x, n, size), spent[key])
        ways |= {
            (kind, BLOCK): counted(noise_alone(kind, x, n), spent[kind, BLOCK]) for kind in NOISES
        }
        for way in ways.values():
            way()
        seconds = side_by_side(ways, rounds, device.type)
    busy = {key: median(values) for key, values in spent.items()}
    names = dict.fromkeys(name for name, _ in ways if name not in NOISES)
    batch = {
        name: min((value, size) for (one, size), value in seconds.items() if one == name)[1]
        for name in names
    }
    best = {name: (N0 + n) / seconds[name, size] for name, size in batch.items()}
    engines = {engine: made[*engine, own[0]] for engine in known}
    points = _on_the_roofline(best, model, x, engines)
    votes = agreement(engines, x)
    return {
        name: Measured(
            batch[name],
            speed,
            speed / roofline.attainable(limits, precision, asked),
            votes.get(name),
            tuple(busy[kind, BLOCK] / busy[name, batch[name]] for kind in NOISES)
            if name in votes and device.type == "cpu"
            else None,
        )
        for name, (precision, asked, speed) in points.items()
    }


def _on_the_roofline(
    speeds: dict[str, float],
    model: nn.Module,
    x: torch.Tensor,
    made: dict[tuple[str, str], Optimized],
) -> dict[str, tuple[str, roofline.Work, float]]:
    """Precision, work of a pass and speed of each way."""
    from rs.smoothing.classifier import autocast

    sample = x.expand(20, *x.shape).contiguous()
    asked = roofline.work(model, sample)
    points = {
        name: ("float32", asked, speeds[name]) for name in (REFERENCE, KEPT) if name in speeds
    }
    for (engine, precision), network_as_run in made.items():
        fused = engine in ("compiled", "quantized")
        wide = "float32" if precision == "int8" else precision
        source = made["folded", wide] if fused else network_as_run  # an operation at a time
        with autocast(x.device, source.precision):
            asked = roofline.work(source.module, sample, fused=fused)
        if precision == "int8":
            asked = roofline.Work(asked.operations, asked.bytes / 4)
        name = f"{engine}, {precision}"
        points[name] = (precision, asked, speeds[name])
    return points


def field_loops(
    device: torch.device, architecture: Architecture, n: int, sizes: list[int]
) -> dict[int, Way]:
    """The field's loop by batch, with a network of its own."""
    made = network(architecture, device)
    return {size: field_loop(*made, n, size) for size in sizes}


def field_loop(model: nn.Module, x: torch.Tensor, n: int, size: int) -> Way:
    """CERTIFY as the field's code does it: batches of repeated images, fresh noise, counts on the
    host.
    """
    import numpy as np
    import torch

    from rs.statistics.radius import lower_bound

    base = copy.deepcopy(model).to(memory_format=torch.contiguous_format)

    def count(draws: int) -> np.ndarray:
        counts = np.zeros(CLASSES, dtype=int)
        with torch.no_grad(), torchs_defaults():
            while draws > 0:
                batch = x.repeat((min(size, draws), 1, 1, 1))
                draws -= len(batch)
                predictions = base(batch + torch.randn_like(batch) * SIGMA).argmax(1)
                counts += np.bincount(predictions.cpu().numpy(), minlength=CLASSES)
        return counts

    return lambda: lower_bound(count(N0).max(), n, ALPHA) + count(n).max()


def optimized(
    model: nn.Module, x: torch.Tensor, engine: str, precision: str, size: int
) -> Optimized:
    """The network as an engine runs it; stops where it is another engine in the end."""
    from rs.certification.inference import Optimized, optimize_for_inference

    if engine == "quantized":
        return Optimized(in_int8(model, x), "float32", size, engine)
    made = optimize_for_inference(model, engine, precision, tuple(x.shape), x.device, size)
    if made.engine != engine:
        raise RuntimeError(
            f"the engine must be {engine}, but is {made.engine}; the warning above says why"
        )
    return made


@cache
def in_int8(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """The network in int8, calibrated on noisy images of random pixels, as those that its batch
    norms have seen.
    """
    from benchmarks.steps import random_images
    from rs.certification.quantize import quantize, quantized_classifier

    return quantized_classifier(
        model, quantize(model, random_images(tuple(x.shape), N0), SIGMA, N0), x.shape
    )


def certification(made: Optimized, x: torch.Tensor, n: int, size: int) -> Way:
    """CERTIFY as this project does it."""
    from rs.smoothing.classifier import SmoothedClassifier

    classifier = SmoothedClassifier(
        made.module, CLASSES, SIGMA, precision=made.precision, batch=size
    )
    return lambda: classifier.certify(x, N0, n, ALPHA)


def counted(way: Way, spent: list[float]) -> Way:
    """A way that notes its processor seconds, on which other work has little effect."""

    def run() -> object:
        begun = time.process_time()
        made = way()
        spent.append(time.process_time() - begun)
        return made

    return run


def noise_alone(kind: str, x: torch.Tensor, n: int) -> Way:
    """The noise of a certificate of n0 + n draws, without its images and its network."""
    from rs.runtime.streams import Stream
    from rs.smoothing.noise import BLOCK, block, grid_block

    drawn = {"gaussian": block, "grid": grid_block}[kind]
    numbers = range((N0 + n) // BLOCK)
    return lambda: [drawn(i, x.shape, SIGMA, 0, Stream.ESTIMATE, device=x.device) for i in numbers]


def agreement(
    made: dict[tuple[str, str], Optimized], x: torch.Tensor, draws: int = 1000
) -> dict[str, float]:
    """Share of the same noisy images on which an engine votes as the plain network in float32 does."""
    import torch

    from rs.smoothing.classifier import autocast

    noise = torch.randn(draws, *x.shape, generator=torch.Generator().manual_seed(1)).to(x.device)
    with torch.inference_mode():
        noisy = (
            x + SIGMA * noise
        )  # as in certification; a tensor made elsewhere would compile the networks again
    votes = {}
    for (engine, precision), one in made.items():
        with torch.inference_mode(), autocast(x.device, one.precision):
            votes[f"{engine}, {precision}"] = torch.cat(
                [one.module(part).argmax(1) for part in noisy.split(100)]
            )
    plain = votes["plain, float32"]
    return {name: float((chosen == plain).float().mean()) for name, chosen in votes.items()}


def table(found: dict[str, Measured]) -> Iterator[str]:
    """Lines of the Markdown table."""
    shown = ["of the roofline", "votes as plain float32", *(f"noise, {kind}" for kind in NOISES)]
    yield f"| way | batch | noisy forwards/s | faster | n = 100,000 | {' | '.join(shown)} |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, (batch, speed, share, votes, noise) in found.items():
        cells = [
            f"{batch}",
            f"{speed:,.0f}",
            f"{speed / found[REFERENCE].speed:.2f}",
            f"{100_100 / speed:,.1f} s",
        ]
        cells += shares(share, votes, *noise or (None,) * len(NOISES))
        yield f"| {name} | {' | '.join(cells)} |"


def shares(*values: float | None) -> list[str]:
    """Cells of shares; empty ones where there is none."""
    return ["" if value is None else f"{value:.1%}" for value in values]


if __name__ == "__main__":
    run(main)
