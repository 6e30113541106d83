"""Noisy forward passes per second in certification: the standard loop, ART, and every engine.

``python -m benchmarks.forwards --architecture resnet110``. All ways run side by side, interleaved,
each at its best batch. The standard loop (Cohen et al. 2019) runs in a process of its own, as its
users run it, and on a CPU once more in ours, which keeps its memory; ART runs in a process of its
own after the others. Weights are random, but batch norms have seen noisy images.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

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
    markdown_line,
    network,
    side_by_side,
    torchs_defaults,
)
from rs.command_line.shell import run

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rs.certification.inference import Optimized

REFERENCE = "the standard loop, torch's float32"
KEPT = "the standard loop, memory kept"
NOISES = ("gaussian", "grid")

Way = Callable[[], object]
"""Certifies one image, with n0 + n draws."""

TITLE = """\
# Noisy images per second in certification

All ways of running the network, side by side, each with its best batch.
"""


class Measured(NamedTuple):
    """One row of the table."""

    batch: int  # at which it is fastest
    speed: float  # noisy forwards per second
    votes: float | None = None  # share of noisy images with the vote of the plain float32 network
    noise: tuple[float, ...] = ()  # share of its processor time that each kind of noise takes


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
    """Print a Markdown table: noisy forwards per second, and their ratio to the standard loop."""
    import torch

    from rs.runtime.device import resolve_device

    torch.set_num_threads(threads)
    load = os.getloadavg()[0]
    sizes = [int(word) for word in batches.split(",")]
    found = measure(architecture, n, sizes, resolve_device(device))
    if art is not None:
        speeds = json.loads(in_art(art, "certify", architecture.value, n, threads, *sizes))
        size = max(speeds, key=speeds.get)
        found["ART, certify"] = Measured(int(size), speeds[size])
    print(TITLE)
    print("\n".join(table(found)))
    print(
        f"\n{architecture.value}, {N0} + {n} samples, best of batches {batches}, median of "
        f"{ROUNDS} rounds"
    )
    print(f"{machine(device)}; {load:.1f} other processes at work")


def measure(
    architecture: Architecture, n: int, sizes: list[int], device: torch.device
) -> dict[str, Measured]:
    """Measure the standard loop and every engine.

    Engines evaluate whole blocks of noise, so they have the batch sizes that are made of blocks.
    """
    from rs.smoothing.noise import BLOCK

    model, x = network(architecture, device)
    own_sizes = [size for size in sizes if size % BLOCK == 0] or [BLOCK]
    engines = engines_on(device)
    made = {}
    for engine, precision in engines:
        for size in own_sizes:
            made[engine, precision, size] = optimized(model, x, engine, precision, size)
    spent: dict[tuple[str, int], list[float]] = {}
    ways: dict[tuple[str, int], Way] = {}
    with apart(device, field_loops, architecture, n, sizes) as loops:
        for size in sizes:
            ways[REFERENCE, size] = loops[size]
            if device.type == "cpu":
                ways[KEPT, size] = field_loop(model, x, n, size)
        for (engine, precision, size), network_as_run in made.items():
            key = (f"{engine}, {precision}", size)
            certify = certification(network_as_run, x, n, size)
            ways[key] = counted(certify, spent.setdefault(key, []))
        for kind in NOISES:
            draw = noise_alone(kind, x, n)
            ways[kind, BLOCK] = counted(draw, spent.setdefault((kind, BLOCK), []))
        for way in ways.values():
            way()
        seconds = side_by_side(ways, ROUNDS, device.type)
    votes = agreement({engine: made[*engine, own_sizes[0]] for engine in engines}, x)
    found: dict[str, Measured] = {}
    for (name, size), duration in seconds.items():
        speed = (N0 + n) / duration
        if name in NOISES or (name in found and found[name].speed >= speed):
            continue
        noise: tuple[float, ...] = ()
        if name in votes and device.type == "cpu":
            busy = median(spent[name, size])
            noise = tuple(median(spent[kind, BLOCK]) / busy for kind in NOISES)
        found[name] = Measured(size, speed, votes.get(name), noise)
    return found


def field_loops(
    device: torch.device, architecture: Architecture, n: int, sizes: list[int]
) -> dict[int, Way]:
    """Return the standard loop by batch size, with a network of its own."""
    model, x = network(architecture, device)
    return {size: field_loop(model, x, n, size) for size in sizes}


def field_loop(model: nn.Module, x: torch.Tensor, n: int, size: int) -> Way:
    """Return CERTIFY as in the standard code: repeated images, fresh noise, counts on the host."""
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
    """Return the network as an engine runs it; refuse to go on with another engine."""
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
    """Return the network in int8, calibrated on noisy images of random pixels."""
    from benchmarks.steps import random_images
    from rs.certification.quantize import quantize, quantized_classifier

    images = random_images(tuple(x.shape), N0)
    return quantized_classifier(model, quantize(model, images, SIGMA, N0), x.shape)


def certification(made: Optimized, x: torch.Tensor, n: int, size: int) -> Way:
    """Return CERTIFY as this project does it."""
    from rs.smoothing.classifier import SmoothedClassifier

    classifier = SmoothedClassifier(
        made.module, CLASSES, SIGMA, precision=made.precision, batch=size
    )
    return lambda: classifier.certify(x, N0, n, ALPHA)


def counted(way: Way, spent: list[float]) -> Way:
    """Return a way that notes its processor seconds, which other work hardly changes."""

    def run() -> object:
        begun = time.process_time()
        made = way()
        spent.append(time.process_time() - begun)
        return made

    return run


def noise_alone(kind: str, x: torch.Tensor, n: int) -> Way:
    """Return the noise of a certificate of n0 + n samples, without its images and its network."""
    from rs.runtime.streams import Stream
    from rs.smoothing.noise import BLOCK, gaussian_block, grid_block

    drawn = {"gaussian": gaussian_block, "grid": grid_block}[kind]
    numbers = range((N0 + n) // BLOCK)
    return lambda: [drawn(i, x.shape, SIGMA, 0, Stream.ESTIMATE, device=x.device) for i in numbers]


def agreement(
    made: dict[tuple[str, str], Optimized], x: torch.Tensor, draws: int = 1000
) -> dict[str, float]:
    """Return the share of noisy images on which an engine votes as the plain float32 network."""
    import torch

    from rs.smoothing.classifier import autocast

    noise = torch.randn(draws, *x.shape, generator=torch.Generator().manual_seed(1)).to(x.device)
    with torch.no_grad():  # as in certification, so that no network is compiled again
        noisy = x + SIGMA * noise
    votes = {}
    for (engine, precision), as_run in made.items():
        with torch.no_grad(), autocast(x.device, as_run.precision):
            parts = [as_run.module(part).argmax(1) for part in noisy.split(100)]
        votes[f"{engine}, {precision}"] = torch.cat(parts)
    plain = votes["plain, float32"]
    return {name: float((classes == plain).float().mean()) for name, classes in votes.items()}


def table(found: dict[str, Measured]) -> Iterator[str]:
    """Yield the lines of the Markdown table."""
    noises = " | ".join(f"noise, {kind}" for kind in NOISES)
    shown = f"votes as plain float32 | {noises}"
    yield f"| way | batch | noisy forwards/s | faster | n = 100,000 | {shown} |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, (batch, speed, votes, noise) in found.items():
        cells = [
            f"{batch}",
            f"{speed:,.0f}",
            f"{speed / found[REFERENCE].speed:.2f}",
            f"{100_100 / speed:,.1f} s",
            "" if votes is None else f"{votes:.1%}",
        ]
        cells += [f"{share:.1%}" for share in noise] or [""] * len(NOISES)
        yield markdown_line([name, *cells])


if __name__ == "__main__":
    run(main)
