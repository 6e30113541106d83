"""One cell of the pipeline: certify a model, of ours or of the user's, into its row file."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rs import artefacts, certify, code, data, ensemble_card, params
from rs.certify import Settings
from rs.data import Images
from rs.device import suit_threads
from rs.errors import InputError
from rs.smoothing import SmoothedClassifier
from rs.subset import select, subset_name


def certification_settings(values: dict[str, Any], dataset: str, chosen: dict[str, Any] | None = None) -> Settings:
    """Read ``recipes.DATASET.certify``; values of ``chosen`` that are not ``None`` take the place of its own."""
    where = f"recipes.{dataset}.certify"
    recipe = params.check(dict[str, Any], params.section(values, "recipes", dataset, "certify"), where)
    overrides = {key: value for key, value in (chosen or {}).items() if value is not None}
    return params.check(Settings, {**recipe, **overrides}, where)


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
        model: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
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
    indices = select(len(images), settings.subset)
    identity = {
        "model": model,
        "classifier": artefacts.fingerprint(base),
        **({"sources": _sources(model, base)} if _is_function(model) else {}),
        "dataset": images.meta.name,
        "classes": len(images.meta.classes),
        "images": images.fingerprint,
        "sigma": sigma,
        **asdict(settings),
        "subset": subset_name(settings.subset),
        "device": device.type,
        "rows": len(indices),
        "code": code.version("stages/certify.py"),
        "versions": artefacts.versions(),
    }
    certify.certify_to(out, classifier, images, indices, settings, device, identity)


def load_classifier(model: str, images: Images) -> tuple[nn.Module, float | None]:
    """Load a model folder or an ensemble, or call ``module:function``; also its training noise, where it says so.

    Args:
        model: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
        images: What it is to classify.
    Raises:
        InputError: If there is no such model, or it is not one for these images.
    """
    path = Path(model)
    if _is_function(model):
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


def _is_function(model: str) -> bool:
    return ":" in model and not Path(model).exists()


def _sources(spec: str, base: nn.Module) -> str:
    """SHA-256 of the files a user's model is written in: that of its function, and those of its parts but torch's.

    Its weights and plain attributes are in the fingerprint; what else its code reads is not known here.
    """
    owners = {spec.partition(":")[0]} | {type(module).__module__ for module in base.modules()}
    modules = [sys.modules[name] for name in sorted(owners) if name.split(".")[0] not in ("torch", "torchvision")]
    paths = [Path(module.__file__) for module in modules if getattr(module, "__file__", None)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


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
    try:
        inspect.signature(getattr(module, function)).bind()
    except (TypeError, ValueError) as error:
        raise InputError(f"{spec} must be a function that needs no argument: {error}") from error
    made = getattr(module, function)()  # outside the `try`: what goes wrong in it keeps its traceback
    if not isinstance(made, nn.Module):
        raise InputError(f"{spec} must return an nn.Module that takes images in [0, 1], got {type(made).__name__}")
    return made
