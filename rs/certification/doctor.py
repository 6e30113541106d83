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
from rs.certification.trial import FALSE_ALARM, Trial, fewest_images, is_larger, percent
from rs.data.prepared import Images
from rs.errors import InputError
from rs.smoothing.attack import evaluating
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import user_code
from rs.smoothing.noise import noisy_pair

LEVEL_SAMPLES = 2
"""Noise samples of each image at other noise levels."""

SCREENING_IMAGES = 50
"""Images, with one noise sample each, on which the best alternatives are chosen."""

FINALISTS = 3
"""Alternatives that are compared on all images and noise samples."""

MAX_CLASSES_SHOWN = 10
"""Classes in another order that are named."""

CLIPPED_SHARE = 0.01
"""Share of noisy pixels outside [0, 1] from which on clipping is worth a warning."""

CLIPPING_SIGMA = 1.0
"""Noise under which most pixels leave [0, 1], so that any network that does not clip differs."""

UNCHECKED = "accuracy, training and expected input could not be checked"


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

    Inputs that it may have been made for instead, such as other channels or another normalization,
    are compared under the noise of the certificate, with the same noise samples of each image. One
    is reported if it is right about more samples of clearly more images (exact sign test of paired
    images, with :data:`FALSE_ALARM` divided by the number of alternatives), or if it clearly fits
    the statistics of the first batch norm better
    (:func:`rs.certification.batch_norm_fit.fit_of`), which tells the noise of the training too.
    The order of the classes is chosen on half of the images and tested on the other half. Faults
    that follow from one that was found are not searched.

    An image is evaluated about 60 times in all.

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
        trial = Trial(module, images, sigma, device, count)
        for finding in _findings(trial, classifier):
            findings.append(finding)
            if finding.level == "fault":
                break
    return findings


def _findings(trial: Trial, classifier: Classifier) -> Iterator[Diagnosis]:
    clean_logits = trial.logits(trial.x)
    classes = len(classifier.classes)
    logits = classes + getattr(trial.module, "undecided", False)
    if clean_logits.shape[1] != logits:
        yield Diagnosis(
            "fault",
            f"the classifier must have {logits} logits, one per class; it has "
            f"{clean_logits.shape[1]}",
        )
        return
    predicted = clean_logits.argmax(1)
    misfit = misfit_of(trial)
    if trial.is_labeled:
        yield _of_order(trial, predicted, classes)
        predictions = trial.predictions(trial.sigma, trial.samples)
        yield _of_input(trial, predicted, trial.right(predictions), misfit, 1 / classes)
        yield _of_accuracy(trial, predicted, 1 / classes)
    else:
        yield Diagnosis(
            "warning",
            f"the images have no labels, so {UNCHECKED}; put them into one subfolder per class",
        )
    if not trial.is_sigma_known:
        yield Diagnosis(
            "warning",
            "the noise of the certificate is not known, so nothing was tried under noise; give "
            "--sigma",
        )
        return
    network = "" if classifier.folders else f" --network {classifier.name}"
    remedy = f"train it: rs train advmacer{network} --sigma {trial.sigma:g} ..."
    yield from _of_statistics(trial, misfit, classifier.sigma, remedy)
    yield from _of_clipping(trial)
    if trial.is_labeled:
        yield _of_noise(trial, predicted, predictions, remedy)


def _of_order(trial: Trial, predicted: Tensor, classes: int) -> Diagnosis:
    """Compare the order of the classes with the best one of the confusion matrix.

    It is chosen on every other image, and tested on the images between them.
    """
    confusion = 0.5 * torch.eye(classes)  # of equally good orders, the nearest to the given one
    labels = trial.labels[::2].tolist()
    for label, column in zip(labels, predicted[::2].tolist(), strict=True):
        if column < classes:  # not a vote for no class
            confusion[label, column] += 1
    _, columns = linear_sum_assignment(confusion.numpy(), maximize=True)
    order = torch.as_tensor(columns).to(predicted.device)
    tested_labels = trial.labels[1::2]
    right = predicted[1::2] == tested_labels
    right_in_order = predicted[1::2] == order[tested_labels]
    figures = (
        f"accuracy {percent(right_in_order)} in the best order, {percent(right)} in this one, "
        f"on {len(right)} images"
    )
    if _is_poor(right_in_order, 1 / classes) or not is_larger(right_in_order, right):
        return Diagnosis("ok", f"no other order of classes is clearly better: {figures}")
    moved = []
    for label, column in enumerate(columns.tolist()):
        if column != label and confusion[label, column] >= 1:
            moved.append(f"class {column} of the network is class {label} of the images")
    if len(moved) > MAX_CLASSES_SHOWN:
        moved[MAX_CLASSES_SHOWN:] = [f"and {len(moved) - MAX_CLASSES_SHOWN} more"]
    return Diagnosis(
        "fault",
        f"its classes seem to be in another order: {'; '.join(moved)} ({figures}); name them in "
        f"its order (--images: --classes FILE), or return logits[:, {columns.tolist()}]",
    )


def _finalists(trial: Trial) -> list[Alternative]:
    """Return the alternatives with which most of a few images are classified as their labels."""
    step = max(1, len(trial.x) // SCREENING_IMAGES)
    noisy = trial.noisy(trial.sigma)[::step]
    right = []
    for alternative in trial.alternatives:
        predictions = trial.logits(alternative.of(noisy)).argmax(1)
        right.append(int((predictions == trial.labels[::step]).sum()))
    order = sorted(range(len(right)), key=lambda index: -right[index])  # of equals the first
    return [trial.alternatives[index] for index in order[:FINALISTS]]


def _of_input(
    trial: Trial, predicted: Tensor, right: Tensor, misfit: Misfit | None, chance: float
) -> Diagnosis:
    """Compare inputs that the classifier may expect, with the same noise samples.

    Without noise the accuracy must not become smaller. It must become larger where the input has a
    smaller scale, as this also helps a classifier that knows no noise.
    """
    right_without_noise = int((predicted == trial.labels).sum())
    fitting = AS_IT_IS if misfit is None else misfit.alternative
    count = len(trial.alternatives)
    finalists = [other for other in _finalists(trial) if other is not fitting]
    if fitting is not AS_IT_IS:
        finalists.append(fitting)
    best = None
    best_right = right
    figures = []
    for alternative in finalists:
        predictions = trial.predictions(trial.sigma, trial.samples, alternative)
        right_then = trial.right(predictions)
        figures.append(f"{alternative.name} {percent(right_then, trial.samples)}")
        is_better = is_larger(right_then, right, count)
        is_above_chance = _is_above_chance(2 * right_then > trial.samples, chance)
        if not is_better or not is_above_chance:
            continue
        predicted_then = trial.logits(alternative.of(trial.x)).argmax(1)
        gain = int((predicted_then == trial.labels).sum()) - right_without_noise
        if gain < 0 or (gain == 0 and alternative.is_smaller):
            continue
        # Similar constants give similar accuracies; a batch norm tells them apart.
        if alternative is fitting or int(right_then.sum()) > int(best_right.sum()):
            best = alternative
            best_right = right_then
    if best is None:
        return Diagnosis(
            "ok",
            f"accuracy {trial.condition} is not clearly higher with any of {count} other inputs: "
            f"{', '.join(figures)}, {percent(right, trial.samples)} as it is; a finding needs "
            f"{fewest_images(count)} images or more that differ",
        )
    return Diagnosis(
        "fault",
        f"{best.remedy} (accuracy {trial.condition} {percent(best_right, trial.samples)} then, "
        f"{percent(right, trial.samples)} now)",
    )


def _of_accuracy(trial: Trial, predicted: Tensor, chance: float) -> Diagnosis:
    right = predicted == trial.labels
    counts = f"{int(right.sum())} of {len(right)} images"
    few = ""
    if len(right) < 2 * fewest_images(1):
        few = (
            f"; so few images prove little: the order of classes needs {2 * fewest_images(1)} "
            f"images or more, other inputs {fewest_images(len(trial.alternatives))}, and a small "
            "difference hundreds"
        )
    if not _is_above_chance(right, chance):
        return Diagnosis(
            "fault" if _is_poor(right, chance) and not few else "warning",
            f"its accuracy is not clearly better than chance: {counts} are right, and guessing the "
            f"class gives {100 * chance:.2g}%; train it, load its weights, name the classes in its "
            f"order, or give more images{few}",
        )
    if len(predicted.unique()) == 1 < len(trial.labels.unique()):
        return Diagnosis(
            "fault",
            f"it gives all {len(right)} images one class, number {int(predicted[0])}, but they "
            "are of several classes; train it, or load its weights",
        )
    accuracy = f"{float(right.float().mean()):.0%}"
    return Diagnosis(
        "ok", f"accuracy {accuracy} ({counts}), better than chance ({100 * chance:.2g}%){few}"
    )


def _of_statistics(
    trial: Trial, misfit: Misfit | None, trained_sigma: float | None, remedy: str
) -> Iterator[Diagnosis]:
    """Compare the noise of the certificate with the noise of the training."""
    if trained_sigma is not None and trained_sigma != trial.sigma:
        yield Diagnosis(
            "warning",
            f"its card states training with noise of {trained_sigma:g}, not {trial.sigma:g}; give "
            f"--sigma {trained_sigma:g}, or {remedy}",
        )
    if misfit is None:
        return
    alternative = misfit.alternative
    if alternative is AS_IT_IS:
        yield Diagnosis(
            "warning",
            f"it seems to be trained with noise of about {misfit.sigma:.2g}, not {trial.sigma:g}: "
            f"the statistics of its first batch norm fit better ({misfit.text}); correct --sigma "
            f"(and that of rs import), or {remedy}",
        )
        return
    if trial.is_labeled:
        right = trial.right(trial.predictions(trial.sigma, trial.samples))
        right_then = trial.right(trial.predictions(trial.sigma, trial.samples, alternative))
        if is_larger(right, right_then):
            return
    yield Diagnosis(
        "warning",
        f"{alternative.remedy}: the statistics of its first batch norm fit better ({misfit.text}), "
        "unless these images are brighter, darker or of other contrast than those of its training",
    )


def _of_clipping(trial: Trial) -> Iterator[Diagnosis]:
    noisy = trial.noisy(trial.sigma)
    share = float((noisy != noisy.clamp(0, 1)).float().mean())
    if share < CLIPPED_SHARE:
        return
    for sigma in (trial.sigma, max(trial.sigma, CLIPPING_SIGMA)):
        noisy = trial.noisy(sigma)
        logits = trial.logits(noisy)
        # Clipping need not change votes, of which there are few kinds.
        is_graded = len(logits.unique(dim=0)) > logits.shape[1]
        if not is_graded or not torch.equal(logits, trial.logits(noisy.clamp(0, 1))):
            return
    yield Diagnosis(
        "warning",
        "it clips its images to [0, 1], which cuts off the noise of "
        f"{share:.0%} of the pixels; smoothing needs no clipping: remove clamp or clip",
    )


def _of_noise(trial: Trial, predicted: Tensor, predictions: Tensor, remedy: str) -> Diagnosis:
    """Compare the accuracy under the noise of the certificate with that under other noise."""
    right = trial.right(predictions)
    right_without = trial.samples * (predicted == trial.labels)
    right_of_few = trial.right(predictions[:, :LEVEL_SAMPLES])
    right_under_half = trial.right(trial.predictions(trial.sigma / 2, LEVEL_SAMPLES))
    right_under_twice = trial.right(trial.predictions(2 * trial.sigma, LEVEL_SAMPLES))
    figures = (
        f"accuracy {trial.condition}: {percent(right, trial.samples)} (without noise "
        f"{percent(right_without, trial.samples)}, under {trial.sigma / 2:g} "
        f"{percent(right_under_half, LEVEL_SAMPLES)}, under {2 * trial.sigma:g} "
        f"{percent(right_under_twice, LEVEL_SAMPLES)})"
    )
    if is_larger(right_under_twice, right_of_few):
        return Diagnosis(
            "warning",
            f"it seems to be trained with more noise than {trial.sigma:g}; {figures}; give a "
            f"larger --sigma, or {remedy}",
        )
    is_halved = int(right.sum()) < 0.5 * int(right_without.sum())
    if is_halved and is_larger(right_without, right):
        return Diagnosis(
            "warning",
            f"it seems not to be trained with noise of {trial.sigma:g}, so most certificates will "
            f"abstain; {figures}; {remedy}",
        )
    return Diagnosis("ok", figures)


def _is_above_chance(right: Tensor, chance: float) -> bool:
    """Return whether more images are right than by guessing, by an exact binomial test."""
    return bool(binom.sf(int(right.sum()) - 1, len(right), chance) <= FALSE_ALARM)


def _is_poor(right: Tensor, chance: float) -> bool:
    """Return whether a classifier halfway from chance to perfect would have more right images."""
    return bool(binom.cdf(int(right.sum()), len(right), (1 + chance) / 2) <= FALSE_ALARM)
