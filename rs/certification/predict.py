"""Classifying and certifying the user's own images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rs.certification.certify_model import warn_if_n_too_small
from rs.certification.load import load_classifier
from rs.data import images as data
from rs.data.readers import decode, one_line
from rs.errors import InputError
from rs.models.backend import Engine
from rs.runtime.device import limit_threads
from rs.runtime.progress import progress
from rs.smoothing.classifier import Noise, Precision, check_draws
from rs.statistics.certificate import ABSTAIN, Certificate, round_down

CHANNELS = {1: "8-bit grey", 3: "8-bit RGB"}
"""Kind of image, by the number of channels of a model."""


@dataclass(frozen=True)
class Answer:
    """The certificate of one image, and how it was computed."""

    file: str
    classes: tuple[str, ...]
    seed: int
    certificate: Certificate
    provenance: Mapping[str, str]  # scope of the classifier's weights; device, precision and engine

    @property
    def name(self) -> str | None:
        """Name of the predicted class, or ``None`` if the classifier abstains."""
        predict = self.certificate.predict
        return None if predict == ABSTAIN else self.classes[predict]

    def text(self) -> str:
        """Return one readable line: class, radius in pixels of [0, 1] and confidence, both rounded down."""
        if self.name is None:
            return f"{self.file}: abstains"
        radius, p_lower = round_down(self.certificate.radius), round_down(self.certificate.p_lower)
        return f"{self.file}: {self.name}, radius {radius}, p >= {p_lower}"

    def json(self) -> str:
        """Return one JSON object on one line, with all votes and digits; ``class`` is null for an abstention."""
        certificate = self.certificate
        prediction = {"file": self.file, "predict": certificate.predict, "class": self.name}
        values = {name: getattr(certificate, name) for name in ("radius", "p_lower", "n0", "n", "alpha", "sigma")}
        votes = {name: getattr(certificate, name).tolist() for name in ("counts0", "counts")}
        return json.dumps({**prediction, **values, "seed": self.seed, **votes, **self.provenance}, allow_nan=False)


def read_image(file: str, shape: Sequence[int]) -> Tensor:
    """Read an image as float32 (C, H, W) in [0, 1], on the CPU.

    Raises:
        InputError: If it is unreadable, or not an 8-bit image of exactly ``shape`` (C, H, W).
    """
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{file} must be a file that can be read, but: {one_line(error)}; correct its name") from error
    pixels = decode(content, file)
    if pixels.shape != tuple(shape):
        expected, actual = (f"{CHANNELS[c]} of {h}x{w} (height x width)" for c, h, w in (shape, pixels.shape))
        steps = {"convert": pixels.shape[0] != shape[0], "resize": pixels.shape[1:] != tuple(shape[1:])}
        remedy = " and ".join(step for step, is_needed in steps.items() if is_needed)
        raise InputError(f"{file} must be {expected}, as the images of the model are, got {actual}; {remedy} it")
    return torch.from_numpy(np.array(pixels, order="C")).float() / 255  # Pillow's array is read-only, and (H, W, C)


def answers(
    files: Sequence[str],
    model: str,
    folder: Path | None,
    *,
    n0: int,
    n: int,
    alpha: float,
    seed: int,
    sigma: float | None,
    device: torch.device,
    noise: Noise,
    precision: Precision,
    engine: Engine,
) -> Iterator[Answer]:
    """Classify and certify images one after the other, after all of them have been read and checked; show the progress.

    Args:
        files: Image files; the position of a file among them and ``seed`` key its noise.
        model: See :func:`rs.certification.load.load_classifier`.
        folder: A prepared data set with the classes and the shape of the model; needed for a function of the user's,
            and compared with the metadata of any other model.
        n0, n, alpha: See :meth:`rs.smoothing.classifier.SmoothedClassifier.certify`.
        seed: At least 0; whoever chooses an image must not know it (see docs/method.md).
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes that of the model.
        device: Where the base classifier runs.
        noise: See :class:`rs.smoothing.classifier.SmoothedClassifier`.
        precision, engine: See :func:`rs.certification.inference.optimize_for_inference`.
    Raises:
        InputError: If the model, an image or a number is invalid.
    """
    base = load_classifier(model, data.load(folder, "test").meta if folder is not None else None)
    limit_threads(base.shape)
    images = [read_image(file, base.shape) for file in files]
    check_draws(torch.zeros(base.shape), alpha, n0=n0, n=n)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}; it names the noise")
    classifier = base.smooth(sigma, device=device, noise=noise, precision=precision, engine=engine)
    warn_if_n_too_small(n, alpha)
    provenance = {"scope": base.scope, "device": device.type, "noise": noise}
    provenance |= {"precision": precision, "engine": classifier.engine}
    pairs = enumerate(zip(files, images, strict=True))
    for index, (file, x) in progress(pairs, len(images), "predict", always=False):
        certificate = classifier.certify(x.to(device), n0, n, alpha, seed=seed, index=index)
        yield Answer(file, base.classes, seed, certificate, provenance)
