"""One cell of the pipeline: certify a model, of ours or of the user's, into its row file."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rs import artefacts, certify, data, ensemble_card, params
from rs.certify import Settings
from rs.data import Images
from rs.device import suit_threads
from rs.errors import InputError
from rs.smoothing import SmoothedClassifier
from rs.subset import select, subset_name


def certification_settings(values: dict[str, Any], dataset: str, chosen: dict[str, Any] | None = None) -> Settings:
    """Read ``recipes.DATASET.certify``; values of ``chosen`` that are not ``None`` take the place of its own."""
    recipe = params.section(values, "recipes", dataset, "certify")
    overrides = {key: value for key, value in (chosen or {}).items() if value is not None}
    return params.check(Settings, {**recipe, **overrides}, f"recipes.{dataset}.certify")


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
    suit_threads(images.meta.shape)
    base, trained_sigma = load_classifier(model, images)
    sigma = sigma if sigma is not None else trained_sigma
    if sigma is None:
        raise InputError(f"{model} does not say at which noise it was trained; give --sigma")
    classifier = SmoothedClassifier(
        base.to(device),
        len(images.meta.classes),
        sigma,
        precision=settings.precision,
        batch=batch,
        undecided=getattr(base, "undecided", False),
    )
    identity = {
        "model": model,
        "classifier": artefacts.fingerprint(base),
        "dataset": images.meta.name,
        "classes": len(images.meta.classes),
        "images": images.fingerprint,
        "sigma": sigma,
        **asdict(settings),
        "subset": subset_name(settings.subset),
        "device": device.type,
        "versions": artefacts.versions(),
    }
    certify.certify_to(out, classifier, images, select(len(images), settings.subset), settings, device, identity)


def load_classifier(model: str, images: Images) -> tuple[nn.Module, float | None]:
    """Load a model folder or an ensemble, or call ``module:function``; also its training noise, where it says so.

    Args:
        model: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
        images: What it is to classify.
    Raises:
        InputError: If there is no such model, or it is not one for these images.
    """
    path = Path(model)
    if ":" in model and not path.exists():
        return _from_function(model), None
    if path.suffix == ".json" and not path.is_dir():
        base, card, classes, shape = ensemble_card.load(path)
    else:
        base, card = artefacts.load(path)
        classes, shape = card.classes, card.shape
    if shape != list(images.meta.shape) or classes != list(images.meta.classes):
        raise InputError(
            f"{model} must be a classifier of {images.meta.name} ({len(images.meta.classes)} classes, shape "
            f"{list(images.meta.shape)}), but it is one of {card.dataset} ({len(classes)} classes, shape {shape})"
        )
    return base, card.sigma


def _from_function(spec: str) -> nn.Module:
    """Import ``module:function`` (the current folder included) and call the function."""
    module_name, _, function = spec.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    must = f"the model must be a model folder or an importable module:function, got {spec!r}"
    if not all(part.isidentifier() for part in [*module_name.split("."), function]):
        raise InputError(f"{must}; write it as package.module:function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"{must}: {error}") from error
    if not callable(getattr(module, function, None)):
        raise InputError(f"{must}: {module_name} has no function {function}")
    made = getattr(module, function)()  # outside the `try`: what goes wrong in it keeps its traceback
    if not isinstance(made, nn.Module):
        raise InputError(f"{spec} must return an nn.Module that takes images in [0, 1], got {type(made).__name__}")
    return made
