"""Train and certify CIFAR-10 on one GPU in minutes.

``python -m benchmarks.gpu_run levels --data FOLDER --out FOLDER`` trains AdvMacer at three noise
levels, and certifies the first 500 test images at n = 100,000. ``methods`` in place of ``levels``
trains five methods for equal seconds, three seeds each, and certifies them and their ensembles.

Both begin with ``benchmarks.gpu_check``. The parts of a round are commands that run side by side,
each in a process of its own, so one that fails does not stop the others. ``--rehearse`` runs a
small version, on a CPU too.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML

from benchmarks.common import machine
from rs import params
from rs.command_line.shell import run

DATASET = "cifar10-gpu"

ADVMACER = {"draws": 2, "attack_draws": 1, "steps": 2, "lam": 1.0, "gamma": 6.0, "beta": 4.0}

LEVELS: list[tuple[float, dict[str, Any], float]] = [
    (0.5, ADVMACER | {"epsilon": 1.5}, 1 / 3),
    (0.25, ADVMACER | {"epsilon": 0.6}, 1 / 2),
    (1.0, ADVMACER | {"epsilon": 1.5}, 1.0),
]
"""Trainings of AdvMacer: noise level, its own parameters, share of the time left for training."""

METHODS = ["gaussian", "smoothadv", "macer", "consistency", "advmacer"]
SIGMA = "0.5"
SEEDS = [0, 1, 2]

DATA: dict[str, Any] = {
    "source": "parquet",
    "validation_share": 0.02,
    "mean": [0.4914, 0.4822, 0.4465],
    "std": [0.2023, 0.1994, 0.2010],
}
TRAINING: dict[str, Any] = {
    "batch": 1024,
    "precision": "bfloat16",
    "engine": "compiled",
    "eval_every": 1000,
    "eval_images": 500,
    "eval_n0": 50,
    "eval_n": 500,
}
LONGER: dict[str, Any] = {
    "learning_rate": 0.2,
    "schedule": "linear",
    "ramp": 0.2,
    "clip_norm": 1.0,
    "ema_decay": 0.995,
    "nesterov": True,
    "weight_decay": 0.0005,
}
"""Settings of the trainings of ``levels``; ``methods`` has those of the recipe ``cifar10-cpu``."""

CERTIFY: dict[str, Any] = {
    "noise": "gaussian",
    "precision": "bfloat16",
    "engine": "compiled",
    "shortcut": True,
}

START = 25
"""Seconds that a process needs to read the images and to evaluate the network at the end."""

ENSEMBLES = 150
"""Seconds to certify 15 networks on 2,000 images at n = 1,000, alone and in ensembles."""

LEVEL = 60
"""Seconds to certify 500 images at n = 100,000."""

SECONDS_PER_EPOCH = 1.1
"""Approximate time of an epoch of the AdvMacer of ``levels`` on an H200."""


class Plan(StrEnum):
    """What to train."""

    levels = "levels"
    methods = "methods"


@dataclass(frozen=True)
class Run:
    """A run of either plan."""

    data: Path
    out: Path
    device: str
    end: float  # of time.monotonic()
    rehearse: bool

    @property
    def place(self) -> str:
        """The folder of the run, as a word of a command."""
        return shlex.quote(str(self.out))

    def left(self) -> float:
        """Return the seconds until the end."""
        return self.end - time.monotonic()

    def write_params(self, name: str, values: dict[str, Any], recipe: dict[str, Any]) -> str:
        """Write the project's parameters with this recipe and these values; return the path."""
        written = params.read_params(Path("params.yaml")) | values
        written["datasets"] = {DATASET: DATA | {"root": str(self.data)}}
        written["recipes"][DATASET] = recipe
        path = self.out / f"{name}.yaml"
        yaml = YAML()
        yaml.representer.ignore_aliases = lambda _: True
        with path.open("w") as file:
            yaml.dump(written, file)
        return f"--params {shlex.quote(str(path))}"

    def recipe(self, training: dict[str, Any], certify: dict[str, Any]) -> dict[str, Any]:
        """Return a recipe of ``fastnet``, or of a small network in a rehearsal."""
        network = "fastnet"
        training = TRAINING | training
        certify = CERTIFY | certify
        if self.rehearse:
            network = "resnet8"
            training |= {"batch": 32, "precision": "float32", "engine": "plain", "eval_images": 5}
            certify |= {"n": 200, "precision": "float32", "engine": "plain"}
            certify["subset"] = {"first": 5}
        return {"model": {"architecture": network}, "training": training, "certify": certify}

    def train(self, options: str, method: str, sigma: str, seed: int, seconds: float) -> str:
        """Return the command of a training."""
        cell = f"{DATASET}/{sigma}/{method}/{seed}"
        return (
            f"stages.train {method} {options} {self.images} --sigma {sigma} --seed {seed} "
            f"--seconds {2 if self.rehearse else max(1, round(seconds))} "
            f"--out {self.place}/models/{cell} --log {self.place}/logs/{cell}"
        )

    def certify(self, options: str, method: str, sigma: str) -> str:
        """Return the command that certifies the network of seed 0."""
        place = f"{DATASET}/{sigma}"
        return (
            f"stages.certify {self.place}/models/{place}/{method}/0 {options} {self.images} "
            f"--out {self.place}/results/{place}/{method}-0.tsv "
        )

    @property
    def images(self) -> str:
        """Options of stages that read images."""
        return f"--dataset {DATASET} --data {self.place}/data --device {self.device}"

    def side_by_side(self, parts: list[str]) -> None:
        """Run commands at the same time, until all have ended."""
        with ThreadPoolExecutor(len(parts)) as threads:
            list(threads.map(lambda part: run_part(part, self.end), parts))


def main(
    plan: Annotated[Plan, typer.Argument(help="What to train.")],
    data: Annotated[Path, typer.Option(help="Folder of CIFAR-10 as parquet files.")],
    out: Annotated[Path, typer.Option(help="Folder for weights, histories and rows.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all parts together.")] = 9.5,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run a small version of the parts.")
    ] = False,
) -> None:
    """Run the parts, and print how each of them ended."""
    out.mkdir(parents=True, exist_ok=True)
    one = Run(data, out, device, time.monotonic() + 60 * minutes, rehearse)
    options = one.write_params("data", {}, {})
    one.side_by_side([f"stages.prepare {DATASET} --out {one.place}/data {options}"])
    if plan is Plan.levels:
        train_levels(one)
    else:
        train_methods(one)
    rows = sorted(map(str, (out / "results").rglob("*.tsv")))
    if rows:
        show = ["rs.command_line.main", "show", *rows]
        subprocess.run([sys.executable, "-m", *show], check=True)
    print(machine(device))


def train_levels(one: Run) -> None:
    """Train AdvMacer level after level; certify each while the next one trains."""
    if not one.rehearse:
        one.side_by_side([f"benchmarks.gpu_check --device {one.device}"])
    certificates: list[str] = []
    for sigma, own, share in LEVELS[:2] if one.rehearse else LEVELS:
        seconds = share * (one.left() - LEVEL) - START
        # The attack reaches its full radius after 60% of the training.
        method = own | {"warmup": max(1, round(0.6 * seconds / SECONDS_PER_EPOCH))}
        recipe = one.recipe(LONGER, {"n": 100_000, "subset": {"first": 500}})
        options = one.write_params(f"levels-{sigma}", {}, recipe | {"advmacer": method})
        training = one.train(options, "advmacer", str(sigma), 0, seconds)
        one.side_by_side([training, *certificates])
        certificates = [one.certify(options, "advmacer", str(sigma))]
    one.side_by_side(certificates)


def train_methods(one: Run) -> None:
    """Train each method with all seeds at the same time; then certify them and ensembles."""
    methods = ["gaussian", "advmacer"] if one.rehearse else METHODS
    combined = {"combinations": ["average", "optimal"]}
    ensembles = {f"{method} x3": {"members": {method: 3}} | combined for method in methods}
    for other in methods[:-1]:
        members = {"advmacer": 1, other: 2}
        ensembles[f"advmacer x1 + {other} x2"] = {"members": members} | combined
    recipe = one.recipe({}, {"n": 1000, "subset": {"first": 2000}}) | {
        "base": "cifar10-cpu",
        "macer": {"training": {"batch": 256}},  # of images, with four noisy copies each
        "weights": {"images": 500, "copies": 2},
    }
    grid = {
        "dataset": DATASET,
        "sigmas": [float(SIGMA)],
        "methods": methods,
        "seeds": SEEDS[:1],
        "members": methods,
        "member_seeds": SEEDS[1:],
        "ensembles": ensembles,
    }
    options = one.write_params("methods", grid, recipe)
    if not one.rehearse:
        warm = [one.train(options, method, SIGMA, 99, 1) for method in methods]  # to compile
        one.side_by_side([f"benchmarks.gpu_check --device {one.device}", *warm])
    seconds = (one.left() - ENSEMBLES) / len(methods) - START
    for method in methods:
        one.side_by_side([one.train(options, method, SIGMA, seed, seconds) for seed in SEEDS])
    place = f"{DATASET}/{SIGMA}"
    on_device = f"--data {one.place}/data --device {one.device}"
    ensembles_of = f"{DATASET} {options} --ensembles {one.place}/ensembles/{place}"
    weights = f"{one.place}/weights/{place}"
    chain = [
        f"stages.ensemble {DATASET} {options} --sigma {SIGMA} --models {one.place}/models/{place} "
        f"--out {one.place}/ensembles/{place}",
        f"stages.weights {ensembles_of} {on_device} --out {weights} "
        f"--seconds {one.place}/logs/{place}/weights.csv",
        f"stages.certify_ensembles {ensembles_of} {on_device} --weights {weights} "
        f"--out {one.place}/results/{place}/pool --times {one.place}/logs/{place}",
    ]
    one.side_by_side([chain[0], *(one.certify(options, method, SIGMA) for method in methods)])
    for part in chain[1:]:
        one.side_by_side([part])


def run_part(command: str, end: float) -> str:
    """Run a module in a process of its own until ``end``; print and return its last line."""
    began = time.monotonic()
    words = shlex.split(command)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            timeout=max(end - began, 1.0),
            check=False,
        )
    except subprocess.TimeoutExpired:
        result = "failed: it ran past the time of all parts"
    else:
        text = done.stdout if done.returncode == 0 else done.stderr
        result = (text.strip().splitlines() or ["done"])[-1]
        if done.returncode != 0:
            result = f"failed: {result}"
    print(f"{time.monotonic() - began:6.1f} s  {' '.join(words[:2])}: {result}", flush=True)
    return result


if __name__ == "__main__":
    run(main)
