"""Warnings on stderr about the images of a training run and the accuracy of its first epoch."""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from rs.data.images import PackedImages, content_hashes
from rs.data.prepared import Images
from rs.runtime import processes
from rs.runtime.progress import say
from rs.statistics.certificate import UNLABELED

MAX_IMBALANCE = 3
"""Ratio of the images of two classes above which a training run warns."""

QUANTILE_99 = 2.326
"""Quantile of the standard normal distribution at 99 %."""


def warn_of_imbalance(train: Images) -> None:
    """Warn if a class has all images, or :data:`MAX_IMBALANCE` times the images of another.

    Classes without images do not count: a network may have more classes than are trained.
    """
    names = train.meta.classes
    numbers, counts_of_numbers = np.unique(train.labels, return_counts=True)
    if numbers[0] == UNLABELED:
        return
    counts = dict(zip(numbers.tolist(), counts_of_numbers.tolist(), strict=True))
    most = max(counts, key=counts.__getitem__)
    least = min(counts, key=counts.__getitem__)
    if len(counts) == 1:
        _warn(f"all images belong to class {names[most]}; add images of other classes")
    if counts[most] > MAX_IMBALANCE * counts[least]:
        _warn(
            f"the classes are imbalanced: {counts[most]:,} images of {names[most]}, "
            f"{counts[least]:,} of {names[least]}; accuracy and ACR mostly reflect large ones"
        )


def warn_of_copies(train: Images, evaluation: Images) -> None:
    """Warn if images in memory are in both splits."""
    if not (isinstance(train, PackedImages) and isinstance(evaluation, PackedImages)):
        return
    trained = set(content_hashes(train.images))
    copies = sum(content in trained for content in content_hashes(evaluation.images))
    if copies:
        _warn(
            f"{copies:,} of {len(evaluation):,} images of the evaluation are also training "
            "images, so the quick ACR is too large"
        )


def warn_of_chance(accuracy: float, labels: NDArray[np.int64], is_gaussian: bool = False) -> None:
    """Warn if the accuracy is not above chance, by a one-sided test of level 1 %.

    Args:
        accuracy: Of noisy copies in the first epoch.
        labels: Of the images.
        is_gaussian: Whether the training is by the method that others may begin with.
    """
    begin = "" if is_gaussian else "begin with the method gaussian, "
    share = float(np.bincount(labels).max() / len(labels))  # of the largest class
    if accuracy <= share + QUANTILE_99 * math.sqrt(share * (1 - share) / len(labels)):
        _warn(
            f"in the first epoch the accuracy under noise, {accuracy:.1%}, is not clearly above "
            f"chance, {share:.1%}; if it stays there, train more epochs, {begin}or change "
            "learning_rate; rs doctor looks for mistakes in pixels and labels"
        )


def _warn(text: str) -> None:
    """Write a warning to stderr, in the first process alone."""
    if processes.is_first_process():
        say(f"warning: {text}", sys.stderr)
