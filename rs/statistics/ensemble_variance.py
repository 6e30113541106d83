"""The paper's analysis of ensembles per image: variances, covariances and Chebyshev's bound.

Margins have shape (..., L, N, K): L members, N samples, K classes (``rs.ensemble.member_outputs``).
Moments are those of the N samples, so Chebyshev's inequality holds exactly for the share of the
same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rs.statistics.ensemble_weights import Floats, moments, other_classes


class Spread(NamedTuple):
    """The constants of the paper's bound on the variance of an average; (..., K) each."""

    alpha: Floats  # max_l Var(z^l)_ii
    beta: Floats  # max_{l != m} Cov(z^l, z^m)_ii


def spread(covariances: ArrayLike) -> Spread:
    """Return the largest variance of a member, and covariance of two members, for each class.

    Args:
        covariances: Of the members' margins, class by class, (..., K, L, L):
            ``ensemble_weights.moments`` of them, or :func:`trained_covariances`.
    """
    s = np.asarray(covariances, dtype=np.float64)
    pairs = s[..., ~np.eye(s.shape[-1], dtype=bool)]  # (..., K, L (L - 1))
    return Spread(np.diagonal(s, axis1=-2, axis2=-1).max(axis=-1), pairs.max(axis=-1))


def trained_covariances(margins: ArrayLike, methods: Sequence[str]) -> Floats:
    """Return covariances of margins over noise and training, from independently trained members.

    Members of one method differ only in their seeds, so training adds the variance of their mean
    margins (over seeds, divided by their number minus 1) to the variance of each, and nothing to a
    covariance. For a method with one member this variance is unknown, and nothing is added.

    Args:
        margins: With noise on the image only, shape (..., L, N, K).
        methods: Training method of each member, length L.
    Returns:
        Shape (..., K, L, L).
    """
    means, covariances = moments(margins)  # (..., L, K), (..., K, L, L)
    added = np.zeros_like(means)
    for method in set(methods):
        is_own = np.array([name == method for name in methods])
        if is_own.sum() > 1:
            between_seeds = means[..., is_own, :].var(axis=-2, ddof=1)
            added[..., is_own, :] = between_seeds[..., None, :]
    by_class = np.moveaxis(added, -1, -2)  # (..., K, L)
    return covariances + np.eye(len(methods)) * by_class[..., None]


def average_variance_bound(alpha: ArrayLike, beta: ArrayLike, members: int) -> Floats:
    """Return the bound on the variance of an average of k members (the paper, eq. varzi).

        Var(mean of k members)_ii <= beta_i + (alpha_i - beta_i) / k

    >>> average_variance_bound(1.0, 0.5, 4)
    np.float64(0.625)
    """
    a = np.asarray(alpha, dtype=np.float64)
    b = np.asarray(beta, dtype=np.float64)
    return b + (a - b) / members


class Covariances(NamedTuple):
    """Means over classes i != y and over members or pairs; (...) each, NaN if there is no pair."""

    variance: Floats  # of a member
    within: Floats  # covariance of two members of one method
    across: Floats  # covariance of members of two methods


def mean_covariances(covariances: ArrayLike, y: ArrayLike, methods: Sequence[str]) -> Covariances:
    """Return mean variances of members, and mean covariances within and across training methods.

    Args:
        covariances: As for :func:`spread`.
        y: The class of the margins, shape (...).
        methods: Training method of each member, length L.
    """
    s = np.asarray(covariances, dtype=np.float64)
    is_other = other_classes(y, s.shape[-3])  # (..., K)
    total = np.where(is_other[..., None, None], s, 0.0).sum(axis=-3)
    mean = total / is_other.sum(axis=-1)[..., None, None]  # (..., L, L)
    names = np.array(methods)
    is_same_method = names[:, None] == names
    is_itself = np.eye(len(methods), dtype=bool)
    return Covariances(
        variance=_mean(mean[..., is_itself]),
        within=_mean(mean[..., is_same_method & ~is_itself]),
        across=_mean(mean[..., ~is_same_method]),
    )


def _mean(values: Floats) -> Floats:
    """Return the mean of the last axis, NaN if it is empty."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return values.mean(axis=-1)


class Bounds(NamedTuple):
    """Bounds minimum <= weighted on the share of samples of class y, and this share; (...) each."""

    weighted: Floats  # e_i = sum_l w_l E[z^l_i], the mean margin of the ensemble
    minimum: Floats  # e_i = min_l E[z^l_i], the paper's, which does not depend on the weights
    measured: Floats  # share of samples in which every margin of the ensemble is positive


def chebyshev_bounds(margins: ArrayLike, y: ArrayLike, weights: ArrayLike) -> Bounds:
    """Return lower bounds on the probability p_1 of class y (the paper, eq. lower_bound).

        p_1 >= 1 - sum_{i != y} w' S_i w / e_i^2,    0 if this is negative or any e_i <= 0

    Args:
        margins: Shape (..., L, N, K).
        y: The class of the margins, shape (...).
        weights: On the simplex, shape (..., L).
    """
    z = np.asarray(margins, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    means, _ = moments(z)
    is_other = other_classes(y, z.shape[-1])
    ensemble = np.einsum("...l,...lnk->...nk", w, z)  # (..., N, K)
    variances = ensemble.var(axis=-2)
    is_above = (ensemble > 0) | ~is_other[..., None, :]
    minimum = np.broadcast_to(means.min(axis=-2), variances.shape)
    return Bounds(
        weighted=_chebyshev(variances, ensemble.mean(axis=-2), is_other),
        minimum=_chebyshev(variances, minimum, is_other),
        measured=is_above.all(axis=-1).mean(axis=-1),
    )


def _chebyshev(variances: Floats, e: Floats, is_other: NDArray[np.bool_]) -> Floats:
    is_positive = (e > 0) | ~is_other
    safe = np.where(is_other & is_positive, e, 1.0)
    with np.errstate(over="ignore"):  # an infinite term makes the bound 0
        terms = variances / safe / safe
    failures = np.where(is_other, terms, 0.0).sum(axis=-1)
    bounds = (1 - failures).clip(min=0.0)
    return np.where(is_positive.all(axis=-1), bounds, 0.0)
