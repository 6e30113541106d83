"""Thresholds of a cascade with the fewest evaluations, for a given share of changed decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_SHARES = 20
"""Largest number of parts into which the search splits the samples that may be changed."""


@dataclass(frozen=True)
class CascadeFit:
    """Thresholds, and their effect on the samples to which they were fitted."""

    thresholds: tuple[float, ...]  # (L - 1,)
    share: float  # of samples, decided differently than by all members
    evaluations: float  # of members per sample


def fit_thresholds(
    leads: NDArray[np.float64], differs: NDArray[np.bool_], share: float
) -> CascadeFit:
    """Return the thresholds tau that change the class of at most ``share`` of the samples.

    A sample is decided by the first j members, for the smallest j with ``leads[j] >= tau[j]``, else
    by all L, and takes j or L evaluations. The thresholds are those of the fewest evaluations.

    With b = floor(share N) samples that may be changed, the search goes over all ways to let the
    first member change k_1 of them, the first two k_2 of the rest, and so on, in steps of ceil(b /
    :data:`MAX_SHARES`); the last stage may change what is left. For a given k_j the least threshold
    is best: it leaves fewer samples to the members that follow, and fewer that they could change.
    So for L = 2, and with at most MAX_SHARES such samples for any L, no other thresholds need fewer
    evaluations on these samples.

    Args:
        leads: Lead of the largest class in the average of the first 1, ..., L - 1 members, shape
            (L - 1, N), N >= 1.
        differs: Whether that class is not the class of all members, shape (L - 1, N).
        share: Of samples, in [0, 1).
    """
    stages, draws = leads.shape
    budget = int(share * draws)
    step = max(1, -(-budget // MAX_SHARES))
    _, thresholds = _search(leads, differs, budget, step)
    decides = leads >= np.reshape(thresholds, (stages, 1))
    decides = np.vstack([decides, np.ones((1, draws), dtype=bool)])
    stage = decides.argmax(axis=0)  # the first that decides
    differs = np.vstack([differs, np.zeros((1, draws), dtype=bool)])
    is_changed = differs[stage, np.arange(draws)]
    return CascadeFit(thresholds, float(is_changed.mean()), float(stage.mean() + 1))


def _search(
    leads: NDArray[np.float64], differs: NDArray[np.bool_], budget: int, step: int
) -> tuple[int, tuple[float, ...]]:
    """Return the fewest further evaluations of these samples, and their thresholds."""
    if not len(leads):
        return 0, ()
    wrong_leads = np.sort(leads[0][differs[0]])[::-1]
    most = min(budget, len(wrong_leads))
    is_last = len(leads) == 1
    spends = [most] if is_last else [*range(0, most, step), most]
    choices = []
    for spend in spends:
        threshold = 0.0
        if spend < len(wrong_leads):
            threshold = float(np.nextafter(wrong_leads[spend], np.inf))
        is_left = leads[0] < threshold
        changed = int((differs[0] & ~is_left).sum())  # fewer than ``spend`` if leads are equal
        left = budget - changed
        evaluations, later = _search(leads[1:, is_left], differs[1:, is_left], left, step)
        choices.append((int(is_left.sum()) + evaluations, (threshold, *later)))
    return min(choices)
