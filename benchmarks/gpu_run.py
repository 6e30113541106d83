"""Train and certify CIFAR-10 on one GPU in minutes.

``python -m benchmarks.gpu_run --data FOLDER --out FOLDER`` runs the checks of
``benchmarks.gpu_check``, measures the forward passes per second of two networks, and then trains
and certifies a network for each level: on the first 500 test images, or as many as its time allows.
Each part is a command in a process of its own, so one that fails does not stop the others.
``--rehearse`` runs a small version, on a CPU too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML

from benchmarks.common import machine
from rs import params
from rs.command_line.shell import run

ADVMACER = {"draws": 2, "attack_draws": 1, "steps": 2, "lam": 1.0, "gamma": 6.0, "beta": 4.0}

LEVELS: list[tuple[str, float, dict[str, Any], float]] = [
    ("gaussian", 0.25, {}, 0.1),
    ("advmacer", 0.5, ADVMACER | {"epsilon": 1.5}, 0.25),
    ("advmacer", 0.25, ADVMACER | {"epsilon": 0.6}, 0.33),
    ("advmacer", 1.0, ADVMACER | {"epsilon": 1.5}, 0.5),
    ("consistency", 0.25, {}, 1.0),
]
"""Trainings in their order: method, noise level, its own parameters, share of the time left."""

REHEARSED = LEVELS[:2]

DATA: dict[str, Any] = {
    "source": "parquet",
    "validation_share": 0.02,
    "mean": [0.4914, 0.4822, 0.4465],
    "std": [0.2023, 0.1994, 0.2010],
}
TRAINING: dict[str, Any] = {
    "batch": 1024,
    "learning_rate": 0.2,
    "schedule": "linear",
    "ramp": 0.2,
    "clip_norm": 1.0,
    "ema_decay": 0.995,
    "nesterov": True,
    "weight_decay": 0.0005,
    "precision": "bfloat16",
    "engine": "compiled",
    "eval_every": 1000,
    "eval_images": 500,
    "eval_n0": 50,
    "eval_n": 500,
}
CERTIFY: dict[str, Any] = {
    "n": 100_000,
    "noise": "gaussian",
    "precision": "bfloat16",
    "engine": "compiled",
    "shortcut": True,
}
SMALL = {"precision": "float32", "engine": "plain"}
"""What differs in a rehearsal, where a training takes two seconds and five images are certified."""

START = 30
"""Seconds that a process needs to read the images and to compile."""

SECONDS_PER_EPOCH = 1.1
"""Approximate time of an epoch of AdvMacer on an H200."""

SECONDS_PER_IMAGE = 0.1
"""Upper bound of the time of a certificate of ``fastnet`` at n = 100,000 on an H200."""


def main(
    data: Annotated[Path, typer.Option(help="Folder of CIFAR-10 as parquet files.")],
    out: Annotated[Path, typer.Option(help="Folder for weights, histories and rows.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all parts together.")] = 9.5,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run a small version of the parts.")
    ] = False,
) -> None:
    """Run the parts one after the other, and print how each of them ended."""
    end = time.monotonic() + 60 * minutes
    out.mkdir(parents=True, exist_ok=True)
    on_device = ["--device", device]
    if not rehearse:
        run_part(["benchmarks.gpu_check", *on_device], end)
    for architecture in ["resnet8"] if rehearse else ["fastnet", "resnet110"]:
        run_part(["benchmarks.throughput", architecture, *on_device], end)
    options = ["--params", write_params(out, data, {})]
    prepared = str(out / "data")
    run_part(["stages.prepare", "cifar10", "--out", prepared, *options], end)
    options += ["--dataset", "cifar10", "--data", prepared, *on_device]
    for method, sigma, own, share in REHEARSED if rehearse else LEVELS:
        seconds = share * (end - time.monotonic())
        training = max(1.0, 0.65 * seconds - START)
        images = int((0.35 * seconds - START) / SECONDS_PER_IMAGE)
        images = min(max(images, 2), 500)
        if rehearse:
            training = 2.0
            images = 5
        write_params(out, data, recipe_of(method, own, training, images, rehearse))
        model = str(out / f"{method}-{sigma}")
        length = ["--sigma", str(sigma), "--seconds", str(training), "--log", f"{model}.log"]
        run_part(["stages.train", method, "--out", model, *length, *options], end)
        run_part(["stages.certify", model, "--out", f"{model}.tsv", *options], end)
    rows = sorted(map(str, out.glob("*.tsv")))
    if rows:
        show = ["rs.command_line.main", "show", *rows]
        subprocess.run([sys.executable, "-m", *show], check=True)
    print(machine(device))


def run_part(words: list[str], end: float) -> str:
    """Run a module in a process of its own until ``end``; print and return its last line."""
    began = time.monotonic()
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


def recipe_of(
    method: str, own: dict[str, Any], seconds: float, images: int, rehearse: bool
) -> dict[str, Any]:
    """Return a recipe whose attack reaches its full radius after 60% of the training time."""
    if method == "advmacer":
        own = own | {"warmup": max(1, round(0.6 * seconds / SECONDS_PER_EPOCH))}
    changes = SMALL if rehearse else {}
    training = TRAINING | changes
    certify = CERTIFY | changes | {"subset": {"first": images}}
    if rehearse:
        training |= {"batch": 32, "eval_images": 5, "eval_n": 100}
        certify["n"] = 1000
    return {
        "model": {"architecture": "resnet8" if rehearse else "fastnet"},
        method: own | {"training": training},
        "certify": certify,
    }


def write_params(out: Path, data: Path, recipe: dict[str, Any]) -> str:
    """Write the parameters of this project with this data set and recipe; return the path."""
    values = params.read_params(Path("params.yaml"))
    values["datasets"] = {"cifar10": DATA | {"root": str(data)}}
    values["recipes"] = {"cifar10": recipe}
    path = out / "params.yaml"
    with path.open("w") as file:
        YAML().dump(values, file)
    return str(path)


if __name__ == "__main__":
    run(main)
