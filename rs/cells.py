"""One cell of the pipeline: train a model into its folder, or certify one into its row file."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rs import artefacts, certify, data, files, work
from rs.artefacts import Card
from rs.data import Images
from rs.errors import InputError
from rs.recipe import Recipe
from rs.smoothing import SmoothedClassifier
from rs.subset import select, subset_name
from rs.train import HISTORY, TIMING, Trainer, initial_seed, write_csv


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
) -> None:
    """Train a recipe on the data set in ``folder``.

    Writes the model into ``out`` (a function of the parameters alone, on one kind of device), and into ``log`` its
    ``history.csv``, its ``timing.csv`` (training seconds so far) and ``provenance.json`` (git commit, seconds).
    A training that was killed continues from its last checkpoint.
    """
    train, test = data.load(folder, "train"), data.load(folder, "test")
    card = _card(recipe, train, sigma, seed, device)
    identity = {"train": asdict(card), "images": train.fingerprint}
    with work.folder(identity) as unfinished:
        model = card.build(initial_seed(seed)).to(device)
        trainer = Trainer(
            model, recipe.method, train, test, recipe.training, sigma=sigma, seed=seed, device=device, workers=workers
        )
        done = trainer.run(unfinished / "checkpoint.pt")
        artefacts.save(out, model, card)
        write_csv(log / "history.csv", HISTORY, done.history)
        write_csv(log / "timing.csv", TIMING, done.timing)
        files.write_json(log / "provenance.json", _provenance(done.seconds, device))


def certify_cell(
    model: str,
    folder: Path,
    settings: certify.Settings,
    *,
    sigma: float | None,
    device: torch.device,
    batch: int | None,
    out: Path,
) -> None:
    """Certify a model on the test split of the data set in ``folder``; the rows go to ``out``.

    Args:
        model: A model folder, or ``module:function`` that returns an ``nn.Module``.
        sigma: Noise of the certificate; ``None`` takes that of the model folder.
    """
    images = data.load(folder, "test")
    base, trained_sigma = load_classifier(model, images)
    sigma = sigma if sigma is not None else trained_sigma
    if sigma is None:
        raise InputError(f"{model} does not say at which noise it was trained; give --sigma")
    classifier = SmoothedClassifier(
        base.to(device), len(images.meta.classes), sigma, precision=settings.precision, batch=batch
    )
    identity = {
        "model": model,
        "classifier": artefacts.fingerprint(base),
        "dataset": images.meta.name,
        "images": images.fingerprint,
        "sigma": sigma,
        **asdict(settings),
        "subset": subset_name(settings.subset),
        "device": device.type,
        "versions": artefacts.versions(),
    }
    certify.certify_to(out, classifier, images, select(len(images), settings.subset), settings, device, identity)


def load_classifier(model: str, images: Images) -> tuple[nn.Module, float | None]:
    """Load a model folder, or call ``module:function``; also the noise it was trained with, where it says so.

    Raises:
        InputError: If there is no such model, or it is not one for these images.
    """
    if ":" in model and not Path(model).exists():
        return _from_function(model), None
    base, card = artefacts.load(Path(model))
    if card.shape != list(images.meta.shape) or card.classes != list(images.meta.classes):
        raise InputError(
            f"{model} must be a classifier of {images.meta.name} ({len(images.meta.classes)} classes, shape "
            f"{list(images.meta.shape)}), but it is one of {card.dataset} ({len(card.classes)} classes, shape {card.shape})"
        )
    return base, card.sigma


def _from_function(spec: str) -> nn.Module:
    """Import ``module:function`` (the current folder included) and call the function."""
    module_name, _, function = spec.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module_name), function)()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"the model must be a model folder or an importable module:function, got {spec!r}: {error}"
        ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{spec} must return an nn.Module that takes images in [0, 1], got {type(made).__name__}")
    return made


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
        versions=artefacts.versions(),
    )


def _provenance(seconds: float, device: torch.device) -> dict[str, Any]:
    """What may differ between two runs that make the same model."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    commit = git.stdout.strip() if git.returncode == 0 else None
    return {"git_commit": commit, "training_seconds": seconds, "device": name}
