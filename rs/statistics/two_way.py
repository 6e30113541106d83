"""Inference for the mean of a table of training seeds by images, both random (NumPy, SciPy).

The table is a two-way layout of random effects without repetition (Searle, Casella & McCulloch
1992, section 4.5). Its mean squares, scaled to the variance of the mean, are independent of the
mean and of each other under normal effects:

    A ~ E[A] chi2_a / a (images),   B ~ E[B] chi2_b / b (seeds),   R ~ E[R] chi2_r / r (rest),
    Var(mean) = E[A] + E[B] - E[R],     a = I - 1,  b = S - 1,  r = (S - 1)(I - 1).

The p-value is the generalized one of Tsui & Weerahandi (1989), the interval that of Weerahandi
(1993): the unknown variance is replaced by its generalized pivotal quantity, whose seed component
cannot fall below 0,

    p = E[2 Phi(-|mean| / sqrt(V))],     V = A a / chi2_a + max(0, B b / chi2_b - R r / chi2_r).

An F test, or Student's t with Satterthwaite's degrees of freedom, drops the seed component if its
estimate is below 0. With two to four seeds this happens by chance, and then a true mean of 0 is
rejected too often. The generalized p-value is conservative instead; tests check its level.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]

HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
LEGENDRE_NODES, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(24)
MIN_SQUARE = 1e-200
"""Smallest mean square in units of the squared mean; keeps divisions finite."""
MIN_SCALE = 1e-6
"""Smallest scale of the integral over the seeds' chi; below it, the seed component is invisible."""


class MeanSquares(NamedTuple):
    """Mean squares of a table, each scaled to the variance of the mean: numbers or arrays."""

    images: ArrayLike  # variance of the images' means / number of images
    seeds: ArrayLike  # variance of the seeds' means / number of seeds
    rest: ArrayLike  # mean square of the interaction / (number of seeds x number of images)
    image_count: int
    seed_count: int


def mean_squares(table: Floats) -> MeanSquares:
    """Compute the mean squares of a table (S, I) of seeds by images.

    Raises:
        ValueError: If there are fewer than two seeds or images.
    """
    seeds, images = table.shape
    if min(seeds, images) < 2:
        raise ValueError(
            f"a two-way layout needs at least 2 seeds and 2 images, got {seeds} and {images}"
        )
    by_seed = table.mean(axis=1)
    by_image = table.mean(axis=0)
    interaction = table - by_seed[:, None] - by_image + table.mean()
    freedom = (seeds - 1) * (images - 1)
    return MeanSquares(
        images=by_image.var(ddof=1) / images,
        seeds=by_seed.var(ddof=1) / seeds,
        rest=(interaction**2).sum() / freedom / (seeds * images),
        image_count=images,
        seed_count=seeds,
    )


def p_value(mean: ArrayLike, squares: MeanSquares) -> Floats:
    """Compute the two-sided generalized p-value of "the true mean is 0", of the shape of ``mean``.

    The integral over the seeds' chi is a Gauss-Legendre rule of 24 nodes in u, chi = scale sinh(u),
    up to the chi at which the seed component is 0. The chi-squares of images and rest have many
    degrees of freedom: each is the cube of a normal variable (Wilson & Hilferty 1931), at 5 and 2
    Gauss-Hermite nodes. From 100 images on, the relative error of the p-value is below 1e-3.

    Axes are (..., images' nodes, rest's nodes, chi's nodes).
    """
    value = np.abs(np.asarray(mean, dtype=np.float64))[..., None, None, None]
    unit = np.where(value == 0, 1.0, value) ** 2
    images, seeds, rest = [_in_units(square, unit) for square in squares[:3]]
    freedom = squares.seed_count - 1
    image_freedom = squares.image_count - 1
    images = images * _inverse_chi_squares(image_freedom, HERMITE_NODES)[:, None, None]
    two_nodes = np.array([-1.0, 1.0])
    rest = rest * _inverse_chi_squares(freedom * image_freedom, two_nodes)[:, None]
    seeds = freedom * seeds  # times 1 / chi^2
    largest_chi = math.sqrt(freedom) + 9.0  # which chi does not exceed
    end = np.minimum(np.sqrt(seeds / rest), largest_chi)  # above it the seed component is 0
    scale = np.maximum(np.sqrt(seeds / (1.0 + images)), MIN_SCALE)
    width = np.arcsinh(end / scale) / 2
    u = width * (LEGENDRE_NODES + 1.0)
    chi = scale * np.sinh(u)
    constant = 2.0 ** (1 - freedom / 2) / math.gamma(freedom / 2)
    density = constant * chi ** (freedom - 1) * np.exp(-(chi**2) / 2)
    seed_part = seeds / np.maximum(chi, MIN_SCALE**2) ** 2
    variance = np.maximum(images, images - rest + seed_part)
    steps = density * scale * np.cosh(u) * width * LEGENDRE_WEIGHTS
    with_seeds = (steps * special.ndtr(-1 / np.sqrt(variance))).sum(axis=-1)
    without_probability = special.gammaincc(freedom / 2, seeds / rest / 2)
    without_seeds = without_probability * special.ndtr(-1 / np.sqrt(images))
    tails = 2 * (with_seeds + without_seeds[..., 0])
    weights = HERMITE_WEIGHTS[:, None] / HERMITE_WEIGHTS.sum() / 2
    total = (tails * weights).sum(axis=(-1, -2))
    return np.where(value[..., 0, 0, 0] == 0, 1.0, np.minimum(total, 1.0))


def _in_units(square: ArrayLike, unit: Floats) -> Floats:
    """Return a mean square in units of the squared mean."""
    values = np.asarray(square, dtype=np.float64)[..., None, None, None]
    return np.maximum(values / unit, MIN_SQUARE)


def half_width(level: float, squares: MeanSquares) -> float:
    """Compute half the width of the 1 - ``level`` interval: the mean whose p-value is ``level``."""
    images = float(squares.images)  # type: ignore[arg-type]
    seeds = float(squares.seeds)  # type: ignore[arg-type]
    high = math.sqrt(max(images, seeds))
    low = max(math.sqrt(images), high * MIN_SCALE)
    if high == 0 or p_value(low, squares) <= level:  # nothing varies, or seeds alone, and hardly
        return low
    while p_value(high, squares) > level:
        high *= 2

    def excess(mean: float) -> float:
        return float(p_value(mean, squares)) - level

    return float(optimize.brentq(excess, low, high, rtol=1e-14, xtol=1e-300))


def _inverse_chi_squares(freedom: int, nodes: Floats) -> Floats:
    """Return freedom / chi2 at quantiles of a standard normal variable (Wilson & Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return np.maximum(1 - spread + nodes * math.sqrt(spread), 0.05) ** -3
