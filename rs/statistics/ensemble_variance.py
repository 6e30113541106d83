"""The paper's analysis of ensembles in numbers, image by image: variances, covariances and
Chebyshev's bound.

Margins have shape (..., L, N, K): L members, N draws, K classes (``rs.ensemble.member_outputs``).
Moments are those of the N draws, so Chebyshev's inequality holds exactly for the share of the same
draws.
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
    """Return the largest variance of a member, and the largest covariance of two, against each
    class.

    Args:
        covariances: Of the members' margins, class by class, (..., K, L, L):
            ``ensemble_weights.moments`` of them, or :func:`trained_covariances`.
    """
    s = np.asarray(covariances, dtype=np.float64)
    pairs = s[..., ~np.eye(s.shape[-1], dtype=bool)]  # (..., K, L (L - 1))
    return Spread(np.diagonal(s, axis1=-2, axis2=-1).max(axis=-1), pairs.max(axis=-1))


def trained_covariances(margins: ArrayLike, methods: Sequence[str]) -> Floats:
    """Return covariances of margins over noise and training, from independently trained members as
    they are.

    Members of one method differ by their seeds alone, and independently, so training adds the
    variance of their mean margins (over seeds, divided by their number less 1) to the variance of
    each, and nothing to a covariance. A method with one member does not tell it, and adds nothing.

    Args:
        margins: Under noise on the image alone, shape (..., L, N, K).
        methods: Training method of each member, length L.
    Returns:
        Shape (..., K, L, L).
    """
    means, covariances = moments(margins)  # (..., L, K), (..., K, L, L)
    added = np.zeros_like(means)
    for method in set(methods):
        of_method = np.array([name == method for name in methods])
        if of_method.sum() > 1:
            added[..., of_method, :] = means[..., of_method, :].var(axis=-2, ddof=1)[..., None, :]
    return covariances + np.eye(len(methods)) * np.moveaxis(added, -1, -2)[..., None]


def average_variance_bound(alpha: ArrayLike, beta: ArrayLike, members: int) -> Floats:
    """Return the bound Var(mean of k members)_ii <= beta_i + (alpha_i - beta_i) / k (the paper, eq.
    varzi).

    >>> average_variance_bound(1.0, 0.5, 4)
    np.float64(0.625)
    """
    a, b = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    return b + (a - b) / members


class Covariances(NamedTuple):
    """Means over classes i != y and over members or pairs; (...) each, NaN where there is no pair."""

    variance: Floats  # of a member
    within: Floats  # covariance of two members of one method
    across: Floats  # covariance of members of two methods


def mean_covariances(covariances: ArrayLike, y: ArrayLike, methods: Sequence[str]) -> Covariances:
    """Return mean variances of members, and mean covariances within and across training methods.

    Args:
        covariances: As for :func:`spread`.
        y: The class the margins are of, shape (...).
        methods: Training method of each member, length L.
    """
    s = np.asarray(covariances, dtype=np.float64)
    others = other_classes(y, s.shape[-3])  # (..., K)
    mean = (
        np.where(others[..., None, None], s, 0.0).sum(axis=-3)
        / others.sum(axis=-1)[..., None, None]
    )
    same = np.array([[a == b for b in methods] for a in methods])
    itself = np.eye(len(methods), dtype=bool)
    return Covariances(*(_mean(mean[..., chosen]) for chosen in (itself, same & ~itself, ~same)))


def _mean(values: Floats) -> Floats:
    """Return the mean of the last axis, NaN if it is empty."""
    return values.mean(axis=-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)


class Bounds(NamedTuple):
    """Lower bounds on p_1, the probability that the ensemble gives class y, and the share measured;
    (...) each.

    minimum <= weighted <= measured, always.
    """

    weighted: Floats  # e_i = sum_l w_l E[z^l_i], the mean margin of the ensemble
    minimum: Floats  # e_i = min_l E[z^l_i], the paper's, which does not depend on the weights
    measured: Floats  # share of draws in which every margin of the ensemble is positive


def chebyshev_bounds(margins: ArrayLike, y: ArrayLike, weights: ArrayLike) -> Bounds:
    """Return the bounds p_1 >= 1 - sum_{i != y} w' S_i w / e_i^2, clipped at 0 (the paper, eq.
    lower_bound).

    The step needs e_i > 0, so a bound with any e_i <= 0 is 0.

    Args:
        margins: Shape (..., L, N, K).
        y: The class the margins are of, shape (...).
        weights: On the simplex, shape (..., L).
    """
    z, w = np.asarray(margins, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    means, _ = moments(z)
    others = other_classes(y, z.shape[-1])
    ensemble = np.einsum("...l,...lnk->...nk", w, z)  # (..., N, K)
    variances = ensemble.var(axis=-2)
    measured = ((ensemble > 0) | ~others[..., None, :]).all(axis=-1).mean(axis=-1)
    minimum = np.broadcast_to(means.min(axis=-2), variances.shape)
    return Bounds(
        _chebyshev(variances, ensemble.mean(axis=-2), others),
        _chebyshev(variances, minimum, others),
        measured,
    )


def _chebyshev(variances: Floats, e: Floats, others: NDArray[np.bool_]) -> Floats:
    positive = (e > 0) | ~others
    safe = np.where(others & positive, e, 1.0)
    with np.errstate(over="ignore"):  # an infinite term leaves the bound 0
        terms = variances / safe / safe
    failures = np.where(others, terms, 0.0).sum(axis=-1)
    return np.where(positive.all(axis=-1), (1 - failures).clip(min=0.0), 0.0)
