"""Common mistakes in a classifier, looked for by running it before it is certified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from scipy.stats import binom
from torch import Tensor, nn

from rs.certification.load import Classifier
from rs.data.prepared import Images
from rs.errors import InputError
from rs.smoothing.attack import evaluating
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import logits_of, user_code
from rs.smoothing.noise import gaussian, noisy_pair
from rs.statistics.certificate import UNLABELLED

FALSE_ALARM = 3.2e-5
"""Largest probability of a finding by chance: that of 4 standard errors, one-sided."""

MIN_IMAGES = 15
"""Fewest images on which one accuracy can be clearly larger: 2^-15 is below FALSE_ALARM."""

BATCH = 100
"""Images in a batch."""

UNCHECKED = "accuracy, training and expected input could not be checked"

OTHER_PIXELS = {
    "BGR": "it seems to expect channels in the other order, as BGR for RGB; put x.flip(1) before "
    "its first layer",
    "-1 to 1": "it seems to expect pixels of -1 to 1; put 2x - 1 before its first layer",
    "normalized": "it seems to expect normalized pixels; put the normalization before its first "
    "layer",
    "255": "it seems to expect pixels of 0 to 255; multiply by 255 inside",
}
"""What a classifier may have been made for instead of RGB in [0, 1], and what to do then."""


class Diagnosis(NamedTuple):
    """Something that was checked, and what to do about it if it is wrong."""

    level: Literal["fault", "warning", "ok"]  # a fault makes certificates wrong or worthless
    text: str


def diagnose(
    classifier: Classifier,
    images: Images | None,
    sigma: float | None,
    device: torch.device,
    count: int = 200,
) -> list[Diagnosis]:
    """Look for common mistakes in a classifier, most of them with labeled images.

    Its accuracy is compared with its accuracy on what it may have been made for instead: pixels of
    0 to 255, normalized ones, other channels. The best is reported if it clearly exceeds both its
    accuracy (exact sign test of paired images) and chance, 1/K for K classes (exact binomial test),
    each with a probability of at most :data:`FALSE_ALARM`. Later faults follow from it and are not
    searched.

    Args:
        classifier: What is to be certified.
        images: Images of its classes and shape, or ``None``; without it, checks that need labels
            are skipped.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes that of the training.
        device: Where it runs.
        count: Number of images to use, spread over the split.
    Returns:
        Diagnoses, in the order in which to fix them; all "ok" if no problem was found.
    Raises:
        InputError: If the classes and the shape of the images are unknown.
    """
    if not classifier.shape:
        raise InputError(
            f"the classes and the shape of the images must be known, but {classifier.name} names "
            "none; give --data, the folder of a prepared data set that has them, or --images, a "
            "folder of pictures"
        )
    try:
        with user_code(f"{classifier.name} must run on {device}"):
            module = classifier.module.to(device)
            check_deterministic(module, noisy_pair(classifier.shape, device))
    except InputError as error:
        return [Diagnosis("fault", str(error))]
    findings = [Diagnosis("ok", "logits depend on the image alone, not on its batch")]
    if images is None:
        text = f"no images were given, so {UNCHECKED}; give --data or --images"
        return [*findings, Diagnosis("warning", text)]
    if sigma is None:
        sigma = classifier.sigma
    with torch.no_grad(), evaluating(module):
        trial = _Trial(module, images, device, count)
        return [*findings, *_findings(trial, images, classifier, sigma)]


class _Trial:
    """A classifier and the labeled images that it is tried on."""

    def __init__(self, module: nn.Module, images: Images, device: torch.device, count: int) -> None:
        count = min(count, len(images))
        indices = torch.linspace(0, len(images) - 1, count).round().long().tolist()
        self.module = module
        self.is_labeled = not (images.labels == UNLABELLED).any()
        self.x = torch.stack([images.pixels(index) for index in indices]).to(device)
        self.labels = torch.as_tensor(images.labels)[indices].to(device)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        with user_code("the classifier must take the images"):
            return torch.cat([logits_of(self.module(part)).float() for part in x.split(BATCH)])

    def right(self, x: Tensor) -> Tensor:
        """Return whether each image is classified as its label."""
        return self.logits(x).argmax(1) == self.labels


def _findings(
    trial: _Trial, images: Images, classifier: Classifier, sigma: float | None
) -> Iterator[Diagnosis]:
    logits = trial.logits(trial.x)
    classes = len(classifier.classes) + getattr(trial.module, "undecided", False)
    if logits.shape[1] != classes:
        yield Diagnosis(
            "fault",
            f"the classifier must have {classes} logits, one per class; it has {logits.shape[1]}",
        )
        return
    if trial.is_labeled:
        for finding in _of_accuracy(trial, images, 1 / len(classifier.classes)):
            yield finding
            if finding.level == "fault":
                return
    else:
        yield Diagnosis(
            "warning",
            f"the images have no labels, so {UNCHECKED}; put them into one subfolder per class",
        )
    if sigma is None:
        yield Diagnosis(
            "warning",
            "the noise of the certificate is not known, so nothing was tried under noise; give "
            "--sigma",
        )
        return
    network = "" if classifier.folders else f" --network {classifier.name}"
    yield from _of_noise(trial, logits, sigma, f"rs train advmacer{network} --sigma {sigma:g}")


def _of_accuracy(trial: _Trial, images: Images, chance: float) -> Iterator[Diagnosis]:
    predicted = trial.logits(trial.x).argmax(1)
    right = predicted == trial.labels
    counts = f"{int(right.sum())} of {len(right)} images"
    right_on_others = {
        kind: trial.right(pixels) for kind, pixels in _as_other_pixels(trial, images).items()
    }
    best_kind = max(right_on_others, key=lambda kind: int(right_on_others[kind].sum()))
    best = right_on_others[best_kind]
    if _is_larger(best, right) and _is_above_chance(best, chance):
        accuracies = f"(accuracy {_percent(best)} then, {_percent(right)} now)"
        yield Diagnosis("fault", f"{OTHER_PIXELS[best_kind]} {accuracies}")
        return
    few = ""
    if len(right) < MIN_IMAGES:
        few = (
            f"; so few images prove little: a comparison needs {MIN_IMAGES} images or more, and a "
            "small difference needs hundreds"
        )
    if not _is_above_chance(right, chance):
        # A classifier halfway from chance to perfect would almost surely have more right.
        is_poor = binom.cdf(int(right.sum()), len(right), (1 + chance) / 2) <= FALSE_ALARM
        yield Diagnosis(
            "fault" if is_poor and not few else "warning",
            f"its accuracy is not clearly better than chance: {counts} are right, and guessing the "
            f"class gives {100 * chance:.2g}%; train it, load its weights, name the classes in its "
            f"order, or give more images{few}",
        )
    elif len(predicted.unique()) == 1 < len(trial.labels.unique()):
        yield Diagnosis(
            "fault",
            f"it gives all {len(right)} images one class, number {int(predicted[0])}, but they "
            "are of several classes; train it, or load its weights",
        )
    else:
        text = (
            f"accuracy {_percent(right)} ({counts}), better than chance ({100 * chance:.2g}%){few}"
        )
        yield Diagnosis("ok", text)
    figures = [f"{kind} {_percent(there)}" for kind, there in right_on_others.items()]
    yield Diagnosis("ok", f"accuracy is not clearly higher with other pixels: {', '.join(figures)}")


def _as_other_pixels(trial: _Trial, images: Images) -> dict[str, Tensor]:
    """Return the images as a classifier may expect them instead, by the keys of OTHER_PIXELS."""
    x = trial.x
    mean = torch.tensor(images.meta.mean).view(-1, 1, 1).to(x)
    std = torch.tensor(images.meta.std).view(-1, 1, 1).to(x)
    if not mean.any():  # a folder of pictures has no statistics of its own
        mean = x.mean((0, 2, 3)).view_as(mean)
        std = x.std((0, 2, 3)).view_as(std)
    others = {  # of equally good ones the first is reported
        "BGR": x.flip(1),
        "-1 to 1": 2 * x - 1,
        "normalized": (x - mean) / std,
        "255": 255 * x,
    }
    return {kind: other for kind, other in others.items() if not torch.equal(other, x)}


def _of_noise(trial: _Trial, logits: Tensor, sigma: float, remedy: str) -> Iterator[Diagnosis]:
    rng = torch.Generator().manual_seed(0)
    noisy = trial.x + gaussian(trial.x.shape, sigma, rng).to(trial.x.device)
    noisy_logits = trial.logits(noisy)
    clipped = noisy.clamp(0, 1)
    # Clipping need not change votes, of which there are few kinds.
    is_graded = len(noisy_logits.unique(dim=0)) > noisy_logits.shape[1]
    is_clipped = not torch.equal(noisy, clipped)
    if is_clipped and is_graded and torch.equal(noisy_logits, trial.logits(clipped)):
        yield Diagnosis(
            "warning",
            "it clips its images to [0, 1], which cuts the noise off; smoothing needs no clipping",
        )
    if not trial.is_labeled:
        return
    right = logits.argmax(1) == trial.labels
    noisy_right = noisy_logits.argmax(1) == trial.labels
    is_halved = float(noisy_right.float().mean()) < 0.5 * float(right.float().mean())
    if is_halved and _is_larger(right, noisy_right):
        yield Diagnosis(
            "warning",
            f"it seems not to be trained with noise of {sigma:g}: accuracy {_percent(right)} "
            f"without noise, {_percent(noisy_right)} with it, so most certificates will abstain; "
            f"train it: {remedy} ...",
        )
    else:
        yield Diagnosis("ok", f"accuracy under noise of {sigma:g}: {_percent(noisy_right)}")


def _is_larger(first: Tensor, second: Tensor) -> bool:
    """Return whether the first is right more often, by an exact sign test of paired images."""
    wins = int((first & ~second).sum())
    losses = int((second & ~first).sum())
    return bool(binom.sf(wins - 1, wins + losses, 0.5) <= FALSE_ALARM)


def _is_above_chance(right: Tensor, chance: float) -> bool:
    """Return whether more images are right than by guessing, by an exact binomial test."""
    return bool(binom.sf(int(right.sum()) - 1, len(right), chance) <= FALSE_ALARM)


def _percent(right: Tensor) -> str:
    return f"{float(right.float().mean()):.0%}"
