"""Optimal ensemble weights (the paper's Algorithm 2, "ComputeWeight"): pure NumPy and SciPy.

Margins of L members are z[l, j, i] = F^l(x_j)[y] - F^l(x_j)[i], over N noisy inputs and parameter
perturbations j and K classes i. With S_i their covariance over j, (L, L), and a_i = min_l(mean_j
z[l, j, i])^-2, the lower bound on the probability of class y is

    p_y >= 1 - sum_{i != y} a_i w' S_i w,     w on the simplex       (the paper, eq. opt_wt)

so the best weights minimize a convex quadratic on the simplex, for any number of members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ROUNDING = 4 * np.finfo(np.float64).eps
"""Rounding error of a sum whose largest term is 1."""


class Moments(NamedTuple):
    """Moments of the margins of L members over N samples, class by class."""

    means: Floats  # (..., L, K)
    covariances: Floats  # (..., K, L, L), divided by N as in the paper

    def of_members(self, numbers: list[int]) -> Moments:
        """Return the moments of some of the members."""
        rows = self.covariances[..., numbers, :]
        return Moments(self.means[..., numbers, :], rows[..., numbers])


def moments(margins: ArrayLike) -> Moments:
    """Return means and covariances of margins (..., L, N, K) over their N samples."""
    z = np.asarray(margins, dtype=np.float64)
    means = z.mean(axis=-2)
    centered = z - means[..., None, :]
    products = np.einsum("...lnk,...mnk->...klm", centered, centered)
    return Moments(means, products / z.shape[-2])


def other_classes(y: ArrayLike, classes: int) -> NDArray[np.bool_]:
    """Return a mask of the classes other than y: (...) -> (..., K)."""
    labels = np.asarray(y)
    if not np.isin(labels, np.arange(classes)).all():
        raise ValueError(f"y must be classes in [0, {classes}), got {labels.tolist()}")
    return np.arange(classes) != labels[..., None]


def inverse_square_margins(means: ArrayLike, y: ArrayLike) -> Floats:
    """Return a_i = (min_l mean margin of member l against class i)^-2, and 0 for the class y.

    Chebyshev's step needs positive mean margins. If the smallest one is not positive, the bound
    says nothing about that class, and a_i is infinite. :func:`optimal_weights` then returns equal
    weights.

    Args:
        means: Mean margins, shape (..., L, K).
        y: The class of the margins, shape (...), in [0, K).
    Returns:
        Factors, shape (..., K).

    >>> inverse_square_margins([[0.0, 0.5, 0.1], [0.0, 0.25, -0.1]], 0)
    array([ 0., 16., inf])
    """
    least = np.asarray(means, dtype=np.float64).min(axis=-2)
    is_other = other_classes(y, least.shape[-1])
    with np.errstate(divide="ignore", over="ignore"):
        factors = np.where(least > 0, least**-2.0, np.inf)
    return np.where(is_other, factors, 0.0)


def per_image_weights(margins: ArrayLike, y: ArrayLike, form: str = "optimal") -> Floats:
    """Compute the paper's weights (ComputeWeight) of each image, for any number of members.

    A certificate with these weights is sound if they stay fixed. It is not sound for a classifier
    that computes them again for each image, because it does not see how they change.

    Args:
        margins: Shape (..., L, N, K).
        y: The class of the margins, shape (...): a predicted class, as the label is not known at
            test time.
        form: A key of :data:`SOLVERS`.
    Returns:
        Weights, shape (..., L); equal ones if a mean margin is not positive
        (:func:`inverse_square_margins`).
    """
    means, covariances = moments(margins)
    return SOLVERS[form](covariances, inverse_square_margins(means, y))


class GlobalWeights(NamedTuple):
    """Weights for all images, and the share of images that determine them."""

    weights: Floats  # (L,)
    used_share: float  # of the images: those whose bound exceeds 0 at equal weights


def global_weights(stats: Moments, ys: ArrayLike, form: str = "optimal") -> GlobalWeights:
    """Return the weights on the simplex that minimize sum_b sum_i a_bi w' S_bi w, for all images.

    Fitted to images that are not certified, they make an ordinary fixed classifier. The sum is over
    the images whose bound 1 - sum_i a_i w' S_i w exceeds 0 at equal weights, and so says something.
    Otherwise, a single image with a tiny margin, and so a huge a_i, would determine the weights. If
    no image has such a bound, the weights are equal.

    Args:
        stats: Moments of the margins of B images: (B, L, K) and (B, K, L, L).
        ys: Classes, shape (B,).
        form: A key of :data:`SOLVERS`.
    """
    means, covariances = stats
    a = inverse_square_margins(means, ys)  # (B, K)
    is_finite = np.isfinite(a)
    finite = np.where(is_finite, a, 0.0)
    equal = np.full(means.shape[1], 1 / means.shape[1])
    is_used = is_finite.all(axis=-1) & (variance(equal, covariances, finite) < 1)
    total = np.einsum("bk,bklm->lm", a[is_used], covariances[is_used])
    return GlobalWeights(SOLVERS[form](total[None], [1.0]), float(is_used.mean()))


def optimal_weights(covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Return the weights on the simplex that minimize sum_i a_i w' S_i w.

    Args:
        covariances: S_i of each class, shape (..., K, L, L), symmetric and positive semi-definite.
        a: Factors of the classes, shape (..., K), at least 0; 0 for the class of the margins.
    Returns:
        Weights, shape (..., L). They are equal if an a_i is infinite (the bound says nothing), or
        if all weights have the same objective.
    Raises:
        ValueError: If shapes do not match, a number is NaN, or a factor is negative.
    """
    matrices, has_minimum = _objective(covariances, a)
    # if all entries of S are 1 up to rounding, w' S w is 1 for all w
    has_minimum = has_minimum & (np.ptp(matrices, axis=(-1, -2)) > ROUNDING)
    weights = np.full(matrices.shape[:-1], 1 / matrices.shape[-1])
    for index in np.ndindex(has_minimum.shape):
        if has_minimum[index]:
            weights[index] = _minimum(matrices[index])
    return weights


def _objective(covariances: ArrayLike, a: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Return sum_i a_i S_i (..., L, L), scaled to a largest entry of 1, and if it is usable."""
    s = np.asarray(covariances, dtype=np.float64)
    factors = np.asarray(a, dtype=np.float64)
    if s.ndim < 3 or s.shape[-1] != s.shape[-2] or s.shape[-1] < 1 or factors.shape != s.shape[:-2]:
        raise ValueError(
            f"covariances must be (..., K, L, L) and a (..., K), got {s.shape} and {factors.shape}"
        )
    if not np.isfinite(s).all() or np.isnan(factors).any() or (factors < 0).any():
        raise ValueError(
            "covariances must be finite and a at least 0, none of them NaN; check the margins"
        )
    is_usable = np.asarray(np.isfinite(factors).all(axis=-1))
    finite = np.where(is_usable[..., None], factors, 0.0)
    total = np.einsum("...k,...klm->...lm", finite, s)
    largest = np.abs(total).max(axis=(-1, -2))
    is_usable = is_usable & (largest > 0)
    scale = np.where(is_usable, largest, 1.0)
    return total / scale[..., None, None], is_usable


def _minimum(matrix: Floats) -> Floats:
    """Return the w on the simplex with the smallest w' S w, for one S = R' R.

    With u = t w, min_t |R u|^2 + (1' u - 1)^2 over the scale t is q / (1 + q) for q = w' S w, which
    rises with q. So the non-negative least-squares problem [R; 1'] u = [0; 1] has the same
    solution, up to its scale, and an exact active-set solver.
    """
    from scipy.optimize import nnls  # takes an eighth of a second, and only this needs it

    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    root = np.sqrt(values.clip(min=0.0))[:, None] * vectors.T
    members = len(matrix)
    equations = np.vstack([root, np.ones(members)])
    right_side = np.append(np.zeros(members), 1.0)
    u, _ = nnls(equations, right_side)
    return u / u.sum()


def printed_pair_weights(covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Compute the paper's printed form for two members, whose covariance has the opposite sign.

        A = sum_i a_i (b_i + c_i + d_i),  B = -sum_i a_i (c_i + 2 d_i),  w_1 = clip(-B / 2A, 0, 1)

    with b = Var z^1, c = 2 Cov(z^1, z^2), d = Var z^2. If A is 0, the weights are equal. Shapes are
    those of :func:`optimal_weights` with L = 2.
    """
    matrices, is_usable = _objective(covariances, a)
    if matrices.shape[-1] != 2:
        raise ValueError(
            f"the closed form must be given 2 members, got {matrices.shape[-1]}; use "
            "optimal_weights"
        )
    b = matrices[..., 0, 0]
    c = 2 * matrices[..., 0, 1]
    d = matrices[..., 1, 1]
    big_a = b + c + d
    big_b = -(2 * d + c)
    is_curved = is_usable & (big_a > ROUNDING)  # A, a sum of variances, is 0 up to rounding
    vertex = -big_b / np.where(is_curved, 2 * big_a, 1.0)
    first = np.where(is_curved, np.clip(vertex, 0.0, 1.0), 0.5)
    return np.stack([first, 1 - first], axis=-1)


SOLVERS = {"optimal": optimal_weights, "printed": printed_pair_weights}
"""How weights are computed: exactly, or, for two members, by the paper's printed form."""


def variance(weights: ArrayLike, covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Compute the objective sum_i a_i w' S_i w: (..., L), (..., K, L, L), (..., K) -> (...)."""
    w = np.asarray(weights, dtype=np.float64)
    return np.einsum("...k,...klm,...l,...m->...", np.asarray(a), np.asarray(covariances), w, w)
