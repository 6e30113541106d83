"""Loading classifiers: model folders, the zoo, ensembles, functions of the user's, and models as
objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from rs.certification.inference import Optimized, members_of, optimize_for_inference
from rs.certification.quantize import quantized_members
from rs.data.prepared import Meta, data_set_text
from rs.ensemble import spec as ensemble_spec
from rs.errors import InputError
from rs.models import InferenceEngine, PrecisionChoice, checkpoint
from rs.models.backend import device_of
from rs.models.fingerprint import sources
from rs.models.zoo import path_of_model
from rs.runtime.device import check_precision, precision_on, warn_of_slow_bfloat16
from rs.smoothing import Noise
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import Base, Function, as_module, user_code
from rs.smoothing.noise import noisy_pair
from rs.smoothing.user_networks import (
    MODEL_KINDS,
    import_network,
    is_importable,
    own_modules,
    register_network,
    register_networks,
)
from rs.statistics.certificate import SET_SCOPE


@dataclass(frozen=True)
class Classifier:
    """A base classifier and its metadata; a user's own model has no metadata."""

    name: str  # path or name that it was loaded by; the type of what was given as an object
    module: nn.Module = field(
        repr=False
    )  # images (N, C, H, W) -> logits (N, K); from disk: in eval mode, on the CPU
    dataset: str | None = None  # name of the data set that it was trained on
    classes: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()  # (C, H, W) of an image
    sigma: float | None = None  # noise that it was trained with, in pixels of [0, 1]
    # of an ensemble's weights (``rs.statistics.certificate.SCOPES``), "model" for a single model
    scope: str = "model"
    folders: tuple[
        str, ...
    ] = ()  # the model folder, or those of the members; of a user's model none

    def smooth(
        self,
        sigma: float | None = None,
        *,
        device: torch.device | str | None = None,
        noise: Noise | None = None,
        precision: PrecisionChoice = "auto",
        engine: InferenceEngine = "plain",
        batch: int | None = None,
        calibration: Path | None = None,
    ) -> SmoothedClassifier:
        """Move it to ``device``, optimize it for inference and smooth it.

        Args:
            sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes the noise of its
                training.
            device: Where it runs; ``None`` leaves it where it is.
            noise: See :class:`rs.smoothing.classifier.SmoothedClassifier`.
            precision: See :func:`rs.certification.inference.optimize_for_inference`; ``auto`` is
                ``tf32`` on a CUDA device and ``float32`` on a CPU.
            engine, batch: See there.
            calibration: See :func:`rs.certification.quantize.quantized_members`, for the engine
                ``quantized``.
        Raises:
            InputError: If neither says sigma, an engine needs the shape of the images and it is
                unknown, a plain function is to be moved to a device, or the classifier is not one
                function of each image; that is checked where the shape is known.
        """
        std = sigma if sigma is not None else self.sigma
        if std is None:
            raise InputError(
                f"the noise of the certificate must be known, but {self.name} does not say it; in "
                "Python give sigma, "
                "on the command line give --sigma"
            )
        if not self.shape and engine != "plain":
            raise InputError(
                f"engine must be plain where the shape of images is unknown, got {engine!r}; leave "
                "it out"
            )
        if device is not None and isinstance(self.module, Function):
            raise InputError(
                "device must be left out for a plain function, whose networks are not known, got "
                f"{device}; give the "
                "nn.Module"
            )
        home = device_of(self.module) if device is None else torch.device(device)
        resolved = precision_on(home, precision)
        check_precision(home, resolved)
        warn_of_slow_bfloat16(home.type, resolved)
        if self.shape:
            with user_code(f"{self.name} must run on {home}"):
                check_deterministic(self.module.to(home), noisy_pair(self.shape, home))
            quantized = []
            if engine == "quantized":
                members = members_of(self.module.cpu())
                quantized = quantized_members(
                    members, self.folders, calibration, self.sigma or std, self.shape
                )
            runs = optimize_for_inference(
                self.module, engine, resolved, self.shape, home, batch, quantized
            )
        else:
            runs = Optimized(
                self.module if device is None else self.module.to(home), resolved, batch, engine
            )
        return SmoothedClassifier(
            runs.module,
            len(self.classes) or None,
            std,
            precision=runs.precision,
            batch=runs.batch,
            noise=noise,
            undecided=getattr(
                self.module, "undecided", False
            ),  # of an ensemble whose rule has votes for no class
            engine=runs.engine,
        )

    def for_images(
        self, classes: Sequence[str], shape: Sequence[int], name: str = "the images"
    ) -> Classifier:
        """Return a classifier with the classes and the shape of images, if it has none; compare
        them, if it has.

        Raises:
            InputError: If they differ; ``name`` says of what.
        """
        if not self.shape:
            return replace(self, classes=tuple(classes), shape=tuple(shape))
        if (self.shape, self.classes) != (tuple(shape), tuple(classes)):
            others = (
                (k, a, b)
                for k, (a, b) in enumerate(zip(classes, self.classes, strict=False))
                if a != b
            )
            differ = "".join(
                f"; class {k} is {a} there, and {b} of the model" for k, a, b in [*others][:1]
            )
            raise InputError(
                f"{self.name} must be a classifier of {data_set_text(name, classes, shape)}, "
                f"but it is one of {data_set_text(self.dataset, self.classes, self.shape)}{differ}"
            )
        return self

    @property
    def sources(self) -> str | None:
        """SHA-256 of the source files of a user's model: of its function and its modules, and of
        what they import.

        Of model folders they are those of their cards, which their networks are built with. Of
        installed packages only the files of its function and its modules are read, and of torch and
        torchvision none (``rs.models.fingerprint.sources``). Weights and attributes are part of the
        fingerprint; files that the user's code reads are not known here. It is ``None`` for models
        of this project.
        """
        if not is_importable(self.name):
            stated = {
                f"{module} {code}"
                for folder in self.folders
                for module, code in checkpoint.read_card(Path(folder)).sources.items()
            }
            return (
                hashlib.sha256("\n".join(sorted(stated)).encode()).hexdigest() if stated else None
            )
        modules = own_modules(self.name.partition(":")[0], self.module)
        return hashlib.sha256(b"".join(sources(modules).values())).hexdigest()


def load(
    model: str | Path | Base,
    meta: Meta | None = None,
    network: str | Callable[[], nn.Module] | None = None,
) -> Classifier:
    """Load a base classifier, to be smoothed by :meth:`Classifier.smooth`.

    Args:
        model: A model folder, ``zoo:NAME`` of the package's networks (``rs zoo``), the ``*.json``
            of an ensemble, or ``package.module:name`` of an ``nn.Module`` or of a function that
            returns one; or, as objects, an ``nn.Module`` or any function of images
            (``rs.smoothing.classifier.SmoothedClassifier``). A model of the user's has no metadata:
            ``smooth`` needs sigma, and the number of classes is that of its logits.
        meta: The data set to classify. A model of the user's takes classes and shape from it; those
            of any other model are compared with it.
        network: The function that builds the network of a model folder, or its name, where it is
            not of this project: a folder never makes Python import anything. The names of several
            have commas between them.
    Raises:
        InputError: If there is no such model, or it does not fit the images.

    >>> load(lambda x: x.flatten(1)).smooth(0.5).certify(torch.tensor([[[0.0, 1.0]]]), seed=1).predict
    1
    """
    name = str(model)
    if network is not None:
        has_card = Path(name, checkpoint.CARD).is_file()
        in_card = checkpoint.read_card(Path(name)).architecture if has_card else None
        if isinstance(network, str):
            register_networks(network, in_card)
        else:
            register_network(network, in_card)
    if not isinstance(model, str | Path):
        classifier = _of_user(getattr(model, "__name__", type(model).__name__), as_module(model))
    elif is_importable(name):
        classifier = _of_user(name, as_module(import_network(name)))
    else:
        classifier = _from_disk(name)
    return (
        classifier if meta is None else classifier.for_images(meta.classes, meta.shape, meta.name)
    )


def _of_user(name: str, module: nn.Module) -> Classifier:
    """Return a model of the user's; an ensemble whose rule has votes for no class is of its scope."""
    return Classifier(
        name, module, scope=SET_SCOPE if getattr(module, "undecided", False) else "model"
    )


def check_has_folder(model: str | Path) -> None:
    """Refuse a ``module:function`` where a model or an ensemble on disk is needed.

    Raises:
        InputError: If MODEL is one.
    """
    if is_importable(str(model)):
        raise InputError(
            f"MODEL must be a model folder or an ensemble *.json, got {model}; a function has no "
            "folder"
        )


def _from_disk(name: str) -> Classifier:
    path = path_of_model(name)
    if path.suffix == ".json" and not path.is_dir():
        module, spec, classes, shape = ensemble_spec.load(path)
        scope, folders = spec.combination.scope, tuple(member.path for member in spec.voting)
        return Classifier(
            name, module, spec.dataset, tuple(classes), tuple(shape), spec.sigma, scope, folders
        )
    if not (path / checkpoint.CARD).is_file():
        remedy = "correct its name, or name the function too, as package.module:build"
        if path.is_file():
            remedy = "write a function that builds the network and loads this file, and name it package.module:build"
        raise InputError(f"{MODEL_KINDS}, got {name!r}, which has no {checkpoint.CARD}; {remedy}")
    module, card = checkpoint.load_model(path)
    return Classifier(
        name,
        module,
        card.dataset,
        tuple(card.classes),
        tuple(card.shape),
        card.sigma,
        "model",
        (str(path),),
    )
