"""What it brings to keep the memory of freed tensors (``rs.runtime.device.keep_memory``), and how much that holds.

``python -m benchmarks.memory``: one image certified, and AdvMacer's steps of a batch, each in two processes that take
turns: one with the C library's defaults, one that keeps its memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.apart import Ways, apart
from benchmarks.common import N0, ROUNDS, SIGMA, Architecture, machine, network, side_by_side
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    import torch

    from rs.methods.advmacer import AdvMacer

LARGEST = "largest memory"


def main(
    certified: Annotated[Architecture, typer.Option(help="Network that certifies.")] = Architecture.resnet110,
    trained: Annotated[Architecture, typer.Option(help="Network that is trained.")] = Architecture.resnet20,
    n: Annotated[int, typer.Option(min=100, help="Draws that bound a probability.")] = 900,
    images: Annotated[int, typer.Option(min=1, help="Images of a training step, 8 noisy ones of each.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = os.cpu_count() or 1,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print a Markdown table: seconds and largest memory, by what the process does with freed memory."""
    import torch

    from rs.params import read_params
    from rs.training.recipe import training_recipe

    torch.set_num_threads(threads)
    cpu = torch.device("cpu")
    method = training_recipe(read_params(params), "cifar10", "advmacer", SIGMA).method
    print("| | default, s | kept, s | faster | default, GB | kept, GB |")
    print("|---|---:|---:|---:|---:|---:|")
    for engine, precision in (("plain", "float32"), ("folded", "float32"), ("folded", "bfloat16")):
        for what, build, words in (
            (f"{certified.value}, certificate", certificate, (certified, n)),
            (f"{trained.value}, training step", step, (trained, method, images)),
        ):
            with (
                apart(cpu, build, False, engine, precision, *words) as default,
                apart(cpu, build, True, engine, precision, *words) as keeping,
            ):
                seconds = side_by_side({False: default["way"], True: keeping["way"]}, ROUNDS)
                held = [ways[LARGEST]() for ways in (default, keeping)]
            steps = method.steps_per_batch if build is step else 1
            cells = [f"{seconds[kept] / steps:.2f}" for kept in (False, True)]
            cells.append(f"{seconds[False] / seconds[True]:.2f}")
            cells += [f"{value:.2f}" for value in held]
            print(f"| {what}: {engine}, {precision} | {' | '.join(cells)} |", flush=True)
    print(f"\n{N0} + {n} draws in batches as by default; a step of {images} images, 8 draws; median of {ROUNDS} rounds")
    print(machine())


def certificate(cpu: torch.device, kept: bool, engine: str, precision: str, architecture: Architecture, n: int) -> Ways:
    """A certificate of one image, warm."""
    from benchmarks.forwards import certification, optimized
    from rs.smoothing.classifier import default_batch

    _keep(kept)
    model, x = network(architecture, cpu)
    size = default_batch(x)
    return _warm(certification(optimized(model, x, engine, precision, size), x, n, size))


def step(
    cpu: torch.device,
    kept: bool,
    engine: str,
    precision: str,
    architecture: Architecture,
    method: AdvMacer,
    images: int,
) -> Ways:
    """The steps of a batch, warm."""
    from benchmarks.steps import own_epoch, own_trainer, random_images

    _keep(kept)
    data = random_images(architecture.shape, images * method.steps_per_batch)
    model, _ = network(architecture, cpu)
    return _warm(own_epoch(own_trainer(model, method, data, cpu, engine, precision, len(data))))


def _keep(kept: bool) -> None:
    from rs.runtime.device import keep_memory

    if kept and not keep_memory():
        raise RuntimeError("memory must be kept, but this C library is not glibc, or MALLOC_* tunes it")


def _warm(way: Callable[[], object]) -> Ways:
    way()
    return {"way": way, LARGEST: largest}


def largest() -> float:
    """The most memory that this process has held, in GB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(status["VmHWM"].split()[0]) / 1e6


if __name__ == "__main__":
    run(main)
