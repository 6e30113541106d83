"""A base classifier by its name: a model folder, the file of an ensemble, or a function of the user's."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from rs.certification.inference import arrange
from rs.data.format import Meta, described
from rs.ensemble import spec as ensemble_spec
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import Engine
from rs.smoothing.classifier import Precision, SmoothedClassifier


@dataclass(frozen=True)
class Classifier:
    """A base classifier and what it says of itself."""

    name: str  # what it was loaded by
    module: nn.Module  # images (N, C, H, W) -> logits (N, K), in eval mode, on the CPU
    dataset: str | None  # what a user's function makes says none of these
    classes: tuple[str, ...] | None
    shape: tuple[int, int, int] | None  # (C, H, W) of an image
    sigma: float | None  # noise it was trained with, in pixels of [0, 1]
    scope: str  # of an ensemble's weights (``rs.storage.certificate_rows.SCOPES``), "model" for a single model

    def smoothed(
        self,
        sigma: float | None,
        *,
        device: torch.device,
        precision: Precision,
        engine: Engine = "plain",
        batch: int | None = None,
    ) -> SmoothedClassifier:
        """Smooth it with noise of ``sigma``, or of its training if ``None``; it moves to ``device``.

        Raises:
            InputError: If neither says the noise.
        """
        noise = sigma if sigma is not None else self.sigma
        if noise is None:
            raise InputError(
                f"the noise of the certificate must be known, but {self.name} does not say it; give --sigma"
            )
        made = arrange(self.module, engine, precision, self.shape, device, batch)
        return SmoothedClassifier(
            made.module,
            len(self.classes),
            noise,
            precision=made.precision,
            batch=made.batch,
            undecided=getattr(self.module, "undecided", False),  # of an ensemble whose rule has votes for no class
            engine=made.engine,
        )

    @property
    def sources(self) -> str | None:
        """SHA-256 of the files a user's model is written in: of its function, and of its parts but torch's.

        Its weights and attributes are in the fingerprint; what else its code reads is not known here. ``None``
        for what this project has built.
        """
        if not _is_function(self.name):
            return None
        owners = {self.name.partition(":")[0]} | {type(module).__module__ for module in self.module.modules()}
        modules = [sys.modules[name] for name in sorted(owners) if name.split(".")[0] not in ("torch", "torchvision")]
        paths = [Path(module.__file__) for module in modules if getattr(module, "__file__", None)]
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def load(name: str, meta: Meta | None = None) -> Classifier:
    """Load a base classifier.

    Args:
        name: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
        meta: The data set that it is to classify, which says the classes and shape of a user's own model; and is
            compared with what any other says of itself.
    Raises:
        InputError: If there is no such model, it is not one for these images, or classes and shape stay unknown.
    """
    if _is_function(name):
        if meta is None:
            raise InputError(
                f"the classes and the shape of the images must be known, but {name} names none; "
                "give --data, the folder of a prepared data set that has them"
            )
        return Classifier(name, _from_function(name), None, tuple(meta.classes), tuple(meta.shape), None, "model")
    loaded = _from_disk(name)
    if meta is not None and (loaded.shape, loaded.classes) != (tuple(meta.shape), tuple(meta.classes)):
        raise InputError(
            f"{name} must be a classifier of {described(meta.name, meta.classes, meta.shape)}, but it is one of "
            f"{described(loaded.dataset, loaded.classes, loaded.shape)}"
        )
    return loaded


def _from_disk(name: str) -> Classifier:
    path = Path(name)
    if path.suffix == ".json" and not path.is_dir():
        module, card, classes, shape = ensemble_spec.load(path)
        scope = card.combination.scope
    else:
        module, card = checkpoint.load(path)
        classes, shape, scope = card.classes, card.shape, "model"
    return Classifier(name, module, card.dataset, tuple(classes), tuple(shape), card.sigma, scope)


def _is_function(model: str) -> bool:
    return ":" in model and not Path(model).exists()


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
