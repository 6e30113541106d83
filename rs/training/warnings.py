"""Warnings on stderr about what is trained on and what the first epoch has learnt."""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from rs.data.images import PackedImages, content_hashes
from rs.data.prepared import Images
from rs.errors import printable
from rs.runtime import processes

MAX_IMBALANCE = 3
"""Ratio of the images of two classes above which a training warns."""

QUANTILE_99 = 2.326
"""Quantile of the standard normal distribution at 99 %."""


def warn_of_imbalance(train: Images) -> None:
    """Write to stderr if classes differ in their number of images by more than
    :data:`MAX_IMBALANCE`.
    """
    names, counts = train.meta.classes, np.bincount(train.labels, minlength=len(train.meta.classes))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] > MAX_IMBALANCE * counts[least] and processes.rank_and_world_size()[0] == 0:
        line = (
            f"warning: the classes are not in balance: {counts[most]:,} images of {names[most]}, "
            f"{counts[least]:,} of "
            f"{names[least]}; accuracy and ACR weigh them by their number"
        )
        print(printable(line), file=sys.stderr)


def warn_of_copies(train: Images, evaluation: Images) -> None:
    """Write to stderr how many images in memory are in both splits."""
    if not (isinstance(train, PackedImages) and isinstance(evaluation, PackedImages)):
        return
    trained = set(content_hashes(train.images))
    copies = sum(content in trained for content in content_hashes(evaluation.images))
    if copies and processes.rank_and_world_size()[0] == 0:
        print(
            f"warning: {copies:,} of {len(evaluation):,} images of the evaluation are images of "
            "the training too; "
            "their quick ACR is too large",
            file=sys.stderr,
        )


def warn_of_chance(accuracy: float, labels: NDArray[np.int64]) -> None:
    """Write to stderr what to change where the accuracy is not above chance, by a one-sided test of
    level 1 %.
    """
    share = float(np.bincount(labels).max() / len(labels))  # of the largest class
    if accuracy <= share + QUANTILE_99 * math.sqrt(share * (1 - share) / len(labels)):
        print(
            f"warning: in the first epoch the accuracy under noise, {accuracy:.1%}, is not clearly "
            "above chance, "
            f"{share:.1%}; train more epochs, begin with the method gaussian, or change "
            "learning_rate; rs doctor "
            "looks for mistakes in pixels and labels",
            file=sys.stderr,
        )
