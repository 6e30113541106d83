"""Certification that stops early: at given radii, or at an error of the average radius.

The tests are those of :mod:`rs.statistics.sequential`. Their modes, with the largest number of
samples N, are ``at-radius:R,...:N`` and ``acr-error:E:N``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from scipy.special import ndtr

from rs.params import Count, NonNegative, Positive, validated
from rs.statistics.certificate import ABSTAIN, TOLERANCE
from rs.statistics.procedures.base import (
    Columns,
    Rule,
    SequentialTest,
)
from rs.statistics.radius import lower_bound, radius, upper_bound
from rs.statistics.sequential import FINAL_LOOK_SHARE, STEP, Decider, ExpectedRadius

IMPROBABLE = 1e-12
"""Probability of votes below which a bound that they contradict is refused."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_MODE = re.compile(
    rf"(?:at-radius:({_NUMBER}(?:,{_NUMBER})*)|acr-error:{_NUMBER}):([1-9][0-9]*)", re.ASCII
)


def _as_list(radii: Any) -> Any:
    """Return one radius as a list."""
    return radii if isinstance(radii, list) else [radii]


Radii = Annotated[list[NonNegative], Field(min_length=1), BeforeValidator(_as_list)]


@validated
class Stop:
    """When to stop before n samples, which become the maximum; section ``certify.stop``.

    Exactly one of ``at_radius`` and ``acr_error`` is given: the question is which of those radii
    are certified, or what the average radius is to within that error.
    """

    beta: Annotated[float, Field(gt=0, lt=1)]  # probability of giving up although the radius holds
    step: Annotated[Count, Field(multiple_of=STEP)]  # minimum number of samples between two looks
    at_radius: Radii | None = None  # increasing, in pixels of [0, 1]
    acr_error: Positive | None = None  # largest loss of the average radius, in pixels of [0, 1]

    def __post_init__(self) -> None:
        if (self.at_radius is None) == (self.acr_error is None):
            raise ValueError("one of at_radius, acr_error must be given, and no two")

    def new_test(self, sigma: float, alpha: float, budget: int) -> SequentialTest:
        """Return a test of one image with at most ``budget`` samples."""
        if self.at_radius is not None:
            return Decider(self.at_radius, sigma, alpha, budget, beta=self.beta, step=self.step)
        assert self.acr_error is not None  # one of the two is given
        return ExpectedRadius(sigma, self.acr_error, alpha, budget, beta=self.beta, step=self.step)


def is_early(mode: str) -> bool:
    """Return whether rows that stopped early have the mode."""
    return _MODE.fullmatch(mode) is not None


def draws_at_most(mode: str) -> int | None:
    """Return the largest number of samples of a mode that stops early; ``None`` for the others.

    >>> draws_at_most("acr-error:0.05:100000"), draws_at_most("certify")
    (100000, None)
    """
    match = _MODE.fullmatch(mode)
    return int(match[2]) if match else None


def radii_asked(mode: str) -> tuple[float, ...] | None:
    """Return the radii of a mode whose rows say only which of them are certified, or ``None``.

    >>> radii_asked("at-radius:0.25,0.5:100000"), radii_asked("certify")
    ((0.25, 0.5), None)
    """
    match = _MODE.fullmatch(mode)
    if match is None or match[1] is None:
        return None
    return tuple(map(float, match[1].split(",")))


def early_rules(
    rows: Columns, selected: NDArray[np.int64], votes: NDArray[np.int64]
) -> Iterator[Rule]:
    """Yield the rules of rows that stopped early: mode and votes do not determine everything."""
    most_draws = _by_mode(rows, draws_at_most)
    is_of_radii = _by_mode(rows, lambda mode: radii_asked(mode) is not None)
    is_certified = rows["predict"] == selected
    rule = "predict must be the class iff p_lower is at least 1/2, else -1"
    yield is_certified != (rows["p_lower"] >= 0.5), rule
    expected_radius = radius(rows["p_lower"], rows["sigma"])
    is_equal = np.isclose(rows["radius"], expected_radius, rtol=TOLERANCE, atol=TOLERANCE)
    yield ~is_of_radii & ~is_equal, "radius must be that of p_lower and sigma"
    yield rows["n"] > most_draws, "n must be at most the number that ends the mode"
    rule = "n must be at least 1"
    yield rows["n"] == 0, rule

    has_radius = is_of_radii & (rows["predict"] != ABSTAIN)
    pairs = zip(rows["radius"], rows["mode"], strict=True)
    is_listed = np.array([radius in (radii_asked(mode) or ()) for radius, mode in pairs])
    yield has_radius & ~is_listed, "radius must be one of those of the mode"
    with np.errstate(over="ignore"):  # of a tiny sigma, whose Phi is 1
        p_radius = np.where(has_radius, ndtr(rows["radius"] / rows["sigma"]), 0.0)
    is_equal = np.isclose(rows["p_lower"], p_radius, rtol=TOLERANCE, atol=0)
    rule = "p_lower must be Phi(radius / sigma) where a radius of the mode is certified, else 0"
    yield is_of_radii & ~is_equal, rule

    rule = "p_lower must be at most alpha^(1 / k), k its votes, and probable by all n votes"
    yield rows["p_lower"] > _largest_bound(rows, votes) * (1 + TOLERANCE), rule
    is_last_look = ~is_of_radii & (rows["n"] == most_draws)
    smallest_bound = np.zeros(len(votes))
    smallest_bound[is_last_look] = lower_bound(
        votes[is_last_look],
        rows["n"][is_last_look],
        FINAL_LOOK_SHARE * rows["alpha"][is_last_look],
    )
    rule = "p_lower must be at least the bound of the last look"
    yield rows["p_lower"] < smallest_bound * (1 - TOLERANCE), rule


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


def _by_mode(rows: Columns, what: Callable[[str], Any]) -> NDArray[Any]:
    """Return what is true of the mode of each row; a file has few modes."""
    values = {mode: what(mode) for mode in {*rows["mode"]}}
    return np.array([values[mode] for mode in rows["mode"]])
