"""One cell of the pipeline: train a model into its folder."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from rs.data import images
from rs.data.format import Images
from rs.models import checkpoint
from rs.models.checkpoint import Card
from rs.runtime import arithmetic, code_fingerprint, processes, scratch
from rs.runtime.device import limit_threads
from rs.storage import files
from rs.training.recipe import Recipe
from rs.training.settings import HISTORY, TIMING
from rs.training.trainer import Trainer, initial_seed


def train_cell(
    recipe: Recipe,
    folder: Path,
    *,
    sigma: float,
    seed: int,
    device: torch.device,
    out: Path,
    log: Path,
    workers: int = 0,
    seconds: float | None = None,
) -> None:
    """Train a recipe on the data set in ``folder``.

    Writes the model into ``out`` (a function of the parameters alone, on one kind of device), and into ``log`` its
    ``history.csv``, its ``timing.csv`` (training seconds so far) and ``provenance.json`` (git commit, seconds).
    A training that was killed continues from its last checkpoint. Under torchrun the processes train one model
    together, and the first one writes; the work folder must then be one that all of them see.

    Args:
        out: A new folder, or that of an earlier training of the same method, data set, noise and seed.
        seconds: End with the epoch in which so many seconds of training have passed, if given; what the model is then
            depends on the machine, and the card says how many epochs it had.
    Raises:
        InputError: If something else would be overwritten, or as what is called says.
    """
    train, test = images.load(folder, "train"), images.load(folder, "test")
    limit_threads(train.meta.shape)
    card = _card(recipe, train, sigma, seed, device)
    checkpoint.check_folder(out, card)
    _check_logs(log)
    running = code_fingerprint.version(
        "stages/train.py", method=recipe.name
    )  # a training is not continued by other code
    identity = {"train": asdict(card), "images": train.fingerprint, "code": running}
    if seconds is not None:
        identity["seconds"] = seconds
    rank, world = processes.rank_and_world_size()
    first = scratch.folder(identity) if rank == 0 else nullcontext(scratch.root() / scratch.key(identity))
    with first as unfinished, processes.process_group("nccl" if device.type == "cuda" else "gloo"):
        model = card.build(initial_seed(seed)).to(device)
        how = {"sigma": sigma, "seed": seed, "device": device, "workers": workers}
        how |= {"place": (rank, world), "seconds": seconds}
        done = Trainer(model, recipe.method, train, test, recipe.training, **how).run(unfinished / "checkpoint.pt")
        if rank == 0:
            checkpoint.save(out, model, replace(card, epochs=done.epoch))
            files.write_csv(log / "history.csv", HISTORY, done.history)
            files.write_csv(log / "timing.csv", TIMING, done.timing)
            files.write_json(log / "provenance.json", _provenance(done.seconds, device, world))


def _check_logs(log: Path) -> None:
    """Check that the logs of a training may be written into the folder ``log``."""
    for name, is_ours in (
        ("history.csv", files.begins_with(",".join(HISTORY) + "\n")),
        ("timing.csv", files.begins_with(",".join(TIMING) + "\n")),
        ("provenance.json", files.is_json_with("training_seconds")),
    ):
        files.check_output(log / name, "the log of a training", is_ours, option="--log")


def _card(recipe: Recipe, train: Images, sigma: float, seed: int, device: torch.device) -> Card:
    meta = train.meta
    return Card(
        architecture=recipe.architecture,
        shape=list(meta.shape),
        classes=list(meta.classes),
        mean=list(meta.mean),
        std=list(meta.std),
        dataset=meta.name,
        method=recipe.name,
        hyperparameters=recipe.hyperparameters,
        training=asdict(recipe.training),
        sigma=sigma,
        seed=seed,
        epochs=recipe.training.epochs,
        device=device.type,
        arithmetic=arithmetic.current(),
        versions=checkpoint.versions(),
    )


def _provenance(seconds: float, device: torch.device, world: int) -> dict[str, Any]:
    """What may differ between two runs that make the same model, but for rounding."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"git_commit": _commit(), "training_seconds": seconds, "device": name, "processes": world}


def _commit() -> str | None:
    """Git commit of the current folder; ``None`` outside a repository or where there is no git."""
    if shutil.which("git") is None:
        return None
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip() if git.returncode == 0 else None
