"""Common mistakes in a classifier, looked for by running it before it is certified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom
from torch import Tensor

from rs.certification.batch_norm_fit import Misfit, misfit_of
from rs.certification.expected_input import AS_IT_IS, Alternative
from rs.certification.load import Classifier
from rs.certification.trial import LEVEL, Trial, fewest_images, is_larger, percent
from rs.data.prepared import Images
from rs.errors import InputError
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import evaluating, user_code
from rs.smoothing.noise import noisy_pair

LEVEL_SAMPLES = 2
"""Noise samples of each image at other noise levels."""

SCREENING_IMAGES = 50
"""Images, with one noise sample each, on which the best alternatives are chosen."""

FINALISTS = 3
"""Alternatives that are compared on all images and noise samples."""

MAX_CLASSES_SHOWN = 10
"""Classes in another order that are named."""

UNCHECKED = "accuracy, training and expected input could not be checked"


class Diagnosis(NamedTuple):
    """Something that was checked, and what to do about it if it is wrong."""

    # a fault makes certificates wrong or worthless; too few images leave checks untested
    level: Literal["fault", "warning", "ok", "not tested"]
    text: str


def diagnose(
    classifier: Classifier,
    images: Images | None,
    sigma: float | None,
    device: torch.device,
    count: int = 200,
) -> list[Diagnosis]:
    """Look for common mistakes in a classifier, most of them with labeled images.

    Inputs that it may have been made for instead, such as other channels or another normalization,
    are compared under the noise of the certificate, with the same noise samples of each image. One
    is reported if it is right about more samples of clearly more images (exact sign test of paired
    images), or if it clearly fits the statistics of the first batch norm better
    (:func:`rs.certification.batch_norm_fit.misfit_of`), which tells the noise of the training too.
    The order of the classes is chosen on half of the images and tested on the other half. The
    search ends at the first fault, because others may follow from it.

    A good classifier is one that no other input, order of classes or noise suits better, and that
    is right about at least half of the images of each class that guessing would miss. The
    probability that chance alone makes a finding for it is at most
    :data:`rs.certification.trial.FALSE_ALARM`, which is divided over all checks, and in each check
    over its alternatives. Images too few to tell its accuracy from chance are always a warning.

    An image is evaluated about 60 times in all.

    Args:
        classifier: What is to be certified.
        images: Images of its classes and shape, or ``None``; without it, checks that need labels
            are skipped.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes that of the training.
        device: Where it runs.
        count: Number of images to use, spread over the split.
    Returns:
        Diagnoses, in the order in which to fix them; if no problem was found, all are "ok", or
        "not tested" for want of images.
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
    with torch.no_grad(), evaluating(module):
        trial = Trial(module, images, sigma or classifier.sigma, device, count)
        for finding in _findings(trial, classifier):
            findings.append(finding)
            if finding.level == "fault":
                break
    return findings


def _findings(trial: Trial, classifier: Classifier) -> Iterator[Diagnosis]:
    clean_logits = trial.logits(trial.x)
    classes = len(classifier.classes)
    if clean_logits.shape[1] != classes:
        text = f"the classifier must have {classes} logits, one per class"
        remedy = "name all its classes (--classes FILE, one per line), or change its last layer"
        yield Diagnosis("fault", f"{text}, but it has {clean_logits.shape[1]}; {remedy}")
        return
    predicted = clean_logits.argmax(1)
    misfit = misfit_of(trial)
    right_without = (predicted == trial.labels)[:, None]
    right = right_without
    if trial.is_labeled:
        right = trial.right(trial.sigma)
        yield _of_order(trial, predicted, classes)
        yield _of_input(trial, right, right_without, misfit, 1 / classes)
        yield _of_accuracy(trial, predicted, 1 / classes)
    else:
        text = f"the images have no labels, so {UNCHECKED}; put them into one subfolder per class"
        yield Diagnosis("warning", text)
    if not trial.sigma:
        text = "the noise of the certificate is not known, so nothing was tried under noise"
        yield Diagnosis("warning", f"{text}; give --sigma")
        return
    network = "" if classifier.folders else f" --network {classifier.name}"
    remedy = f"train it: rs train advmacer{network} --sigma {trial.sigma:g} ..."
    yield from _of_training(trial, right, misfit, classifier.sigma, remedy)
    if trial.is_labeled:
        yield _of_noise(trial, right, right_without, remedy)


def _of_order(trial: Trial, predicted: Tensor, classes: int) -> Diagnosis:
    """Compare the order of the classes with the best one of the confusion matrix.

    It is chosen on every other image, and tested on the images between them.
    """
    untested = _untested(trial, "the order of classes", 2 * fewest_images(1))
    if untested:
        return untested
    confusion = 0.5 * torch.eye(classes)  # of equally good orders, the nearest to the given one
    labels = trial.labels[::2].tolist()
    for label, column in zip(labels, predicted[::2].tolist(), strict=True):
        confusion[label, column] += 1
    _, columns = linear_sum_assignment(confusion.numpy(), maximize=True)
    order = torch.as_tensor(columns).to(predicted.device)
    right = (predicted == trial.labels)[1::2, None]
    right_in_order = (predicted == order[trial.labels])[1::2, None]
    figures = (
        f"accuracy {percent(right)} in this order, {percent(right_in_order)} in the one that fits "
        f"the other half of the images best, on {len(right)} images"
    )
    if _is_poor(right_in_order, 1 / classes) or not is_larger(right_in_order, right):
        return Diagnosis("ok", f"no other order of classes is clearly better: {figures}")
    moved = []
    for label, column in enumerate(columns.tolist()):
        if column != label and confusion[label, column] >= 1:
            moved.append(f"class {column} of the network is class {label} of the images")
    if len(moved) > MAX_CLASSES_SHOWN:
        moved[MAX_CLASSES_SHOWN:] = [f"and {len(moved) - MAX_CLASSES_SHOWN} more"]
    text = f"its classes seem to be in another order: {'; '.join(moved)} ({figures})"
    change = "name them in its order (--images: --classes FILE)"
    return Diagnosis("fault", f"{text}; {change}, or return logits[:, {columns.tolist()}]")


def _finalists(trial: Trial) -> list[Alternative]:
    """Return the alternatives with which most of a few images are classified as their labels."""
    step = max(1, len(trial.x) // SCREENING_IMAGES)
    noisy = trial.noisy(trial.sigma)[::step]

    def count_right(alternative: Alternative) -> int:
        predictions = trial.logits(alternative.of(noisy)).argmax(1)
        return int((predictions == trial.labels[::step]).sum())

    return sorted(trial.alternatives, key=count_right, reverse=True)[:FINALISTS]


def _of_input(
    trial: Trial, right: Tensor, right_without: Tensor, misfit: Misfit | None, chance: float
) -> Diagnosis:
    """Compare inputs that the classifier may expect, with the same noise samples.

    Without noise the accuracy must not become smaller. It must become larger where the input has a
    smaller scale, as this also helps a classifier that knows no noise.
    """
    count = len(trial.alternatives)
    untested = _untested(trial, "other normalizations", fewest_images(count))
    if untested:
        return untested
    fitting = AS_IT_IS if misfit is None else misfit.alternative
    finalists = [other for other in _finalists(trial) if other is not fitting]
    if fitting is not AS_IT_IS:
        finalists.append(fitting)
    best = None
    best_right = right
    figures = []
    for alternative in finalists:
        right_then = trial.right(trial.sigma, alternative=alternative)
        if right_then.sum() > right.sum():
            figures.append(f", {alternative.name} {percent(right_then)}")
        is_above_chance = _is_above_chance(right_then.float().mean(1) > 0.5, chance)
        if not is_above_chance or not is_larger(right_then, right, count):
            continue
        gain = int(trial.right(0.0, alternative=alternative).sum())
        gain -= int(right_without.sum())
        # Similar constants give similar accuracies; a batch norm tells them apart.
        is_best = alternative is fitting or right_then.sum() > best_right.sum()
        fewest_gained = 1 if alternative.is_smaller else 0
        if is_best and gain >= fewest_gained:
            best = alternative
            best_right = right_then
    if best is None:
        text = f"is not clearly higher with any of {count} other normalizations or channel orders"
        shares = f"{percent(right)} as it is{''.join(figures)}"
        return Diagnosis("ok", f"accuracy {trial.condition} {text}: {shares}")
    text = f"accuracy {trial.condition} {percent(best_right)} with it, {percent(right)} now"
    return Diagnosis("fault", f"{best.remedy} ({text})")


def _of_accuracy(trial: Trial, predicted: Tensor, chance: float) -> Diagnosis:
    right = predicted == trial.labels
    counts = f"{int(right.sum())} of {len(right)} images"
    few = ""
    if len(right) < 2 * fewest_images(1):
        few = "; so few images prove little: a small difference needs hundreds"
    if not _is_above_chance(right, chance):
        return Diagnosis(
            "fault" if _is_poor(right, chance) and not few else "warning",
            f"its accuracy is not clearly better than chance: {counts} are right, and guessing the "
            f"class gives {100 * chance:.2g}%; train it, load its weights, name the classes in its "
            f"order, or give more images{few}",
        )
    right_of_others = right[trial.labels != predicted[0]]
    if len(predicted.unique()) == 1 and _is_poor(right_of_others, chance):
        text = f"it gives all {len(right)} images the same class, {int(predicted[0])}, but they"
        return Diagnosis("fault", f"{text} are of several classes; train it, or load its weights")
    text = f"accuracy {percent(right)} ({counts}), better than chance ({100 * chance:.2g}%){few}"
    return Diagnosis("ok", text)


def _of_training(
    trial: Trial,
    right: Tensor,
    misfit: Misfit | None,
    trained_sigma: float | None,
    remedy: str,
) -> Iterator[Diagnosis]:
    """Compare the noise and the images of the certificate with those of the training."""
    if trained_sigma is not None and trained_sigma != trial.sigma:
        text = f"its card states training with noise of {trained_sigma:g}, not {trial.sigma:g}"
        yield Diagnosis("warning", f"{text}; give --sigma {trained_sigma:g}, or {remedy}")
    if misfit is None:
        return
    alternative = misfit.alternative
    fit = f"the statistics of its first batch norm fit better ({misfit.text})"
    if alternative is AS_IT_IS:
        noise = f"it seems to have been trained with noise of about {misfit.sigma:.2g}"
        change = f"correct --sigma (and that of rs import), or {remedy}"
        yield Diagnosis("warning", f"{noise}, not {trial.sigma:g}: {fit}; {change}")
        return
    if trial.is_labeled:
        right_then = trial.right(trial.sigma, alternative=alternative)
        if is_larger(right, right_then):
            return
    doubt = "these images differ in brightness or contrast from those of its training"
    yield Diagnosis("warning", f"{alternative.remedy}: {fit}, unless {doubt}")


def _of_noise(trial: Trial, right: Tensor, right_without: Tensor, remedy: str) -> Diagnosis:
    """Compare the accuracy under the noise of the certificate with that under other noise."""
    sigma = trial.sigma
    right_under_half = trial.right(sigma / 2, LEVEL_SAMPLES)
    right_under_twice = trial.right(2 * sigma, LEVEL_SAMPLES)
    figures = (
        f"accuracy {trial.condition}: {percent(right)} (without noise {percent(right_without)}, "
        f"under {sigma / 2:g} {percent(right_under_half)}, under {2 * sigma:g} "
        f"{percent(right_under_twice)})"
    )
    if is_larger(right_under_twice, right[:, :LEVEL_SAMPLES]):
        text = f"it seems to have been trained with more noise than {sigma:g}; {figures}"
        return Diagnosis("warning", f"{text}; give a larger --sigma, or {remedy}")
    is_halved = right.double().mean() < right_without.double().mean() / 2
    if is_halved and is_larger(right_without, right):
        text = f"it seems not to have been trained with noise of {sigma:g}, so most"
        return Diagnosis("warning", f"{text} certificates will abstain; {figures}; {remedy}")
    untested = _untested(trial, "training with other noise", fewest_images(1))
    if untested:
        return untested._replace(text=f"{untested.text}; {figures}")
    return Diagnosis("ok", figures)


def _untested(trial: Trial, check: str, fewest: int) -> Diagnosis | None:
    """Report that too few images are left for a check to find anything, if so."""
    count = len(trial.x)
    if count >= fewest:
        return None
    return Diagnosis("not tested", f"{check} ({count} of the {fewest} images that it needs)")


def _is_above_chance(right: Tensor, chance: float) -> bool:
    """Return whether more images are right than by guessing, by an exact binomial test."""
    return bool(binom.sf(int(right.sum()) - 1, len(right), chance) <= LEVEL)


def _is_poor(right: Tensor, chance: float) -> bool:
    """Return whether a classifier halfway from chance to perfect would have more right images."""
    return bool(binom.cdf(int(right.sum()), len(right), (1 + chance) / 2) <= LEVEL)
