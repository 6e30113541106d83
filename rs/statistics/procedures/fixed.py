"""CERTIFY with a fixed number of samples (Cohen, Rosenfeld & Kolter 2019), and its shortcut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rs.statistics.certificate import TOLERANCE
from rs.statistics.procedures.base import Columns, Rule
from rs.statistics.radius import lower_bound, radius

MODE = "certify"

SHORTCUT = "shortcut"
"""Mode of rows without the n samples, as the class that n0 samples selected is not the label."""


class FixedTest:
    """A test that takes all its samples at once.

    Args:
        sigma: Noise standard deviation, in pixels of [0, 1].
        alpha: Failure probability of the certificate.
        budget: Number of samples.
    """

    mode: str = MODE

    def __init__(self, sigma: float, alpha: float, budget: int) -> None:
        self.sigma = sigma
        self.alpha = alpha
        self.budget = budget
        self.draws = 0
        self.successes = 0

    def next_draws(self) -> int:
        """Return how many samples to take: all, and then none."""
        return self.budget - self.draws

    def update(self, successes: int, draws: int) -> None:
        """Count the votes for the selected class."""
        self.successes += successes
        self.draws += draws

    def certified(self) -> tuple[float, float | None]:
        """Return the Clopper-Pearson bound, and its radius or ``None`` if it is below 1/2."""
        p_lower, certified_radius = _bound_and_radius(
            self.successes, self.draws, self.alpha, self.sigma
        )
        return p_lower, certified_radius if p_lower >= 0.5 else None


@lru_cache(maxsize=2**14)  # hundreds of classifiers of a pool share few numbers of votes
def _bound_and_radius(votes: int, n: int, alpha: float, sigma: float) -> tuple[float, float]:
    p_lower = float(lower_bound(votes, n, alpha))
    return p_lower, float(radius(p_lower, sigma))


def is_fixed(mode: str) -> bool:
    """Return whether rows of a fixed number of samples have the mode."""
    return mode in (MODE, SHORTCUT)


def fixed_rules(
    rows: Columns, selected: NDArray[np.int64], votes: NDArray[np.int64]
) -> Iterator[Rule]:
    """Yield the rules of such rows: bound and radius follow from the votes."""
    is_shortcut = rows["mode"] == SHORTCUT
    yield is_shortcut != (rows["n"] == 0), "n must be 0 for a shortcut and only there"
    yield is_shortcut & (rows["correct"] == 1), "a shortcut is for a wrong class"
    has_samples = ~is_shortcut
    p_lower = rows["p_lower"].copy()
    p_lower[has_samples] = lower_bound(
        votes[has_samples], rows["n"][has_samples], rows["alpha"][has_samples]
    )
    is_equal = np.isclose(rows["p_lower"], p_lower, rtol=TOLERANCE, atol=0)
    yield ~is_equal, "p_lower must be the lower bound of the votes"
    is_certified = rows["predict"] == selected
    rule = "predict must be the class iff p_lower is at least 1/2, else -1"
    yield has_samples & (is_certified != (p_lower >= 0.5)), rule
    yield (
        is_shortcut & (rows["radius"] + rows["p_lower"] > 0),
        "a shortcut must have the radius 0",
    )
    expected_radius = radius(p_lower, rows["sigma"])
    is_equal = np.isclose(rows["radius"], expected_radius, rtol=TOLERANCE, atol=TOLERANCE)
    yield ~is_equal, "radius must be that of p_lower and sigma"
