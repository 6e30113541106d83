"""What stored votes say beyond the radius: fewer draws, and two-sided certificates.

Rows keep the counts of every class, so no draw is repeated. In a two-sided certificate, what the
lower bound of the predicted class leaves of alpha pays for upper bounds of the other classes. How
it is split may depend on the n0 draws: given these, it is fixed before the n draws, whose bounds
hold together with probability 1 - alpha, whatever the n0 draws say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, votes_for, votes_of
from rs.statistics.metrics import budget, mode_of
from rs.statistics.radius import lower_bound, radius, two_sided_radius

Floats = NDArray[np.float64]

Split: TypeAlias = Literal["even", "votes"]
"""How the rest of alpha is split over the other classes.

``even``: each has the same part. ``votes``: in proportion to its votes among the n0 draws and one
more, so that the class that bounds the radius has most of it.
"""

SPLITS: tuple[Split, ...] = get_args(Split)


def with_fewer_draws(rows: pd.DataFrame, draws: Iterable[int]) -> Iterator[pd.DataFrame]:
    """Yield, for each number of draws, the rows that this many of the n draws make.

        E R = sum_k C(v, k) C(n - v, draws - k) / C(n, draws) R(k of draws)

    is their radius, the mean over all choices, for v votes of n for the class that the n0 draws
    chose (hypergeometric; terms of less than 1e-17 together, by Hoeffding 1963, are left out). Some
    of independent draws are independent draws. So the mean over n draws of E R is the mean radius
    of a run of ``draws`` draws: an ACR of these rows is an unbiased estimate of that run's, given
    the same n0 draws.

    Args:
        rows: As ``rs.storage.certificate_rows.read_rows`` gives them, with their votes, which are
            read once.
        draws: Each at least 1 and at most n.
    Yields:
        Columns ``idx label radius correct n0 n alpha sigma``, for averages of radii: ``correct``
        says that the n0 draws chose the label.
    Raises:
        InputError: If the rows do not hold all their votes, or only fewer draws.
    """
    if mode_of(rows) != "certify" or (rows["counts0"].to_numpy() == "-").any():
        raise InputError(
            "fewer draws need rows of a fixed number of draws with votes, got others; certify again"
        )
    drawn, labels = rows["n"].to_numpy() > 0, rows["label"].to_numpy()
    total, alpha, sigma = int(budget(rows, "n")), budget(rows, "alpha"), budget(rows, "sigma")
    chosen = dense_votes(rows["counts0"]).argmax(axis=1)  # the lowest class of several
    right = drawn & (chosen == labels)
    votes, number_of_votes = np.unique(
        votes_for(votes_of(rows["counts"]), labels)[right], return_inverse=True
    )
    columns = rows[["idx", "label", "n0", "alpha", "sigma"]]
    for number in draws:
        if number < 1 or (drawn.any() and number > total):
            raise InputError(
                f"draws must lie between 1 and the {total} that the rows have, got {number}"
            )
        radii = np.zeros(len(rows))
        if right.any():
            radii[right] = (
                sigma
                * _mean_over_choices(votes, total, number, _unit_radii(number, alpha))[
                    number_of_votes
                ]
            )
        yield columns.assign(n=number, radius=radii, correct=right.astype(int))


def dense_votes(texts: Sequence[str], classes: int | None = None) -> NDArray[np.int64]:
    """Return votes by row and class, (N, classes); by default up to the largest class with votes.

    Raises:
        InputError: If a class with votes is not one of ``classes``.
    """
    row, k, votes = votes_of(texts)
    width = k.max(initial=0) + 1 if classes is None else classes
    if k.max(initial=0) >= width:
        text = list(texts)[row[k >= width][0]]
        raise InputError(
            f"votes must be for one of {width} classes, got {text}; give the right number of "
            "classes"
        )
    dense = np.zeros((len(texts), width), dtype=np.int64)
    dense[row, k] = votes
    return dense


@cache
def _unit_radii(draws: int, alpha: float) -> Floats:
    """Return the radius at sigma 1 for 0, 1, ..., ``draws`` votes."""
    return radius(lower_bound(np.arange(draws + 1), draws, alpha), 1.0)


def _mean_over_choices(votes: NDArray[np.int64], total: int, draws: int, values: Floats) -> Floats:
    """Return the mean of ``values`` (draws + 1,) at the votes among ``draws`` of ``total``, for
    each of ``votes`` (V,).

    Weights are products of ratios of neighbours, from the mode up and down, so no logarithm is
    rounded.
    """
    steps = np.arange(min(draws, math.ceil(math.sqrt(20 * draws)) + 2), dtype=np.float64)
    v = votes.astype(np.float64)[:, None]
    mode = np.floor((draws + 1) * (v + 1) / (total + 2))
    up, down = mode + steps, mode - steps
    rising = np.cumprod((v - up) * (draws - up) / ((up + 1) * (total - v - draws + up + 1)), axis=1)
    falling = np.cumprod(
        down * (total - v - draws + down) / ((v - down + 1) * (draws - down + 1)), axis=1
    )
    weights = np.concatenate([falling[:, ::-1], np.ones_like(v), rising], axis=1)
    at = np.concatenate([(down - 1)[:, ::-1], mode, up + 1], axis=1).clip(0, draws).astype(np.int64)
    return (weights * values[at]).sum(axis=1) / weights.sum(axis=1)


def two_sided(rows: pd.DataFrame, classes: int) -> dict[Split, pd.DataFrame]:
    """Return rows with the two-sided certificates of the same votes, for every split.

    The predicted class is the one that the n0 draws chose, also where the one-sided certificate
    abstains; of several the lowest.

    Args:
        rows: As ``rs.storage.certificate_rows.read_rows`` gives them, with the votes of every
            class.
        classes: K, the number of classes, with or without votes.
    Raises:
        InputError: If the rows do not hold all their votes.
    """
    if mode_of(rows) != "certify":
        raise InputError(
            f"a two-sided radius needs rows of a fixed number of draws, got {mode_of(rows)}; "
            "certify again"
        )
    first, votes = (dense_votes(rows[name], classes) for name in ("counts0", "counts"))
    if not first.any(axis=1).all():
        raise InputError(
            "a two-sided radius needs the votes of the n0 draws; certify with this project's rows"
        )
    if (votes.sum(axis=1) != rows["n"].to_numpy()).any():
        raise InputError(
            "a two-sided radius needs the votes of all classes in every row; certify again"
        )
    drawn, chosen, by_split = rows["n"].to_numpy() > 0, first.argmax(axis=1), {}
    sigma, alpha = budget(rows, "sigma"), budget(rows, "alpha")
    for split in SPLITS:
        weights = first[drawn] + 1 if split == "votes" else None
        radii = np.zeros(len(rows))
        if drawn.any():
            radii[drawn] = two_sided_radius(votes[drawn], chosen[drawn], sigma, alpha, weights)
        predict = np.where(drawn & (radii == 0), ABSTAIN, chosen)
        by_split[split] = rows.assign(
            radius=radii, predict=predict, correct=(predict == rows["label"]).astype(int)
        )
    return by_split
