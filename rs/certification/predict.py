"""Images of the user's own, classified and certified by a smoothed classifier."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rs.certification import load
from rs.certification.certify_images import warn_if_hopeless
from rs.data import images as data
from rs.data.readers import decode, one_line
from rs.errors import InputError
from rs.models.backend import Engine
from rs.runtime.device import suit_threads
from rs.smoothing.classifier import Precision, check_draws
from rs.statistics.certificate import ABSTAIN, Certificate

CHANNELS = {1: "8-bit grey", 3: "8-bit RGB"}
"""Images that a model of so many channels takes, in words."""


@dataclass(frozen=True)
class Answer:
    """What is said of one image."""

    file: str
    classes: tuple[str, ...]
    seed: int
    certificate: Certificate
    how: Mapping[str, str]  # scope of the classifier's weights, device, precision and engine that it ran with

    @property
    def name(self) -> str | None:
        """Name of the predicted class, or ``None`` where the classifier abstains."""
        predict = self.certificate.predict
        return None if predict == ABSTAIN else self.classes[predict]

    def text(self) -> str:
        """One line for people: radius in pixels of [0, 1] and confidence, both rounded down so that they hold."""
        if self.name is None:
            return f"{self.file}: abstains"
        made = self.certificate
        return f"{self.file}: {self.name}, radius {round_down(made.radius)}, p >= {round_down(made.p_lower)}"

    def json(self) -> str:
        """One JSON object on one line, with every vote and every digit; ``class`` is null for an abstention."""
        made = self.certificate
        values = {name: getattr(made, name) for name in ("radius", "p_lower", "n0", "n", "alpha", "sigma")}
        votes = {name: getattr(made, name).tolist() for name in ("counts0", "counts")}
        who = {"file": self.file, "predict": made.predict, "class": self.name}
        return json.dumps({**who, **values, "seed": self.seed, **votes, **self.how}, allow_nan=False)


def round_down(value: float) -> Decimal:
    """Return the largest number of four decimals that is not above ``value``; a certificate is never rounded up.

    >>> round_down(0.99999), round_down(0.3)
    (Decimal('0.9999'), Decimal('0.2999'))
    """
    return Decimal(value).quantize(Decimal("0.0001"), ROUND_FLOOR)


def read_image(file: str, shape: Sequence[int]) -> Tensor:
    """Read an image as certification sees it: float32 (C, H, W) in [0, 1], on the CPU.

    Raises:
        InputError: If it is unreadable, or not an 8-bit image of exactly ``shape`` (C, H, W).
    """
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{file} must be a file that can be read, but: {one_line(error)}; correct its name") from error
    pixels = decode(content, file)
    if pixels.shape != tuple(shape):
        must, came = (f"{CHANNELS[c]} of {h}x{w} (height x width)" for c, h, w in (shape, pixels.shape))
        todo = " and ".join(word for word, is_due in _remedies(pixels.shape, shape) if is_due)
        raise InputError(f"{file} must be {must}, as the images of the model are, got {came}; {todo} it")
    return torch.from_numpy(np.array(pixels, order="C")).float() / 255  # Pillow's array is read-only, and (H, W, C)


def _remedies(came: Sequence[int], must: Sequence[int]) -> list[tuple[str, bool]]:
    return [("convert", came[0] != must[0]), ("resize", tuple(came[1:]) != tuple(must[1:]))]


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
    precision: Precision,
    engine: Engine,
) -> Iterator[Answer]:
    """Classify and certify images, one after the other, once all of them are read and found good.

    Args:
        files: Image files; the position of a file among them and ``seed`` name its noise.
        seed: At least 0; who chooses an image must not know it (see docs/method.md).
        model: See :func:`rs.certification.load.load`.
        folder: A prepared data set with the classes and the shape of the model; needed for a function of the user's,
            and compared with what any other model says.
        n0, n, alpha: See :meth:`rs.smoothing.classifier.SmoothedClassifier.certify`.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes the model's own.
        device, precision, engine: Where the base classifier runs, and how.
    Raises:
        InputError: If the model, an image or a number is not what it must be.
    """
    loaded = load.load(model, data.load(folder, "test").meta if folder is not None else None)
    suit_threads(loaded.shape)
    smoothed = loaded.smoothed(sigma, device=device, precision=precision, engine=engine)
    images = [read_image(file, loaded.shape) for file in files]
    check_draws(torch.zeros(loaded.shape), alpha, n0=n0, n=n)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}; it names the noise")
    warn_if_hopeless(n, alpha)
    how = {"scope": loaded.scope, "device": device.type, "precision": precision, "engine": smoothed.engine}
    for index, (file, x) in enumerate(zip(files, images, strict=True)):
        certificate = smoothed.certify(x.to(device), n0, n, alpha, seed=seed, index=index)
        yield Answer(file, loaded.classes, seed, certificate, how)
