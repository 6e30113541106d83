"""Checks of certificate rows: what is read is recomputed from its votes, not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rs.statistics.certificate import (
    ABSTAIN,
    SET_SCOPE,
    UNLABELLED,
    Votes,
    draws_at_most,
    radii_asked,
    votes_for,
)
from rs.storage import tsv

if TYPE_CHECKING:
    import pandas as pd

IMPROBABLE = 1e-12
"""Probability of votes below which a bound that they contradict is refused."""
TOLERANCE = 1e-9
"""Relative difference below which numbers are equal: other versions of SciPy round otherwise."""

Columns = dict[str, NDArray[Any]]
"""Rows as arrays (N,) by name, which are compared faster than the columns of a frame."""


def as_arrays(frame: pd.DataFrame) -> Columns:
    """Return the columns of a frame as arrays."""
    return {str(name): column.to_numpy() for name, column in frame.items()}


def check_columns(path: Path, rows: Columns) -> None:
    """Refuse rows whose class, label and radius contradict each other; names the line."""
    first = np.unique(rows["idx"], return_index=True)[1]
    for bad, rule in (
        (~np.isin(np.arange(len(rows["idx"])), first), "idx must be unique"),
        (rows["idx"] < 0, "idx must be at least 0"),
        (rows["predict"] < ABSTAIN, "predict must be a class, or -1 (abstains)"),
        (
            (rows["label"] < 0) & (rows["label"] != UNLABELLED),
            "label must be a class, or -2 (not known)",
        ),
        (~np.isin(rows["correct"], (0, 1)), "correct must be 0 or 1"),
        (
            (rows["predict"] == rows["label"]) != (rows["correct"] == 1),
            "correct must be 1 iff predict is label",
        ),
        (
            (rows["label"] == UNLABELLED) != (rows["label"][0] == UNLABELLED),
            "label must be known of all or none",
        ),
        (rows["radius"] < 0, "radius must not be negative"),
        (
            (rows["predict"] == ABSTAIN) & (rows["radius"] != 0),
            "radius must be 0 where predict is -1 (abstains)",
        ),
    ):
        tsv.refuse(path, bad, rule)


def check_votes(path: Path, rows: Columns, first: Votes, second: Votes) -> None:
    """Check class, bound and radius of each row against the ones that its votes give
    (``smoothing.vote_counting``).
    """
    from rs.statistics.radius import (
        lower_bound,
        radius,
    )  # SciPy, which appending rows does not need

    selected = _most_votes(first, len(rows["idx"]))
    none = (rows["scope"] == SET_SCOPE) & (rows["predict"] == ABSTAIN) & (rows["p_lower"] == 0)
    is_selected, whole = rows["predict"] == selected, rows["mode"] == "certify"
    p_lower = rows["p_lower"].copy()
    votes = votes_for(second, selected)
    drawn, n, alpha = whole & ~none, rows["n"], rows["alpha"]
    p_lower[drawn] = lower_bound(votes[drawn], n[drawn], alpha[drawn])
    continuous = ~by_mode(rows, lambda mode: mode == "shortcut" or radii_asked(mode) is not None)
    expected_radius = np.where(continuous, radius(p_lower, rows["sigma"]), rows["radius"])
    for bad, rule in (
        (
            ~is_selected & (rows["predict"] != ABSTAIN),
            "predict must be the class with the most votes of counts0, or -1",
        ),
        (
            ~np.isclose(rows["p_lower"], p_lower, rtol=TOLERANCE, atol=0),
            "p_lower must be the lower bound of the votes",
        ),
        (
            (rows["mode"] != "shortcut") & (is_selected != (p_lower >= 0.5)),
            "predict must be the class iff p_lower is at least 1/2, else -1",
        ),
        (
            ~np.isclose(rows["radius"], expected_radius, rtol=TOLERANCE, atol=TOLERANCE),
            "radius must be that of p_lower and sigma",
        ),
        (
            (rows["mode"] == "shortcut") & (rows["radius"] + rows["p_lower"] > 0),
            "a shortcut must have the radius 0",
        ),
    ):
        tsv.refuse(path, bad, rule)
    early = by_mode(rows, lambda mode: draws_at_most(mode) is not None)
    if early.any():
        _check_early(path, rows, early, votes, none)


def _check_early(
    path: Path,
    rows: Columns,
    early: NDArray[np.bool_],
    votes: NDArray[np.int64],
    none: NDArray[np.bool_],
) -> None:
    """Check rows that stopped early against their mode and votes, as far as these tell.

    Args:
        path: For messages.
        rows: Of any mode.
        early: Which of them stopped early, shape (N,).
        votes: Those of the n draws for the class that was selected, shape (N,).
        none: Which may have selected no class, shape (N,).
    """
    from scipy.special import ndtr  # a tenth of a second, as above

    most = by_mode(rows, lambda mode: draws_at_most(mode) or 0)
    asked = by_mode(rows, lambda mode: radii_asked(mode) is not None)
    certified = asked & (rows["predict"] != ABSTAIN)
    pairs = zip(rows["radius"], rows["mode"], strict=True)
    listed = np.array([radius in (radii_asked(mode) or ()) for radius, mode in pairs])
    with np.errstate(over="ignore"):  # of a tiny sigma, whose Phi is 1
        p_radius = np.where(certified, ndtr(rows["radius"] / rows["sigma"]), 0.0)
    low, high = _limits(rows, votes, early, early & ~asked & (rows["n"] == most))
    for bad, rule in (
        (early & (rows["n"] > most), "n must be at most the number that ends the mode"),
        (early & (rows["n"] == 0) & ~none, "n must be at least 1 where n0 draws selected a class"),
        (certified & ~listed, "radius must be one of those of the mode"),
        (
            asked & ~np.isclose(rows["p_lower"], p_radius, rtol=TOLERANCE, atol=0),
            "p_lower must be Phi(radius / sigma) where a radius of the mode is certified, else 0",
        ),
        (
            rows["p_lower"] > high * (1 + TOLERANCE),
            "p_lower must be at most alpha^(1 / k), k its votes of counts, and probable by all n "
            "votes",
        ),
        (
            rows["p_lower"] < low * (1 - TOLERANCE),
            "p_lower must be at least the bound of the last look",
        ),
    ):
        tsv.refuse(path, bad, rule)


def _limits(
    rows: Columns, votes: NDArray[np.int64], early: NDArray[np.bool_], last: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the bound of rows that stopped early lies between, each of shape (N,); 0 and 1
    for other rows.

    Rows keep the votes of all draws together, not those of each look, so the bound is not
    recomputed. A look that establishes p from k' <= k of n' votes does so at a level of at most
    alpha, P_p(Binomial(n', p) >= k') <= alpha, and that probability is at least p^k'; so p <=
    alpha^(1 / k). A run stops when its votes contradict what it established, so the votes of all n
    draws have a probability of at least :data:`IMPROBABLE` at p. The last look, after the maximum
    of draws, keeps the part ``FINAL_LOOK_SHARE`` of alpha, and a run for the radius reports the
    largest bound that it has seen.
    """
    from rs.statistics.radius import lower_bound, upper_bound
    from rs.statistics.sequential import FINAL_LOOK_SHARE

    low, high, alpha = np.zeros(len(votes)), np.ones(len(votes)), rows["alpha"]
    probable = upper_bound(votes[early], np.maximum(rows["n"][early], 1), IMPROBABLE)
    high[early] = np.minimum(
        lower_bound(votes[early], np.maximum(votes[early], 1), alpha[early]), probable
    )
    low[last] = lower_bound(votes[last], rows["n"][last], FINAL_LOOK_SHARE * alpha[last])
    return low, high


def by_mode(rows: Columns, what: Callable[[str], Any]) -> NDArray[Any]:
    """Return what is true of the mode of each row; a file has few modes."""
    values = {mode: what(mode) for mode in {*rows["mode"]}}
    return np.array([values[mode] for mode in rows["mode"]])


def _most_votes(votes: Votes, rows: int) -> NDArray[np.int64]:
    """Return the class with the most votes of each row, the lowest of equals; :data:`ABSTAIN` of no
    votes.
    """
    row, classes, numbers = votes
    order = np.lexsort((classes, -numbers, row))
    first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    winners = np.full(rows, ABSTAIN)
    winners[row[first]] = classes[first]
    return winners
