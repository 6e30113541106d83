"""Images of the user's own, classified and certified by a smoothed classifier."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rs import artefacts, data
from rs.certify import warn_if_hopeless
from rs.certify_cell import load_classifier
from rs.device import suit_threads
from rs.errors import InputError
from rs.readers import decode, one_line
from rs.rows import ABSTAIN
from rs.smoothing import Certificate, Precision, SmoothedClassifier, check_draws

CHANNELS = {1: "8-bit grey", 3: "8-bit RGB"}
"""Images that a model of so many channels takes, in words."""


class Loaded(NamedTuple):
    """A base classifier and what it says of itself."""

    module: nn.Module
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # (C, H, W) of an image
    sigma: float | None  # noise it was trained with, in pixels of [0, 1]; None where it does not say


@dataclass(frozen=True)
class Answer:
    """What is said of one image."""

    file: str
    classes: tuple[str, ...]
    seed: int
    certificate: Certificate

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
        return json.dumps({**who, **values, "seed": self.seed, **votes}, allow_nan=False)


def round_down(value: float) -> Decimal:
    """Return the largest number of four decimals that is not above ``value``; a certificate is never rounded up.

    >>> round_down(0.99999), round_down(0.3)
    (Decimal('0.9999'), Decimal('0.2999'))
    """
    return Decimal(value).quantize(Decimal("0.0001"), ROUND_FLOOR)


def load_any(path: str, folder: Path | None = None) -> Loaded:
    """Load a base classifier, in whichever form ``rs.certify_cell.load_classifier`` takes it.

    Args:
        path: A model folder, which says everything of itself; or one of the other forms.
        folder: A prepared data set with the classes and the shape of the model; needed for the other forms, and
            compared with what a model folder says.
    Raises:
        InputError: If there is no such model, it does not fit the data set, or the data set is needed and not given.
    """
    if folder is not None:
        images = data.load(folder, "test")
        module, sigma = load_classifier(path, images)
        return Loaded(module, images.meta.classes, images.meta.shape, sigma)
    if not Path(path).is_dir() and (":" in path or path.endswith(".json")):
        raise InputError(
            f"the classes and the shape of the images must be known, but {path} names none; "
            "give --data, the folder of a prepared data set that has them"
        )
    module, card = artefacts.load(Path(path))
    return Loaded(module, tuple(card.classes), tuple(card.shape), card.sigma)


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
) -> Iterator[Answer]:
    """Classify and certify images, one after the other, once all of them are read and found good.

    Args:
        files: Image files; the position of a file among them and ``seed`` name its noise.
        model, folder: See :func:`load_any`.
        n0, n, alpha: See :meth:`rs.smoothing.SmoothedClassifier.certify`.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes the model's own.
        device, precision: Where the base classifier runs, and how.
    Raises:
        InputError: If the model, an image or a number is not what it must be.
    """
    loaded = load_any(model, folder)
    suit_threads(loaded.shape)
    classifier = _smoothed(loaded, model, sigma, device, precision)
    images = [read_image(file, loaded.shape) for file in files]
    check_draws(torch.zeros(loaded.shape), alpha, n0=n0, n=n)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}; it names the noise")
    warn_if_hopeless(n, alpha)
    for index, (file, x) in enumerate(zip(files, images, strict=True)):
        certificate = classifier.certify(x.to(device), n0, n, alpha, seed=seed, index=index)
        yield Answer(file, loaded.classes, seed, certificate)


def _smoothed(
    loaded: Loaded, model: str, sigma: float | None, device: torch.device, precision: Precision
) -> SmoothedClassifier:
    """The smoothed classifier at ``sigma``, or at the noise of its training."""
    sigma = sigma if sigma is not None else loaded.sigma
    if sigma is None:
        raise InputError(f"the noise of the certificate must be known, but {model} does not say it; give --sigma")
    undecided = getattr(loaded.module, "undecided", False)  # of an ensemble whose rule has votes for no class
    base = loaded.module.to(device)
    return SmoothedClassifier(base, len(loaded.classes), sigma, precision=precision, undecided=undecided)
