"""Common mistakes in a classifier, looked for by running it before it is certified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rs.certification.load import Classifier
from rs.data.prepared import Images
from rs.errors import InputError
from rs.smoothing.attack import evaluating
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import logits_of, user_code
from rs.smoothing.noise import gaussian, noisy_pair
from rs.statistics.certificate import UNLABELLED

STANDARD_ERRORS = 4.0
"""Standard errors by which an accuracy must be larger than another to count as larger."""

BATCH = 100
"""Images in a batch."""

NOT_LOOKED_AT = "nothing was found out about its accuracy, its training and the pixels and classes that it wants"


class Diagnosis(NamedTuple):
    """Something that was found, and what to do about it."""

    level: Literal["fault", "warning"]  # a fault makes certificates wrong or worthless
    text: str


def diagnose(
    classifier: Classifier,
    images: Images | None,
    sigma: float | None,
    device: torch.device,
    count: int = 200,
) -> list[Diagnosis]:
    """Look for common mistakes in a classifier, most of them with labelled images.

    Its accuracy is compared with those in what it may have been made for instead: pixels of 0 to
    255, normalised ones, other channels. The best is reported if it exceeds both its accuracy and
    that of guessing the most frequent class by 4 standard errors of the paired difference; later
    faults follow from it and are not searched.

    Args:
        classifier: What is to be certified.
        images: Images of its classes and shape, or ``None``; without it, checks that need labels
            are skipped.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes that of the training.
        device: Where it runs.
        count: Images that are looked at, spread over the split.
    Returns:
        Diagnoses, in the order in which to mend them; none of a classifier that seems right.
    Raises:
        InputError: If the classes and the shape of the images are unknown.
    """
    if not classifier.shape:
        raise InputError(
            f"the classes and the shape of the images must be known, but {classifier.name} names "
            "none; "
            "give --data, the folder of a prepared data set that has them, or --images, a folder "
            "of pictures"
        )
    try:
        with user_code(f"{classifier.name} must run on {device}"):
            module = classifier.module.to(device)
            check_deterministic(module, noisy_pair(classifier.shape, device))
    except InputError as error:
        return [Diagnosis("fault", str(error))]
    if images is None:
        return [
            Diagnosis(
                "warning", f"no images were given, so {NOT_LOOKED_AT}; give --data or --images"
            )
        ]
    with torch.inference_mode(), evaluating(module):
        return list(_findings(_Trial(module, images, device, count), images, classifier, sigma))


class _Trial:
    """A classifier and the labelled images that it is tried on."""

    def __init__(self, module: nn.Module, images: Images, device: torch.device, count: int) -> None:
        chosen = torch.linspace(0, len(images) - 1, min(count, len(images))).round().long().tolist()
        self.module = module
        self.is_labelled = not (images.labels == UNLABELLED).any()
        self.x = torch.stack([images.pixels(index) for index in chosen]).to(device)
        self.labels = torch.as_tensor(images.labels)[chosen].to(device)

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
    logits, classes = (
        trial.logits(trial.x),
        len(classifier.classes) + getattr(trial.module, "undecided", False),
    )
    if logits.shape[1] != classes:
        yield Diagnosis(
            "fault",
            f"the classifier must have {classes} logits, one for each class; it has "
            f"{logits.shape[1]}",
        )
        return
    if trial.is_labelled:
        finding = _of_accuracy(trial, images, logits)
        if finding is not None:
            yield finding
            if finding.level == "fault":
                return
    else:
        yield Diagnosis(
            "warning",
            f"the images have no labels, so {NOT_LOOKED_AT}; put them into one subfolder a class",
        )
    noise = classifier.sigma if sigma is None else sigma
    if noise is None:
        yield Diagnosis(
            "warning",
            "the noise of the certificate is not known, so nothing was tried under noise; give "
            "--sigma",
        )
        return
    network = "" if classifier.folders else f" --network {classifier.name}"
    yield from _of_noise(trial, logits, noise, f"rs train advmacer{network} --sigma {noise:g}")


def _of_accuracy(trial: _Trial, images: Images, logits: Tensor) -> Diagnosis | None:
    right = logits.argmax(1) == trial.labels
    text, best = max(_as_other_pixels(trial, images).items(), key=lambda item: int(item[1].sum()))
    guessed = trial.labels == trial.labels.mode().values
    if _larger(best, right) and _larger(best, guessed):
        return Diagnosis("fault", f"{text} (accuracy {_percent(best)} then, {_percent(right)} now)")
    if _larger(right, guessed):
        return None
    return Diagnosis(
        "fault" if right.sum() <= guessed.sum() < len(right) else "warning",
        f"its accuracy is not clearly better than chance: {int(right.sum())} of {len(right)} "
        "images are right, and "
        f"{int(guessed.sum())} are of the most frequent class; train it, load its weights, name "
        "the classes in its "
        "order, or give more images",
    )


def _as_other_pixels(trial: _Trial, images: Images) -> dict[str, Tensor]:
    """Return which images are right with other pixels than RGB in [0, 1], by what the model seems
    to want.
    """
    x = trial.x
    mean, std = (
        torch.tensor(values).view(-1, 1, 1).to(x) for values in (images.meta.mean, images.meta.std)
    )
    if torch.equal(mean, torch.zeros_like(mean)):  # a folder of pictures has no numbers of its own
        mean, std = x.mean((0, 2, 3)).view_as(mean), x.std((0, 2, 3)).view_as(std)
    others = {  # of equals the first is reported
        "it seems to want channels in the other order, as BGR for RGB; put x.flip(1) before its first layer": x.flip(
            1
        ),
        "it seems to want pixels of -1 to 1; put 2x - 1 before its first layer": 2 * x - 1,
        "it seems to want normalised pixels; put the normalisation before its first layer": (
            x - mean
        )
        / std,
        "it seems to want pixels of 0 to 255; multiply by 255 inside": 255 * x,
    }
    return {text: trial.right(other) for text, other in others.items() if not torch.equal(other, x)}


def _of_noise(trial: _Trial, logits: Tensor, sigma: float, remedy: str) -> Iterator[Diagnosis]:
    rng = torch.Generator().manual_seed(0)
    noisy = trial.x + gaussian(trial.x.shape, sigma, rng).to(trial.x.device)
    under_noise = trial.logits(noisy)
    is_graded = (
        len(under_noise.unique(dim=0)) > under_noise.shape[1]
    )  # else votes, which clipping need not change
    if is_graded and torch.equal(under_noise, trial.logits(noisy.clamp(0, 1))):
        yield Diagnosis(
            "warning",
            "it clips its images to [0, 1], which cuts the noise off; smoothing needs no clipping",
        )
    if not trial.is_labelled:
        return
    right, under = (outputs.argmax(1) == trial.labels for outputs in (logits, under_noise))
    if float(under.float().mean()) < 0.5 * float(right.float().mean()) and _larger(right, under):
        yield Diagnosis(
            "warning",
            f"it seems not to be trained with noise of {sigma:g}: accuracy {_percent(right)} "
            "without noise, "
            f"{_percent(under)} with it, so most certificates will abstain; train it: {remedy} ...",
        )


def _larger(first: Tensor, second: Tensor) -> bool:
    """Return whether the first share is larger, by the standard error of the paired difference."""
    difference = first.float() - second.float()
    return (
        len(first) > 1
        and float(difference.mean())
        > STANDARD_ERRORS * float(difference.std()) / len(difference) ** 0.5
    )


def _percent(right: Tensor) -> str:
    return f"{float(right.float().mean()):.0%}"
