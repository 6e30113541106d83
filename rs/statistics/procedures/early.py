"""Certification that stops early: as soon as it is known which of given radii hold.

The test is the one of :mod:`rs.statistics.sequential`. Its mode, with the largest number of samples
N, is ``at-radius:R,...:N``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from scipy.special import ndtr

from rs.params import Count, NonNegative, validated
from rs.statistics.certificate import ABSTAIN, TOLERANCE
from rs.statistics.procedures.base import Columns, Rule
from rs.statistics.radius import lower_bound, upper_bound
from rs.statistics.sequential import STEP, Decider

IMPROBABLE = 1e-12
"""Probability of votes below which a bound that they contradict is refused."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_BUDGET = r"[1-9][0-9]{0,17}"  # fits into 64 bits
_MODE = re.compile(rf"at-radius:({_NUMBER}(?:,{_NUMBER})*):({_BUDGET})", re.ASCII)


def _as_list(radii: Any) -> Any:
    """Return one radius as a list."""
    return radii if isinstance(radii, list) else [radii]


Radii = Annotated[list[NonNegative], Field(min_length=1), BeforeValidator(_as_list)]


@validated
class Stop:
    """When to stop before n samples, which become the maximum; section ``certify.stop``."""

    at_radius: Radii  # which of them are certified? increasing, in pixels of [0, 1]
    beta: Annotated[float, Field(gt=0, lt=1)]  # probability of giving up although the radius holds
    step: Annotated[Count, Field(multiple_of=STEP)]  # minimum number of samples between two looks

    def new_test(self, sigma: float, alpha: float, budget: int) -> Decider:
        """Return a test of one image with at most ``budget`` samples."""
        return Decider(self.at_radius, sigma, alpha, budget, beta=self.beta, step=self.step)


class EarlyMode(NamedTuple):
    """What the mode of rows that stopped early says."""

    radii: tuple[float, ...]  # the rows say which of them are certified, and of no other radius
    budget: int  # largest number of samples


@cache  # a file has few modes
def parse_mode(mode: str) -> EarlyMode | None:
    """Parse the mode of rows that stopped early; return ``None`` for other modes.

    >>> parse_mode("at-radius:0.25,0.5:100000")
    EarlyMode(radii=(0.25, 0.5), budget=100000)
    >>> parse_mode("certify")
    """
    match = _MODE.fullmatch(mode)
    if match is None:
        return None
    return EarlyMode(tuple(map(float, match[1].split(","))), int(match[2]))


def is_early(mode: str) -> bool:
    """Return whether rows that stopped early have the mode."""
    return parse_mode(mode) is not None


def early_rules(
    rows: Columns, selected: NDArray[np.int64], votes: NDArray[np.int64]
) -> Iterator[Rule]:
    """Yield the rules of rows that stopped early: mode and votes do not determine everything."""
    budgets = np.zeros_like(votes)
    is_listed = np.zeros(len(votes), dtype=bool)
    for number, (mode, radius) in enumerate(zip(rows["mode"], rows["radius"], strict=True)):
        stop = parse_mode(mode)
        assert stop is not None  # these are rows that stopped early
        budgets[number] = stop.budget
        is_listed[number] = radius in stop.radii
    yield rows["n"] > budgets, "n must be at most the number that ends the mode"
    yield rows["n"] == 0, "n must be at least 1"

    is_certified = rows["predict"] != ABSTAIN
    yield is_certified & ~is_listed, "radius must be one of those of the mode"
    with np.errstate(over="ignore"):  # of a tiny sigma, whose Phi is 1
        p_radius = np.where(is_certified, ndtr(rows["radius"] / rows["sigma"]), 0.0)
    is_equal = np.isclose(rows["p_lower"], p_radius, rtol=TOLERANCE, atol=0)
    rule = "p_lower must be Phi(radius / sigma) where a radius of the mode is certified, else 0"
    yield ~is_equal, rule
    rule = "p_lower must be at most alpha^(1 / k), k its votes, and probable by all n votes"
    yield rows["p_lower"] > _largest_bound(rows, votes) * (1 + TOLERANCE), rule


def _largest_bound(rows: Columns, votes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what the lower bound of each row cannot exceed, shape (N,).

    Rows keep the votes of all samples together, not those of each look, so the bound is not
    recomputed. A look that establishes p from k' <= k of n' votes does so at a level of at most
    alpha, P_p(Binomial(n', p) >= k') <= alpha, and that probability is at least p^k'; so p <=
    alpha^(1 / k). A test stops when its votes contradict what it established, so the votes of all
    n samples have a probability of at least :data:`IMPROBABLE` at p.
    """
    unanimous = lower_bound(votes, np.maximum(votes, 1), rows["alpha"])
    probable = upper_bound(votes, np.maximum(rows["n"], 1), IMPROBABLE)
    return np.minimum(unanimous, probable)
