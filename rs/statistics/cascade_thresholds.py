"""Thresholds of a cascade: the fewest evaluations at which a given share of draws may be decided
otherwise (NumPy).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_SHARES = 20
"""Largest number of equal shares into which the search splits the draws that may be decided
otherwise.
"""


@dataclass(frozen=True)
class CascadeFit:
    """Thresholds, and what they do on the draws that they were fitted on."""

    thresholds: tuple[float, ...]  # (L - 1,)
    share: float  # of draws, decided otherwise than by all members
    evaluations: float  # of members, a draw


def fit_thresholds(
    leads: NDArray[np.float64], differs: NDArray[np.bool_], share: float
) -> CascadeFit:
    """Return the thresholds tau of the fewest evaluations that change the class of at most
    ``share`` of the draws.

    A draw is decided by the first j members for the first j with ``leads[j] >= tau[j]``, else by
    all L, and takes j or L evaluations. With b = floor(share N) draws that may be decided
    otherwise, the search is over all ways to let the first members take k_1 of them, the first two
    k_2 of the rest, and so on, in steps of ceil(b / :data:`MAX_SHARES`); the last stage may take
    what is left. Given k_j the least threshold is best: it leaves fewer draws to the members that
    follow, and fewer that they could decide otherwise. So for L = 2, and with at most MAX_SHARES
    such draws for any L, no thresholds need fewer evaluations on these draws.

    Args:
        leads: Lead of the largest class in the average of the first 1, ..., L - 1 members, shape (L
            - 1, N), N >= 1.
        differs: Whether that class is another one than that of all members, shape (L - 1, N).
        share: Of draws, in [0, 1).
    """
    stages, draws = leads.shape
    budget = int(share * draws)
    thresholds = _search(leads, differs, budget, step=max(1, -(-budget // MAX_SHARES)))[1]
    decided = np.vstack(
        [leads >= np.reshape(thresholds, (stages, 1)), np.ones((1, draws), dtype=bool)]
    )
    stage = decided.argmax(axis=0)  # the first
    other = np.vstack([differs, np.zeros((1, draws), dtype=bool)])[stage, np.arange(draws)]
    return CascadeFit(thresholds, float(other.mean()), float(stage.mean() + 1))


def _search(
    leads: NDArray[np.float64], differs: NDArray[np.bool_], budget: int, step: int
) -> tuple[int, tuple[float, ...]]:
    """Return the fewest further evaluations of these draws, and the thresholds that need them."""
    if not len(leads):
        return 0, ()
    wrong = np.sort(leads[0][differs[0]])[::-1]
    least = min(budget, len(wrong))  # more is of no use here
    spends = {*range(0, least, step), least} if len(leads) > 1 else {least}
    choices = []
    for spend in sorted(spends):
        threshold = float(np.nextafter(wrong[spend], np.inf)) if spend < len(wrong) else 0.0
        left = leads[0] < threshold
        taken = int((differs[0] & ~left).sum())  # fewer than ``spend`` where leads are equal
        further, later = _search(leads[1:, left], differs[1:, left], budget - taken, step)
        choices.append((int(left.sum()) + further, (threshold, *later)))
    return min(choices)
