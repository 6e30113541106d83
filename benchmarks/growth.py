"""How the cost grows: with the draws of a certificate, with images, with the members of a pool, and with processes.

``python -m benchmarks.growth``. Members and draws are timed in this process; processes are started by torchrun over the
stages that certify and train, and their seconds are those that the stages write down.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.common import ALPHA, CLASSES, N0, ROUNDS, SIGMA, Architecture, machine, network, side_by_side
from benchmarks.steps import random_images
from rs.command_line.shell import ParamsFile, run

if TYPE_CHECKING:
    from torch import nn

World = tuple[int, int]
"""Processes, and threads of each."""

RECIPE = "cifar10-fast"
IMAGES = 512


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network.")] = Architecture.resnet20,
    n: Annotated[int, typer.Option(min=100, help="Draws of the certificates that are not about draws.")] = 1000,
    images: Annotated[int, typer.Option(min=4, help="Images that processes certify.")] = 24,
    processes: Annotated[str, typer.Option(help="Numbers of processes, with commas.")] = "1,2,4",
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Print Markdown tables of seconds, and of what twice as much costs."""
    import torch

    from rs.runtime.device import device_named

    torch.set_num_threads(1)
    device_named("cpu")  # as the stages do
    print("\n".join(in_process(architecture, n)))
    print(f"\n{architecture.value}, {N0} + {n} draws unless said, one thread\n", flush=True)
    cores = os.cpu_count() or 1
    worlds = [(1, 1), (1, cores), *((int(word), 1) for word in processes.split(",") if word != "1")]
    with tempfile.TemporaryDirectory() as folder:
        made = launched(Path(folder), architecture, n, images, worlds, params)
        print("\n".join(efficiency(made, worlds)))
    print(f"\n{images} images certified, an epoch of AdvMacer on {IMAGES} images ({RECIPE}); engine folded, float32")
    print(f"with more processes or threads than cores they share: {cores} cores here")
    print(machine())


def in_process(architecture: Architecture, n: int) -> Iterator[str]:
    """Lines of the table of draws, images and members."""
    import torch

    from rs.ensemble.pool import PoolEntry, noisy_pool
    from rs.smoothing.classifier import SmoothedClassifier
    from rs.smoothing.settings import Draws

    networks = [network(architecture, torch.device("cpu"), seed)[0] for seed in range(4)]
    x = torch.rand(4, *architecture.shape, generator=torch.Generator().manual_seed(0))
    classifier = SmoothedClassifier(networks[0], CLASSES, SIGMA)

    def pool(members: int) -> None:
        entries = {str(number): PoolEntry((number,)) for number in range(members)}
        noisy_pool(networks[:members], CLASSES, SIGMA, x[0], Draws(N0, n, ALPHA)).certify(entries)

    kinds = {
        "draws": {k * n: lambda k=k: classifier.certify(x[0], N0, k * n, ALPHA) for k in (1, 2, 4)},
        "images": {k: lambda k=k: [classifier.certify(one, N0, n, ALPHA) for one in x[:k]] for k in (1, 2, 4)},
        "members": {k: lambda k=k: pool(k) for k in (1, 2, 4)},
    }
    yield "| | seconds | twice as many | four times as many |"
    yield "|---|---:|---:|---:|"
    for kind, ways in kinds.items():
        (size, first), *more = side_by_side(ways, ROUNDS).items()
        yield f"| {size:,} {kind} | {first:.2f} | " + " | ".join(f"x {value / first:.2f}" for _, value in more) + " |"


def build() -> nn.Module:
    """The classifier that processes certify; named to them as ``benchmarks.growth:build``."""
    import torch

    return network(Architecture(os.environ["GROWTH_ARCHITECTURE"]), torch.device("cpu"))[0]


def launched(
    folder: Path, architecture: Architecture, n: int, images: int, worlds: Sequence[World], params: Path
) -> dict[str, dict[World, float]]:
    """Seconds of certification and of a training epoch, by processes; checks that rows are the same at one thread."""
    from rs.data import prepared
    from rs.params import read_params
    from rs.storage import files

    packed = random_images(architecture.shape, IMAGES)
    arrays = (packed.images, packed.labels)
    prepared.save_images(folder / "data", "random", {"train": arrays, "test": arrays}, packed.meta.classes)
    values = read_params(params)
    defaults, recipe = _plain(values["defaults"]), _plain(values["recipes"][RECIPE])
    recipe["model"] = {"architecture": architecture.value}
    training = {"epochs": 2, "milestones": [], "eval_every": 0, "engine": "folded", "precision": "float32"}
    recipe["training"] = recipe.get("training", {}) | training
    recipe["certify"] = recipe.get("certify", {}) | {"n": n, "subset": {"first": images}, "engine": "folded"}
    files.write_json(folder / "params.json", {"defaults": defaults, "recipes": {RECIPE: recipe}})
    seconds: dict[str, dict[World, float]] = {"certification": {}, "training": {}}
    for world in worlds:
        name = f"{world[0]}-{world[1]}"
        rows, log = folder / f"{name}.tsv", folder / f"log-{name}"
        _stage(folder, architecture, world, "certify", "benchmarks.growth:build", "--sigma", SIGMA, "--out", rows)
        shares = [float(line["seconds"]) for line in _table(rows.with_suffix(".seconds.csv"))]
        seconds["certification"][world] = max(sum(shares[rank :: world[0]]) for rank in range(world[0]))
        if world[1] == 1 and rows.read_bytes() != (folder / "1-1.tsv").read_bytes():
            raise RuntimeError(f"{world[0]} processes made other rows than one")
        words = ("--sigma", SIGMA, "--seed", 0, "--out", folder / f"model-{name}", "--log", log)
        _stage(folder, architecture, world, "train", "advmacer", *words)
        first, second = (float(line["seconds"]) for line in _table(log / "timing.csv"))
        seconds["training"][world] = second - first
    return seconds


def _plain(values: Any) -> Any:
    """The parameters with a mapping from noise levels as its value here, since JSON has no keys that are numbers."""
    from rs.params import for_sigma

    return for_sigma(values, SIGMA, RECIPE)


def _stage(folder: Path, architecture: Architecture, world: World, stage: str, what: str, *words: object) -> None:
    processes, threads = world
    command: list[object] = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", processes]
    command += ["-m", "--", f"stages.{stage}", what, "--dataset", RECIPE, "--data", folder / "data", *words]
    command += ["--params", folder / "params.json", "--device", "cpu"]
    own = {"OMP_NUM_THREADS": str(threads), "RS_WORK": str(folder / "work"), "GROWTH_ARCHITECTURE": architecture.value}
    done = subprocess.run([*map(str, command)], check=False, env=os.environ | own, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def efficiency(seconds: dict[str, dict[World, float]], worlds: Sequence[World]) -> Iterator[str]:
    """Lines of the table of processes: seconds, how many times faster than one of one thread, and that a core."""
    cores = os.cpu_count() or 1
    yield "| processes x threads | " + " | ".join(f"{kind}, s | faster | a core" for kind in seconds) + " |"
    yield "|---:|" + "---:|---:|---:|" * len(seconds)
    for world in worlds:
        cells = []
        for found in seconds.values():
            faster = found[worlds[0]] / found[world]
            cells.append(f"{found[world]:.1f} | {faster:.2f} | {faster / min(world[0] * world[1], cores):.0%}")
        yield f"| {world[0]} x {world[1]} | {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
