"""Radii of a certification log that no number of votes gives.

With n draws only n + 1 radii are possible, and the largest ones lie far apart: at n = 100,000 and
alpha = 0.001 they are 3.811, 3.739, 3.690, 3.651, ... times sigma.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from rs.statistics.radius import fewest_votes, lower_bound


def impossible(radii: ArrayLike, sigma: float, n: int, alpha: float) -> NDArray[np.bool_]:
    """Return which radii no number of votes gives: r = sigma Phi^-1(lower bound of k of n votes)
    for no k.

    The bound p of k votes solves I_p(k, n - k + 1) = alpha (Clopper & Pearson 1934), and rises with
    k: the fewest votes whose bound reaches the lower end of what a written radius may stand for
    must not pass its upper end. A radius of 0 claims nothing and is always possible.

    Args:
        radii: Radii as written, rounded or not; shape (N,).
        sigma: Standard deviation of the certification noise.
        n: Number of draws.
        alpha: Failure probability.
    Returns:
        Marks, shape (N,).

    >>> impossible([0.0, 3.811, 3.8, 0.0001, 5.0], 1.0, 100_000, 0.001).tolist()
    [False, False, True, False, True]
    """
    values, number_of_value = np.unique(np.asarray(radii, dtype=np.float64), return_inverse=True)
    slack = _rounding(values) + 1e-9 * sigma
    low, high = (ndtr(np.maximum(values + sign * slack, 0) / sigma) for sign in (-1, 1))
    fewest = fewest_votes(low, n, alpha)
    possible = (fewest <= n) & (lower_bound(np.minimum(fewest, n), n, alpha) <= high)
    return (~possible & (values > 0))[number_of_value]


DIGITS = range(1, 13)
"""Decimals, or significant digits, that a log may be written with; with more it counts as
unrounded.
"""

MIN_SHARE_OF_RADII = 0.9
"""Share of the radii of a log that tells how many digits it is written with; a few may differ."""


def _rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half a unit of the last digit that positive values may be rounded to, by all ways to
    round that fit.

    Trailing zeros are not written, so that the digits of one value do not tell.
    """
    half = np.zeros_like(values)
    positive = values > 0
    magnitude = np.floor(np.log10(values, where=positive, out=np.zeros_like(values)))
    for exponent in [
        *(magnitude - digits + 1 for digits in DIGITS),
        *(np.full_like(values, -d) for d in DIGITS),
    ]:
        unit = 10.0**exponent
        fits = np.isclose(values, np.round(values / unit) * unit, rtol=1e-12, atol=0)
        if positive.any() and fits[positive].mean() >= MIN_SHARE_OF_RADII:
            half = np.maximum(half, unit / 2)
    return half
