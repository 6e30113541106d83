"""Identify n and alpha of a certification log from its radii.

With n draws only n + 1 radii are possible, and the largest ones lie far apart: at n = 100,000 and alpha = 0.001 they
are 3.811, 3.739, 3.690, 3.651, ... times sigma.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rs.statistics.radius import lower_bound, radius

BUDGETS = tuple(
    (n, alpha) for n in (1_000, 10_000, 100_000, 1_000_000) for alpha in (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05)
)
"""Numbers of draws and failure probabilities in use."""

COMPARED = 10
"""Steps below the largest possible radius; further down, logs of three digits cannot tell radii apart."""

FEWEST = 3
"""Different radii near the largest possible one without which nothing is identified."""


def identify_budget(radii: ArrayLike, sigma: float) -> tuple[int, float] | None:
    """Return the one pair (n, alpha) of :data:`BUDGETS` whose possible radii are those of a log, or ``None``.

    Args:
        radii: Radii of a log at one sigma, as written (rounded or not), zeros included; shape (N,).
        sigma: Standard deviation of the certification noise.
    Returns:
        ``None`` if no pair fits, several do, or too few radii come near the largest possible one.

    >>> from rs.statistics.radius import lower_bound, radius
    >>> identify_budget(radius(lower_bound([9995, 9998, 9999, 10000], 10_000, 0.001), 0.5).round(3), 0.5)
    (10000, 0.001)
    """
    fits = [(n, alpha) for n, alpha in BUDGETS if fits_budget(radii, sigma, n, alpha)]
    return fits[0] if len(fits) == 1 else None


def fits_budget(radii: ArrayLike, sigma: float, n: int, alpha: float) -> bool | None:
    """Return whether the largest radii are possible with (n, alpha); ``None`` if too few are near the largest possible.

    Args:
        radii: As for :func:`identify_budget`.
        sigma: Standard deviation of the certification noise.
        n: Number of draws.
        alpha: Failure probability.
    """
    values = np.unique(np.asarray(radii, dtype=np.float64))
    values = values[values > 0]
    possible = radius(lower_bound(np.arange(max(0, n - COMPARED), n + 1), n, alpha), sigma)
    slack = _rounding(values) + 1e-9 * sigma
    if (values > possible.max() + slack).any():
        return False
    near = values >= possible[0] - slack
    if possible[0] == 0 or near.sum() < FEWEST:
        return None
    distances = np.abs(values[near, None] - possible).min(axis=1)
    return bool((distances <= slack[near]).all())


def _rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half a unit of the last digit: a few significant ones, a few decimals, or full precision."""
    magnitude = np.floor(np.log10(values))
    exponents = [magnitude - 2, magnitude - 3, *(np.full_like(values, -digits) for digits in (3, 4, 5, 6))]
    for unit in (10.0**exponent for exponent in exponents):
        if np.allclose(values, np.round(values / unit) * unit, rtol=1e-12, atol=0):
            return unit / 2
    return np.zeros_like(values)
