"""What stored votes say beyond the radius: fewer samples, and two-sided certificates.

Rows keep the counts of every class, so no sample is evaluated again. In a two-sided certificate,
the part of alpha that the lower bound of the predicted class leaves pays for upper bounds of the
other classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, votes_for, votes_of
from rs.statistics.metrics import budget, check_radii
from rs.statistics.radius import lower_bound, radius, two_sided_radius

Floats = NDArray[np.float64]


def with_fewer_draws(rows: pd.DataFrame, draws: Iterable[int]) -> Iterator[pd.DataFrame]:
    """Yield, for each number of samples, the expected rows of that many of the n samples.

        E R = sum_k C(v, k) C(n - v, draws - k) / C(n, draws) R(k of draws)

    is their radius, the mean over all choices, for v votes of n for the class that the n0 samples
    selected (hypergeometric; terms of less than 1e-17 together, by Hoeffding 1963, are left out).
    A subset of independent samples is a set of independent samples. So an ACR of these rows is an
    unbiased estimate of the ACR of a run with ``draws`` samples, given the same n0 samples.

    Args:
        rows: Rows of ``rs.storage.certificate_rows.read_rows``, with their votes.
        draws: Numbers of samples, each at least 1 and at most n.
    Yields:
        Columns ``idx label radius correct n0 n alpha sigma``, for averages of radii: ``correct``
        says that the n0 samples selected the label.
    Raises:
        InputError: If the number of samples is not fixed, or smaller.
    """
    check_radii(rows)
    was_drawn = rows["n"].to_numpy() > 0
    labels = rows["label"].to_numpy()
    total, alpha, sigma = int(budget(rows, "n")), budget(rows, "alpha"), budget(rows, "sigma")
    selected = dense_votes(rows["counts0"]).argmax(axis=1)  # the lowest class of several
    is_right = was_drawn & (selected == labels)
    label_votes = votes_for(votes_of(rows["counts"]), labels)[is_right]
    votes, number_of_votes = np.unique(label_votes, return_inverse=True)
    columns = rows[["idx", "label", "n0", "alpha", "sigma"]]
    for number in draws:
        if number < 1 or (was_drawn.any() and number > total):
            raise InputError(
                f"draws must lie between 1 and the {total} that the rows have, got {number}"
            )
        radii = np.zeros(len(rows))
        if is_right.any():
            means = _mean_over_choices(votes, total, number, _unit_radii(number, alpha))
            radii[is_right] = sigma * means[number_of_votes]
        yield columns.assign(n=number, radius=radii, correct=is_right.astype(int))


def dense_votes(texts: Sequence[str], classes: int | None = None) -> NDArray[np.int64]:
    """Return votes by row and class, (N, classes), by default up to the largest class with votes.

    Raises:
        InputError: If a class with votes is not one of ``classes``.
    """
    row, k, votes = votes_of(texts)
    needed = k.max(initial=0) + 1
    if classes is None:
        classes = needed
    if needed > classes:
        text = list(texts)[row[k >= classes][0]]
        raise InputError(
            f"votes must be for one of {classes} classes, got {text}; give the right number of "
            "classes"
        )
    dense = np.zeros((len(texts), classes), dtype=np.int64)
    dense[row, k] = votes
    return dense


@cache
def _unit_radii(draws: int, alpha: float) -> Floats:
    """Return the radius at sigma 1 for 0, 1, ..., ``draws`` votes."""
    return radius(lower_bound(np.arange(draws + 1), draws, alpha), 1.0)


def _mean_over_choices(votes: NDArray[np.int64], total: int, draws: int, values: Floats) -> Floats:
    """Return the expectation of ``values[k]`` for each of ``votes`` (V,).

    k is hypergeometric: the number of these votes among ``draws`` of ``total`` samples. Its weights
    are products of ratios of neighbors, from the mode up and down, so no logarithm is rounded.

    Args:
        votes: Votes among ``total`` samples, (V,).
        total: The number of samples.
        draws: The smaller number of samples.
        values: A value for k = 0, ..., ``draws``.
    """
    width = min(draws, math.ceil(math.sqrt(20 * draws)) + 2)
    steps = np.arange(width, dtype=np.float64)
    v = votes.astype(np.float64)[:, None]
    mode = np.floor((draws + 1) * (v + 1) / (total + 2))
    up = mode + steps
    down = mode - steps
    ratios_up = (v - up) * (draws - up) / ((up + 1) * (total - v - draws + up + 1))
    ratios_down = down * (total - v - draws + down) / ((v - down + 1) * (draws - down + 1))
    rising = np.cumprod(ratios_up, axis=1)
    falling = np.cumprod(ratios_down, axis=1)
    weights = np.concatenate([falling[:, ::-1], np.ones_like(v), rising], axis=1)
    k = np.concatenate([(down - 1)[:, ::-1], mode, up + 1], axis=1)
    values_of_k = values[k.clip(0, draws).astype(np.int64)]
    return (weights * values_of_k).sum(axis=1) / weights.sum(axis=1)


def two_sided(rows: pd.DataFrame, classes: int) -> pd.DataFrame:
    """Return rows with the two-sided certificates of the same votes.

    The predicted class is the one that the n0 samples selected, the lowest of several, also if the
    one-sided certificate abstains.

    Args:
        rows: Rows of ``rs.storage.certificate_rows.read_rows``, with the votes of every class.
        classes: K, the number of classes, with or without votes.
    Raises:
        InputError: If the number of samples is not fixed, or a class is not one of ``classes``.
    """
    check_radii(rows)
    first = dense_votes(rows["counts0"], classes)
    votes = dense_votes(rows["counts"], classes)
    was_drawn = rows["n"].to_numpy() > 0
    selected = first.argmax(axis=1)
    sigma, alpha = budget(rows, "sigma"), budget(rows, "alpha")
    radii = np.zeros(len(rows))
    if was_drawn.any():
        radii[was_drawn] = two_sided_radius(votes[was_drawn], selected[was_drawn], sigma, alpha)
    predict = np.where(was_drawn & (radii == 0), ABSTAIN, selected)
    correct = (predict == rows["label"]).astype(int)
    return rows.assign(radius=radii, predict=predict, correct=correct)
