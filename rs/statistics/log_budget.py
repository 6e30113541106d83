"""Radii of a certification log that no number of votes gives.

With n samples only n + 1 radii are possible, and the largest ones lie far apart: at n = 100,000 and
alpha = 0.001 they are 3.811, 3.739, 3.690, 3.651, ... times sigma.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from rs.statistics.radius import fewest_votes, lower_bound


def impossible(radii: ArrayLike, sigma: float, n: int, alpha: float) -> NDArray[np.bool_]:
    """Return which radii are not sigma Phi^-1(lower bound of k of n votes) for any k.

    The bound p of k votes solves I_p(k, n - k + 1) = alpha (Clopper & Pearson 1934), and rises with
    k. A written radius stands for an interval, because it is rounded. So the smallest bound that
    reaches the lower end of this interval must not exceed its upper end. A radius of 0 claims
    nothing and is always possible.

    Args:
        radii: Radii as written, rounded or not; shape (N,).
        sigma: Standard deviation of the certification noise.
        n: Number of samples.
        alpha: Failure probability.
    Returns:
        A mask, shape (N,).

    >>> impossible([0.0, 3.811, 3.8, 0.0001, 5.0], 1.0, 100_000, 0.001).tolist()
    [False, False, True, False, True]
    """
    values, number_of_value = np.unique(np.asarray(radii, dtype=np.float64), return_inverse=True)
    slack = _rounding(values) + 1e-9 * sigma
    p_low = ndtr(np.maximum(values - slack, 0) / sigma)
    p_high = ndtr(np.maximum(values + slack, 0) / sigma)
    fewest = fewest_votes(p_low, n, alpha)
    bound = lower_bound(np.minimum(fewest, n), n, alpha)
    is_possible = (fewest <= n) & (bound <= p_high)
    is_impossible = ~is_possible & (values > 0)
    return is_impossible[number_of_value]


DIGITS = range(1, 13)
"""Decimals, or significant digits, of a rounded log."""

MIN_SHARE_OF_RADII = 0.9
"""Share of the radii of a log that must have a number of digits; a few may differ."""


def _rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half a unit of the last digit of positive values, over all roundings that fit.

    Trailing zeros are not written, so a single value does not tell the number of its digits.
    """
    half_unit = np.zeros_like(values)
    is_positive = values > 0
    if not is_positive.any():
        return half_unit
    magnitude = np.floor(np.log10(values, where=is_positive, out=np.zeros_like(values)))
    for digits in DIGITS:
        for exponent in (magnitude - digits + 1, np.full_like(values, -digits)):
            unit = 10.0**exponent
            rounded = np.round(values / unit) * unit
            fits = np.isclose(values, rounded, rtol=1e-12, atol=0)
            if fits[is_positive].mean() >= MIN_SHARE_OF_RADII:
                half_unit = np.maximum(half_unit, unit / 2)
    return half_unit
