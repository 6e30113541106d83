"""Noisy forward passes a second in certification: the field's loop, ART, and every engine of this project.

``python -m benchmarks.forwards --architecture resnet110``. All ways run side by side in one process, interleaved, each
at its best batch. Weights are random, but batch norms have seen noisy images. How engines vote is said beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.pool import Architecture, processor
from stages.shell import run

if TYPE_CHECKING:
    import torch
    from torch import nn

CLASSES, SIGMA, N0, ALPHA = 10, 0.25, 100, 0.001
ROUNDS = 3
ENGINES = [(e, p) for p in ("float32", "bfloat16") for e in ("plain", "folded", "compiled")]
REFERENCE = "the field's loop, float32"

Way = Callable[[], object]
"""Certifies one image, with n0 + n draws."""


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet110,
    n: Annotated[int, typer.Option(min=100, help=f"Draws that bound a probability, after {N0} that select.")] = 1000,
    batches: Annotated[
        str, typer.Option(help="Noisy images at once, with commas; each way takes its best.")
    ] = "100,500",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = os.cpu_count() or 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    art: Annotated[
        Path | None,
        typer.Option(
            help="Python of an environment with this project, adversarial-robustness-toolbox and statsmodels."
        ),
    ] = None,
) -> None:
    """Print a Markdown table: noisy forwards a second, their ratio to the field's loop, and how engines vote."""
    import torch

    torch.set_num_threads(threads)
    where = torch.device(device)
    model, x = network(architecture, where)
    sizes = [int(word) for word in batches.split(",")]
    ways = {(REFERENCE, size): _reference(model, x, n, size) for size in sizes}
    ways |= {
        (f"{engine}, {precision}", size): _engine(model, x, n, size, engine, precision)
        for engine, precision in ENGINES
        for size in sizes
    }
    speeds: dict[tuple[str, int], list[float]] = {key: [] for key in ways}
    for _ in range(ROUNDS):
        for key, way in ways.items():
            begun = time.perf_counter()
            way()
            speeds[key].append((N0 + n) / (time.perf_counter() - begun))
    best = _best({key: median(values) for key, values in speeds.items()})
    if art is not None:
        best["ART, certify"] = _art(art, architecture, n, sizes, threads)
    print("\n".join(_report(best, _votes(model, x))))
    print(f"\n{architecture.value}, {N0} + {n} draws, best of batches {batches}, median of {ROUNDS} rounds")
    print(f"{processor()}, {os.cpu_count()} cores; {threads} threads; {device}; torch {torch.__version__}")


def network(architecture: Architecture, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """A network whose batch norms have seen noisy images, in eval mode, and an image."""
    import torch

    from rs import models

    channels = architecture.shape[0]
    model = models.build(architecture, architecture.shape, CLASSES, [0.5] * channels, [0.25] * channels, 0)
    rng = torch.Generator().manual_seed(0)
    seen = torch.rand(256, *architecture.shape, generator=rng)
    with torch.no_grad():
        for part in seen.split(64):
            model(part + SIGMA * torch.randn(part.shape, generator=rng))
    return model.eval().to(device), seen[0].to(device)


def _reference(model: nn.Module, x: torch.Tensor, n: int, size: int) -> Way:
    """CERTIFY as the field's code does it: batches of repeated images, fresh noise, counts on the host."""
    import copy

    import numpy as np
    import torch

    from rs.radius import lower_bound

    base = copy.deepcopy(model).to(memory_format=torch.contiguous_format)

    def count(draws: int) -> np.ndarray:
        counts = np.zeros(CLASSES, dtype=int)
        with torch.no_grad():
            while draws > 0:
                batch = x.repeat((min(size, draws), 1, 1, 1))
                draws -= len(batch)
                predictions = base(batch + torch.randn_like(batch) * SIGMA).argmax(1)
                counts += np.bincount(predictions.cpu().numpy(), minlength=CLASSES)
        return counts

    return lambda: lower_bound(count(N0).max(), n, ALPHA) + count(n).max()


def _engine(model: nn.Module, x: torch.Tensor, n: int, size: int, engine: str, precision: str) -> Way:
    from rs.engine import arrange
    from rs.smoothing import SmoothedClassifier

    made = arrange(model, engine, precision, tuple(x.shape), x.device, size)
    classifier = SmoothedClassifier(made.module, CLASSES, SIGMA, precision=made.precision, batch=size)
    return lambda: classifier.certify(x, N0, n, ALPHA)


def _votes(model: nn.Module, x: torch.Tensor, draws: int = 1000) -> dict[str, float]:
    """Share of the same noisy images on which an engine votes as the plain network in float32 does."""
    import torch

    from rs.engine import arrange

    noisy = x + SIGMA * torch.randn(draws, *x.shape, generator=torch.Generator().manual_seed(1)).to(x.device)
    votes = {}
    for engine, precision in ENGINES:
        made = arrange(model, engine, precision, tuple(x.shape), x.device, 100)
        autocast = torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=made.precision == "bfloat16")
        with torch.inference_mode(), autocast:
            votes[f"{engine}, {precision}"] = torch.cat([made.module(part).argmax(1) for part in noisy.split(100)])
    plain = votes["plain, float32"]
    return {name: float((chosen == plain).float().mean()) for name, chosen in votes.items()}


def _art(python: Path, architecture: Architecture, n: int, sizes: list[int], threads: int) -> float:
    """Noisy forwards a second of ``PyTorchRandomizedSmoothing.certify``, at its best batch, in its own interpreter."""
    words: list[object] = [python, "-m", "benchmarks.art_loop", architecture.value, n, threads, *sizes]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"error: {python} must run adversarial-robustness-toolbox, but failed")
    return max(json.loads(done.stdout.splitlines()[-1]).values())


def _best(speeds: dict[tuple[str, int], float]) -> dict[str, float]:
    best: dict[str, float] = {}
    for (name, _), speed in speeds.items():
        best[name] = max(speed, best.get(name, 0.0))
    return best


def _report(best: dict[str, float], votes: dict[str, float]) -> list[str]:
    lines = ["| way | noisy forwards/s | to the field's loop | n = 100,000 | votes as plain float32 |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, speed in best.items():
        agreed = f"{votes[name]:.1%}" if name in votes else ""
        lines.append(f"| {name} | {speed:,.0f} | {speed / best[REFERENCE]:.2f} | {100_100 / speed:,.0f} s | {agreed} |")
    return lines


if __name__ == "__main__":
    run(main)
