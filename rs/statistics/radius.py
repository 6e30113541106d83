"""From votes to radii: exact binomial bounds and the certified l2 radius (pure NumPy and SciPy).

Votes are counts of successes among independent trials; bounds are one-sided Clopper-Pearson; radii
have the unit of ``sigma``. Every function takes scalars or arrays and broadcasts. Scalar arguments
give a scalar.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv, ndtri

from rs.statistics.certificate import ABSTAIN, MIN_ALPHA

_power = np.vectorize(math.pow, otypes=[np.float64])
"""The C library's power. NumPy's last digit differs between scalars, arrays and processors."""

_log = np.vectorize(math.log, otypes=[np.float64])
"""The C library's logarithm, for the same reason."""


_BELOW_ONE = math.nextafter(1.0, 0.0)

PREDICTED_SHARE = 0.9
"""Share of alpha that the lower bound of the predicted class has in a two-sided radius."""

_MIN_LEVEL = MIN_ALPHA * 1e-50
"""Smallest share of an alpha at which a bound is computed."""


def lower_bound(successes: ArrayLike, trials: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """Return the one-sided lower confidence bound of a success probability.

    It is exact (Clopper and Pearson 1934):

        P_p(Binomial(trials, p) >= successes) = alpha  at p = the bound

    The true probability lies below the bound with probability at most ``alpha`` over the trials.

    Args:
        successes: Whole numbers in [0, trials], shape (...).
        trials: Whole numbers of at least 1, broadcast against ``successes``.
        alpha: Failure probability, in (0, 1), at least 1e-250; below 1e-260 SciPy's quantiles are
            inaccurate. Broadcast too.
    Returns:
        Bounds in [0, 1), shape (...); 0 without successes, ``alpha ** (1 / trials)`` if all trials
        are successes. A bound that would be rounded to 1 is the largest number below 1, and one
        that SciPy does not find is 0.
    Raises:
        ValueError: If an argument leaves its range or is not a number.

    >>> lower_bound([0, 99_000, 100_000], 100_000, 0.001).round(6)
    array([0.      , 0.988989, 0.999931])
    """
    k, n = _votes(successes, trials)
    _check_alpha(alpha)
    is_inner = (k > 0) & (k < n)
    a = np.where(is_inner, k, 1)
    b = np.where(is_inner, n - k + 1, 1)
    inner = np.nan_to_num(betaincinv(a, b, alpha), nan=0.0)
    edges = np.where(k == 0, 0.0, _power(alpha, 1.0 / n))
    return np.minimum(np.where(is_inner, inner, edges), _BELOW_ONE)[()]


def upper_bound(successes: ArrayLike, trials: ArrayLike, alpha: ArrayLike) -> NDArray[np.float64]:
    """Return the one-sided upper confidence bound of a success probability.

    It is exact (Clopper and Pearson 1934):

        P_p(Binomial(trials, p) <= successes) = alpha  at p = the bound

    Args:
        successes: Whole numbers in [0, trials], shape (...).
        trials: Whole numbers of at least 1, broadcast against ``successes``.
        alpha: As for :func:`lower_bound`.
    Returns:
        Bounds in (0, 1], shape (...); ``1 - alpha ** (1 / trials)`` without successes, 1 if all
        trials are successes or SciPy does not find the bound.
    Raises:
        ValueError: If an argument leaves its range or is not a number.

    >>> upper_bound([0, 5, 10], 10, 0.05).round(4)
    array([0.2589, 0.7776, 1.    ])
    """
    k, n = _votes(successes, trials)
    _check_alpha(alpha)
    is_inner = (k > 0) & (k < n)
    a = np.where(is_inner, k + 1, 1)
    b = np.where(is_inner, n - k, 1)
    inner = np.nan_to_num(betainccinv(a, b, alpha), nan=1.0)
    edges = np.where(k == n, 1.0, -np.expm1(_log(alpha) / n))
    return np.where(is_inner, inner, edges)[()]


def predicted_class(counts: NDArray[np.int64], alpha: float) -> int:
    """Return the class of PREDICT, or ABSTAIN; wrong with probability at most alpha.

    A two-sided binomial test of the two largest counts against 1/2 (Cohen et al. 2019; Hung &
    Fithian 2019).

    Args:
        counts: Votes per class, shape (K,).
        alpha: Failure probability.
    """
    from scipy.stats import binomtest  # takes a third of a second, which CERTIFY saves

    runner_up, top = (int(count) for count in np.sort(counts)[-2:])
    trials = top + runner_up
    is_significant = 2 * top > trials and binomtest(top, trials, 0.5).pvalue <= alpha
    return int(counts.argmax()) if is_significant else ABSTAIN


def radius(
    p_lower: ArrayLike, sigma: ArrayLike, p_upper: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return the certified l2 radius (Cohen et al. 2019, Theorem 1).

        R = sigma Phi^-1(p_lower)                          one-sided, if p_lower >= 1/2
        R = sigma / 2 (Phi^-1(p_lower) - Phi^-1(p_upper))  two-sided, if p_lower > p_upper
        R = 0                                              otherwise: the classifier abstains

    The one-sided form is the two-sided one with p_upper = 1 - p_lower.

    Args:
        p_lower: Lower bounds of the probability of the predicted class, shape (...), in [0, 1].
        sigma: Standard deviation of the noise, in pixels of [0, 1]; positive.
        p_upper: Upper bounds of the probability of every other class, in [0, 1]; ``None``:
            one-sided.
    Returns:
        Radii, shape (...), in the unit of ``sigma``; infinite only where a bound leaves no doubt (0
        or 1).
    Raises:
        ValueError: If a bound leaves [0, 1] or ``sigma`` is not positive.

    >>> radius([0.4, 0.5, 0.99], sigma=0.5).round(3)
    array([0.   , 0.   , 1.163])
    >>> radius(0.9, sigma=1.0, p_upper=0.05).round(4)
    np.float64(1.4632)
    """
    low = _probability(p_lower, "p_lower")
    scale = _sigma(sigma)
    if p_upper is None:
        return (scale * ndtri(np.where(low < 0.5, 0.5, low)))[()]
    high = _probability(p_upper, "p_upper")
    is_above = low > high
    spread = ndtri(np.where(is_above, low, 0.5)) - ndtri(np.where(is_above, high, 0.5))
    return (scale / 2 * spread)[()]


def two_sided_radius(
    counts: ArrayLike, predict: ArrayLike, sigma: ArrayLike, alpha: float
) -> NDArray[np.float64]:
    """Return the two-sided radius from the votes for every class.

    :data:`PREDICTED_SHARE` of alpha pays for the lower bound of the predicted class. The rest,
    split evenly over the K - 1 other classes (Bonferroni), pays for their upper bounds U_j, and
    p_upper = min(1 - p_lower, max_j U_j). All K bounds hold together with probability 1 - alpha. So
    the radius is as valid as the one-sided radius at ``alpha``, and at least the one-sided radius
    at that share of it. The votes must not be those that chose ``predict``.

    Args:
        counts: Votes per class, shape (..., K) with K >= 2, including classes without votes.
        predict: The class that was chosen beforehand, shape (...), in [0, K).
        sigma: Standard deviation of the noise; positive.
        alpha: Failure probability of the whole statement, in (0, 1).
    Returns:
        Radii, shape (...); 0 where the bounds overlap.
    Raises:
        ValueError: If an argument leaves its range.

    >>> two_sided_radius([900, 50, 50], 0, sigma=1.0, alpha=0.001).round(3)
    np.float64(1.252)
    >>> radius(lower_bound(900, 1000, 0.001), sigma=1.0).round(3)
    np.float64(1.114)
    """
    votes = np.asarray(counts)
    predicted = np.asarray(predict)
    _check_classes(votes, predicted)
    _check_alpha(alpha)
    total = votes.sum(axis=-1)
    classes = votes.shape[-1]
    is_predicted = predicted[..., None] == np.arange(classes)  # (..., K)
    predicted_votes = (votes * is_predicted).sum(axis=-1)
    p_lower = lower_bound(predicted_votes, total, PREDICTED_SHARE * alpha)
    rest = (1 - PREDICTED_SHARE) * alpha
    upper_bounds = upper_bound(votes, total[..., None], rest / (classes - 1))
    largest = np.where(is_predicted, 0.0, upper_bounds).max(axis=-1)
    return radius(p_lower, sigma, np.minimum(1 - p_lower, largest))


def cap(n: int, alpha: float, sigma: float) -> float:
    """Return the largest one-sided radius of ``n`` samples, which all vote for one class.

    >>> round(cap(100_000, 0.001, sigma=0.25), 5)
    0.95286
    """
    return float(radius(lower_bound(n, n, alpha), sigma))


def fewest_votes(p: ArrayLike, n: int, alpha: float) -> NDArray[np.int64]:
    """Return the fewest of ``n`` votes whose lower bound is at least p, or n + 1 if none reaches p.

    >>> fewest_votes([0.5, 0.9999, 1.0], 100_000, 0.001)
    array([ 50490,  99999, 100001])
    """
    target = np.asarray(p, dtype=np.float64)
    below = np.full(target.shape, -1)
    reaching = np.full(target.shape, n + 1)
    while (reaching - below > 1).any():
        middle = np.maximum((below + reaching) // 2, 0)
        reaches = lower_bound(middle, n, alpha) >= target
        below = np.where(reaches, below, middle)
        reaching = np.where(reaches, middle, reaching)
    return reaching[()]


@cache
def fewest_draws(alpha: float) -> int:
    """Return the smallest n whose unanimous vote certifies at ``alpha``: (1/2)^n <= alpha.

    >>> fewest_draws(0.001)
    10
    """
    return next(n for n in count(1) if lower_bound(n, n, alpha) >= 0.5)


def _votes(
    successes: ArrayLike, trials: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    k = np.asarray(successes, dtype=np.float64)
    n = np.asarray(trials, dtype=np.float64)
    k, n = np.broadcast_arrays(k, n)
    if not (np.isfinite(n) & (n >= 1) & (n == np.floor(n))).all():
        raise ValueError(f"trials must be whole numbers of at least 1, got {trials}")
    if not ((k >= 0) & (k <= n) & (k == np.floor(k))).all():
        raise ValueError(
            f"successes must be whole numbers in [0, trials], got {successes} of {trials}"
        )
    return k, n


def _check_alpha(alpha: ArrayLike) -> None:
    alphas = np.asarray(alpha, dtype=np.float64)
    if not ((alphas >= _MIN_LEVEL) & (alphas < 1)).all():
        raise ValueError(
            f"alpha must lie strictly between 0 and 1, at least {_MIN_LEVEL}, got {alpha}; 0.001 "
            "is usual"
        )


def _probability(values: ArrayLike, name: str) -> NDArray[np.float64]:
    p = np.asarray(values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"{name} must lie in [0, 1], got {values}; pass probabilities, not counts")
    return p


def _sigma(sigma: ArrayLike) -> NDArray[np.float64]:
    scale = np.asarray(sigma, dtype=np.float64)
    if not ((scale > 0) & np.isfinite(scale)).all():
        raise ValueError(f"sigma must be positive and finite, got {sigma}; pass the noise's std")
    return scale


def _check_classes(votes: NDArray[Any], predicted: NDArray[Any]) -> None:
    if votes.ndim < 1 or votes.shape[-1] < 2:
        raise ValueError(
            f"counts must have shape (..., K) with K >= 2, got {votes.shape}; pass all classes"
        )
    if predicted.shape != votes.shape[:-1]:
        raise ValueError(
            f"predict must have the shape of counts without K, {votes.shape[:-1]}, got "
            f"{predicted.shape}"
        )
    if not ((predicted >= 0) & (predicted < votes.shape[-1])).all():
        raise ValueError(f"predict must be classes in [0, {votes.shape[-1]}), got {predicted}")
