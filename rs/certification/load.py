"""Load classifiers: model folders, the zoo, ensembles, a user's function, models as objects."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from rs.certification.inference import Optimized, optimize_for_inference
from rs.certification.quantize import Calibration
from rs.data.meta import Meta, composed, data_set_text
from rs.ensemble.spec import FittedWeights, load_ensemble
from rs.errors import InputError
from rs.models import InferenceEngine, checkpoint
from rs.models.backend import device_of
from rs.models.denoised import check_denoisers
from rs.models.fingerprint import check_identity, sources
from rs.models.zoo import path_of_model
from rs.params import PIXELS, Bounds, describe_bounds
from rs.runtime import PrecisionChoice
from rs.runtime.device import check_precision, precision_on, products
from rs.smoothing import Noise
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import Base, Function, LogitsOnly, as_module, evaluating, user_code
from rs.smoothing.noise import noisy_pair
from rs.smoothing.user_networks import (
    MODEL_KINDS,
    NetworkSource,
    import_network,
    is_importable,
    own_modules,
    register_networks,
)


@dataclass(frozen=True)
class Classifier:
    """A base classifier and its metadata; a user's own model has no metadata."""

    name: str  # path or name that it was loaded by; the type of an object
    # images (N, C, H, W) -> logits (N, K); from disk: in eval mode, on the CPU
    module: nn.Module = field(repr=False)
    dataset: str | None = None  # name of the data set that it was trained on
    classes: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()  # (C, H, W) of an image
    bounds: Bounds = PIXELS  # of its inputs
    sigma: float | None = None  # noise that it was trained with, in pixels of [0, 1]
    # of an ensemble's weights (``rs.statistics.certificate.SCOPES``), "model" for a single model
    scope: str = "model"
    folders: tuple[str, ...] = ()  # the model folder, or those of the members
    fitted_to: str | None = None  # fingerprint of the images to which weights were fitted
    function: str | None = None  # ``package.module:name`` that it was imported from

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
            calibration: The prepared data set whose training images calibrate networks in int8, for
                the engine ``quantized``; needed if the model folder has no such network.
        Raises:
            InputError: If neither states sigma, an engine needs the shape of the images and it is
                unknown, a plain function is to be moved to a device, a denoiser is for another
                sigma, or the classifier is not one function of each image; that is checked where
                the shape is known.
        """
        if sigma is None:
            sigma = self.sigma
        if sigma is None:
            raise InputError(
                f"the noise of the certificate must be known, but {self.name} does not state it; "
                "in Python give sigma, on the command line give --sigma"
            )
        has_images = len(self.shape) == 3
        if not has_images and engine != "plain":
            raise InputError(
                "engine must be plain unless inputs are images of a known shape (C, H, W), got "
                f"{engine!r}; leave it out"
            )
        if device is not None and isinstance(self.module, Function):
            raise InputError(
                "device must be left out for a plain function, whose networks are not known, got "
                f"{device}; give the nn.Module"
            )
        check_denoisers(self.module, sigma)  # an optimized network does not show them
        is_in_place = device is None
        device = device_of(self.module) if device is None else torch.device(device)
        resolved = precision_on(device, precision)
        check_precision(device, resolved)
        if self.shape:
            with user_code(f"{self.name} must run on {device}"):
                check_deterministic(self.module.to(device), noisy_pair(self.shape, device))
        if has_images:
            source = Calibration(self.folders, calibration, self.sigma or sigma)
            optimized = optimize_for_inference(
                self.module, engine, resolved, self.shape, device, batch, source
            )
        else:
            module = self.module if is_in_place else self.module.to(device)
            optimized = Optimized(module, resolved, batch, engine)
        smoothed = SmoothedClassifier(
            optimized.module,
            len(self.classes) or None,
            sigma,
            precision=optimized.precision,
            batch=optimized.batch,
            noise=noise,
            bounds=self.bounds,
        )
        smoothed.engine = optimized.engine
        return smoothed

    def for_images(
        self, classes: Sequence[str], shape: Sequence[int], name: str = "the images"
    ) -> Classifier:
        """Return a classifier with the classes and the shape of images.

        They are compared if it has its own.

        Raises:
            InputError: If they differ, or it takes inputs that are no images; ``name`` says which
                images.
        """
        if self.bounds != PIXELS:
            raise InputError(
                f"{self.name} must be a classifier of images with pixels in [0, 1], but its inputs "
                f"have {describe_bounds(self.bounds)}; certify them in Python"
            )
        if not self.shape:
            return replace(self, classes=tuple(classes), shape=tuple(shape))
        is_same_shape = self.shape == tuple(shape)
        if is_same_shape and composed(self.classes) == composed(classes):
            return self
        difference = ""
        pairs = zip(composed(classes), composed(self.classes), strict=False)
        for number, (image_class, model_class) in enumerate(pairs):
            if image_class != model_class:
                difference = (
                    f"; class {number} is {image_class} there, and {model_class} of the model"
                )
                break
        raise InputError(
            f"{self.name} must be a classifier of {data_set_text(name, classes, shape)}, but it is "
            f"one of {data_set_text(self.dataset, self.classes, self.shape)}{difference}"
        )

    @property
    def sources(self) -> str | None:
        """SHA-256 of the source files of a user's model; ``None`` for models of this project.

        They are the files of its function and its modules, and of what they import; for a model
        folder, the code that its card states. Of installed packages only the files of its function
        and its modules are read, and of torch and torchvision none
        (``rs.models.fingerprint.sources``). Weights and attributes are part of the fingerprint;
        files that the user's code reads are known if it declares them (``rs.uses``).

        Raises:
            InputError: If weights are not known (``rs.models.fingerprint.check_identity``).
        """
        if self.function is not None:
            modules = own_modules(self.function, self.module)
            check_identity(self.module, modules)
            return hashlib.sha256(b"".join(sources(modules).values())).hexdigest()
        stated: set[str] = set()
        for folder in self.folders:
            card = checkpoint.read_card(Path(folder))
            stated |= {f"{module} {code}" for module, code in card.code.items()}
            stated |= {
                f"{module} changed to {code}" for module, code in card.changed_code().items()
            }
        if not stated:
            return None
        return hashlib.sha256("\n".join(sorted(stated)).encode()).hexdigest()

    def probe(self, device: torch.device) -> list[list[float]] | None:
        """Return the ``checkpoint.probe`` of a user's model; ``None`` for models of this project.

        Args:
            device: Where the model runs.
        """
        if self.sources is None or not self.shape:
            return None
        module = LogitsOnly(self.module.to(device))
        with evaluating(module), products(device, "float32"):
            return checkpoint.probe(module, self.shape, device)


def load(
    model: str | Path | Base,
    meta: Meta | None = None,
    network: NetworkSource | None = None,
) -> Classifier:
    """Load a model from disk, from code, or as an object.

    Args:
        model: A model folder, ``zoo:NAME`` of the package's networks (``rs zoo``), the ``*.json``
            of an ensemble, or ``package.module:name`` of an ``nn.Module`` or of a function that
            returns one; or, as objects, an ``nn.Module`` or any function of images
            (``rs.smoothing.classifier.SmoothedClassifier``).
        meta: The data set to classify. A model of your own takes classes and shape from it; those
            of any other model must match it.
        network: The function that builds the network of a model folder, or its name, if the network
            is your own: a folder never makes Python import anything. Separate several names by
            commas.
    Returns:
        The classifier; call its method ``smooth`` to certify with it. A model of your own does not
        state sigma, so pass it to ``smooth``. Its number of logits is its number of classes.
    Raises:
        InputError: If there is no such model, or it does not fit the images.

    >>> classifier = load(lambda x: x.flatten(1))
    >>> classifier.smooth(0.5).certify(torch.tensor([[[0.0, 1.0]]]), seed=1).predict
    1
    """
    name = str(model)
    if network is not None:
        has_card = Path(name, checkpoint.CARD).is_file()
        in_card = checkpoint.read_card(Path(name)).architecture if has_card else None
        register_networks(network, in_card)
    if not isinstance(model, str | Path):
        name = getattr(model, "__name__", type(model).__name__)
        classifier = Classifier(name, as_module(model))
    elif is_importable(name):
        classifier = Classifier(name, as_module(import_network(name)), function=name)
    else:
        classifier = _from_disk(name)
    if meta is None:
        return classifier
    return classifier.for_images(meta.classes, meta.shape, meta.name)


def _from_disk(name: str) -> Classifier:
    name = str(Path(name))  # a/ and ./a are one folder, whose rows continue
    path = path_of_model(name)
    if path.suffix == ".json" and not path.is_dir():
        module, spec, classes, shape = load_ensemble(path)
        return Classifier(
            name,
            module,
            dataset=spec.dataset,
            classes=tuple(classes),
            shape=tuple(shape),
            sigma=spec.sigma,
            scope=spec.combination.scope,
            folders=tuple(str(member.folder(path)) for member in spec.members),
            fitted_to=spec.fitted.fingerprint if isinstance(spec.fitted, FittedWeights) else None,
        )
    if not (path / checkpoint.CARD).is_file():
        raise InputError(
            f"{MODEL_KINDS}, got {name!r}, which has no {checkpoint.CARD}; correct its name, or "
            "name a function that builds the network and loads its weights, as package.module:build"
        )
    module, card = checkpoint.load_model(path)
    return Classifier(
        name,
        module,
        dataset=card.dataset,
        classes=tuple(card.classes),
        shape=tuple(card.shape),
        bounds=card.bounds,
        sigma=card.sigma,
        folders=(str(path),),
    )
