"""Train and certify on one GPU in minutes: ``python -m benchmarks.gpu_run --data FOLDER --out
FOLDER``.

The order: the checks of ``benchmarks.gpu_check``, forward passes of two networks in three
precisions, a certificate of ResNet-110, then trainings, each followed by certificates of the first
500 test images, or of as many as its time allows. Each part runs in its own process, so one that
fails does not stop the others. Weights, histories and rows go to one folder, and the table comes
last. ``--rehearse`` runs a small version of everything, on a CPU too.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.common import Architecture, machine, network, timed
from rs.command_line.shell import run

if TYPE_CHECKING:
    import torch

    from rs.data.images import PackedImages
    from rs.models import InferenceEngine
    from rs.training.recipe import Recipe

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE, MEAN, STD = (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

START = 60
"""Seconds that a process needs to read the images and to compile."""

ENDING = 2
"""Seconds that a process needs to end, and the certificate that is under way."""

ADVMACER = {"draws": 2, "attack_draws": 1, "steps": 2, "lam": 1.0, "gamma": 6.0, "beta": 4.0}

LEVELS: list[tuple[str, float, dict[str, Any], float]] = [
    ("gaussian", 0.25, {}, 0.1),
    ("advmacer", 0.5, ADVMACER | {"epsilon": 1.5}, 0.25),
    ("advmacer", 0.25, ADVMACER | {"epsilon": 0.6}, 0.33),
    ("advmacer", 1.0, ADVMACER | {"epsilon": 1.5}, 0.5),
    ("consistency", 0.25, {}, 1.0),
]
"""Trainings in their order: method, noise level, what differs from the recipe, share of the time
that is left.
"""

TRAINING: dict[str, Any] = {
    "batch": 1024, "learning_rate": 0.2, "schedule": "linear", "ramp": 0.2, "clip_norm": 1.0, "ema_decay": 0.995,
    "nesterov": True, "weight_decay": 0.0005, "precision": "bfloat16", "engine": "compiled", "eval_every": 1000,
    "eval_images": 500, "eval_n0": 50, "eval_n": 500,
}  # fmt: skip

SECONDS_PER_EPOCH = 1.1
"""Approximate time of an epoch of AdvMacer on an H200."""

REHEARSED_SECONDS, REHEARSED_IMAGES = 2.0, 5
"""Training of a level in a rehearsal, and how many images it certifies."""

REHEARSAL: dict[str, Any] = {
    "batch": 32,
    "precision": "float32",
    "engine": "plain",
    "eval_images": 5,
    "eval_n": 100,
}
"""Settings of a training that differ in a rehearsal."""


def main(
    data: Annotated[Path, typer.Option(help="Folder of CIFAR-10 as parquet files.")],
    out: Annotated[Path, typer.Option(help="Folder for weights, histories and rows.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all parts together.")] = 9.5,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run a small version of every part.")
    ] = False,
    part: Annotated[str | None, typer.Option(help="Run this part alone, as JSON.")] = None,
) -> None:
    """Run the parts one after the other, and print the result of each."""
    if part is not None:
        settings = json.loads(part)
        print(PARTS[settings.pop("part")](data, out, device, **settings))
        return
    end = time.monotonic() + 60 * minutes
    lines = []
    for settings in parts(rehearse):
        settings["seconds"] = (end - time.monotonic()) * settings.pop("share")
        began = time.monotonic()
        said = in_a_process(data, out, device, settings, end - began)
        lines.append(f"{time.monotonic() - began:6.1f} s  {label(settings)}: {said}")
        print(lines[-1], flush=True)
    print("\n".join(["", *lines]))
    print(machine(device))


def parts(rehearse: bool) -> list[dict[str, Any]]:
    """Return the settings of all parts in order; ``share`` is a part's share of the time that is
    left before it.
    """
    made: list[dict[str, Any]] = [] if rehearse else [{"part": "check", "share": 0.1}]
    for name in ("fastnet", "resnet110"):
        made.append(
            {"part": "throughput", "architecture": "resnet8" if rehearse else name, "share": 0.1}
        )
    big = "resnet8" if rehearse else "resnet110"
    made.append({"part": "certificate", "architecture": big, "small": rehearse, "share": 0.1})
    for method, sigma, own, share in LEVELS:
        named = {"method": method, "sigma": sigma, "hyperparameters": own}
        made.append({"part": "level", "small": rehearse, "share": share, **named})
    return made


def label(settings: dict[str, Any]) -> str:
    """Return the name of a part for the table."""
    words = (settings.get(name) for name in ("part", "method", "architecture", "sigma"))
    return " ".join(str(word) for word in words if word is not None)


def in_a_process(data: Path, out: Path, device: str, settings: dict[str, Any], limit: float) -> str:
    """Run one part in a process of its own, and return its last line, or how it failed."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_run",
        "--data",
        str(data),
        "--out",
        str(out),
        "--device",
        device,
    ]
    try:
        done = subprocess.run(
            [*command, "--part", json.dumps(settings)],
            capture_output=True,
            text=True,
            timeout=max(limit, 1.0),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "failed: it ran past the time of all parts"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return ("" if done.returncode == 0 else "failed: ") + (lines or ["it printed nothing"])[-1]


def load_images(data: Path) -> tuple[PackedImages, PackedImages, PackedImages]:
    """Return the images to train on, the 2% of the train split that are held out, and the test
    images.
    """
    from rs.data.images import PackedImages
    from rs.data.parquet import read_parquet
    from rs.data.prepared import Meta, images_fingerprint

    raw = read_parquet(data, CLASSES)
    meta = Meta(
        name="cifar10", classes=CLASSES, shape=SHAPE, mean=MEAN, std=STD, source=raw.source,
        sizes={split: len(labels) for split, (_, labels) in raw.splits.items()},
        sha256={split: images_fingerprint(*arrays) for split, arrays in raw.splits.items()},
    )  # fmt: skip
    train, validation = PackedImages(meta, *raw.splits["train"]).split(0.02)
    return train, validation, PackedImages(meta, *raw.splits["test"])


def check(data: Path, out: Path, device: str, *, seconds: float) -> str:
    """Check what only a GPU can show."""
    from benchmarks import gpu_check

    gpu_check.main(device)
    return "all checks passed"


def level(
    data: Path,
    out: Path,
    device: str,
    *,
    method: str,
    sigma: float,
    hyperparameters: dict[str, Any],
    seconds: float,
    small: bool,
) -> str:
    """Train a method at a noise level and certify test images, both within ``seconds``."""
    import torch

    from rs.runtime.device import device_named
    from rs.training.recipe import RunOptions
    from rs.training.run import train_on

    began = time.monotonic()
    place = device_named(device)
    train, validation, test = load_images(data)
    training = REHEARSED_SECONDS if small else max(1.0, 0.65 * seconds - START)
    made = recipe(method, sigma, hyperparameters, training, small)
    name = f"{method}-{sigma}"
    options = RunOptions(sigma=sigma, seed=0, device=place, seconds=training)
    train_on(made, train, validation, options, out=out / name, log=out / f"{name}.log")
    left = max(1.0, 0.95 * seconds - (time.monotonic() - began) - ENDING)
    with torch.inference_mode():
        said = certify(out, name, test, place, left, small)
    history = list(csv.DictReader((out / f"{name}.log" / "history.csv").read_text().splitlines()))
    return f"{training:.0f} s of training, {history[-1]['epoch']} epochs; {said}"


def recipe(
    method: str, sigma: float, hyperparameters: dict[str, Any], seconds: float, small: bool
) -> Recipe:
    """Return a recipe whose attack reaches its full radius after 60% of the time, at the speed of
    an H200.
    """
    from rs import params
    from rs.methods import method_class
    from rs.training.recipe import training_recipe

    published = training_recipe(params.read_params(Path("params.yaml")), "cifar10", method, sigma)
    own = published.hyperparameters | hyperparameters
    if "warmup" in own:
        own["warmup"] = max(1, round(0.6 * seconds / SECONDS_PER_EPOCH))
    return replace(
        published,
        architecture="resnet8" if small else "fastnet",
        hyperparameters=own,
        method=params.validate(method_class(method), own, method, {}),
        training=replace(published.training, **(TRAINING | (REHEARSAL if small else {}))),
    )


def certify(
    out: Path, name: str, images: PackedImages, device: torch.device, seconds: float, small: bool
) -> str:
    """Certify the first 500 test images, or as many as the time allows, and write a row for each."""
    import numpy as np

    from rs.certification.inference import optimize_for_inference
    from rs.models.checkpoint import load_model
    from rs.smoothing.classifier import SmoothedClassifier

    model, card = load_model(out / name)
    n, batch = (1_000, 100) if small else (100_000, 10_000)
    engine: InferenceEngine = "folded" if small else "compiled"
    made = optimize_for_inference(model, engine, "bfloat16", SHAPE, device, batch)
    classifier = SmoothedClassifier(
        made.module,
        len(CLASSES),
        card.sigma,
        precision=made.precision,
        noise="gaussian",
        batch=batch,
    )
    end = time.monotonic() + seconds
    scores = []
    with (out / f"{name}.tsv").open("w", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow(["idx", "label", "predict", "radius", "correct", "counts0", "counts"])
        for index in range(REHEARSED_IMAGES if small else 500):
            if time.monotonic() > end:
                break
            label = int(images.labels[index])
            x = images.pixels(index).to(device)
            one = classifier.certify(x, 100, n, 0.001, seed=0, index=index, label=label)
            correct = int(one.predict == label)
            votes = [",".join(map(str, counts.tolist())) for counts in (one.counts0, one.counts)]
            rows.writerow([index, label, one.predict, one.radius, correct, *votes])
            scores.append(one.radius * correct)
            file.flush()
    error = np.std(scores, ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else float("nan")
    return f"ACR {np.mean(scores):.4f} +- {error:.4f} on {len(scores)} test images, {made.engine}"


def throughput(data: Path, out: Path, device: str, *, architecture: str, seconds: float) -> str:
    """Return forward passes per second in each precision that the device has, without compiling."""
    import torch

    from rs.models.backend import DTYPES, layout
    from rs.runtime.device import device_named
    from rs.smoothing.classifier import autocast

    place = device_named(device)
    model, _ = network(Architecture(architecture), place)
    images = torch.rand(2700 if place.type == "cuda" else 50, *SHAPE, device=place)
    said = []
    for precision, dtype in DTYPES.items():
        if precision == "tf32" and place.type != "cuda":
            continue
        with torch.inference_mode(), autocast(place, precision):
            order = layout(place, dtype)
            model = model.to(memory_format=order)
            x = images.contiguous(memory_format=order)
            model(x)  # to warm up
            passes = timed(partial(model, x), place.type)
        said.append(f"{precision} {len(x) / passes:,.0f}/s")
    return ", ".join(said)


def certificate(
    data: Path, out: Path, device: str, *, architecture: str, small: bool, seconds: float
) -> str:
    """Return the seconds of one certificate of a network of random weights, in bfloat16."""
    from rs.certification.inference import optimize_for_inference
    from rs.runtime.device import device_named
    from rs.smoothing.classifier import SmoothedClassifier

    model, x = network(Architecture(architecture), device_named(device))
    n, batch = (500, 50) if small else (100_000, 2700)
    engine: InferenceEngine = "folded" if small else "compiled"
    made = optimize_for_inference(model, engine, "bfloat16", SHAPE, x.device, batch)
    classifier = SmoothedClassifier(
        made.module, len(CLASSES), 0.25, precision=made.precision, noise="gaussian", batch=batch
    )
    classifier.certify(x, 100, n, 0.001)
    return f"{timed(lambda: classifier.certify(x, 100, n, 0.001, index=1), device):.2f} s at n = {n:,}, {made.engine}"


PARTS: dict[str, Callable[..., str]] = {
    "check": check,
    "throughput": throughput,
    "certificate": certificate,
    "level": level,
}

if __name__ == "__main__":
    run(main)
