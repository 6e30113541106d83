"""Optimal ensemble weights (the paper's Algorithm 2, "ComputeWeight"): pure NumPy and SciPy.

Margins of L members are z[l, j, i] = F^l(x_j)[y] - F^l(x_j)[i], over N noisy inputs and parameter
perturbations j and K classes i. With S_i their covariance over j, (L, L), and a_i = min_l(mean_j
z[l, j, i])^-2, the lower bound on the probability of class y is

    p_y >= 1 - sum_{i != y} a_i w' S_i w,     w on the simplex                          (the paper, eq. opt_wt)

so the best weights minimise a convex quadratic on the simplex, for any number of members.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """Moments of the margins of L members over N draws, class by class."""

    means: Floats  # (..., L, K)
    covariances: Floats  # (..., K, L, L), divided by N as in the paper


def moments(margins: ArrayLike) -> Moments:
    """Return means and covariances of margins (..., L, N, K) over their N draws."""
    z = np.asarray(margins, dtype=np.float64)
    if z.ndim < 3 or z.shape[-2] < 1:
        raise ValueError(f"margins must have shape (..., L, N, K) with N >= 1, got {z.shape}")
    means = z.mean(axis=-2)
    centred = z - means[..., None, :]
    return Moments(means, np.einsum("...lnk,...mnk->...klm", centred, centred) / z.shape[-2])


def other_classes(y: ArrayLike, classes: int) -> NDArray[np.bool_]:
    """Return a mask of the classes other than y; (...) -> (..., K)."""
    labels = np.asarray(y)
    if not np.isin(labels, np.arange(classes)).all():
        raise ValueError(f"y must be classes in [0, {classes}), got {labels.tolist()}")
    return np.arange(classes) != labels[..., None]


def inverse_square_margins(means: ArrayLike, y: ArrayLike) -> Floats:
    """Return a_i = (min_l mean margin of member l against class i)^-2, and 0 for the class y
    itself.

    Chebyshev's step needs positive mean margins: where the smallest one is not positive, the bound
    on that class says nothing, and neither does its a_i. It is infinite then, which
    :func:`optimal_weights` answers with equal weights.

    Args:
        means: Mean margins, shape (..., L, K).
        y: The class that the margins are of, shape (...), in [0, K).
    Returns:
        Factors, shape (..., K).

    >>> inverse_square_margins([[0.0, 0.5, 0.1], [0.0, 0.25, -0.1]], 0)
    array([ 0., 16., inf])
    """
    least = np.asarray(means, dtype=np.float64).min(axis=-2)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(
            other_classes(y, least.shape[-1]), np.where(least > 0, least**-2.0, np.inf), 0.0
        )


def per_image_weights(margins: ArrayLike, y: ArrayLike, form: str = "optimal") -> Floats:
    """Compute the paper's weights (ComputeWeight) of each image, for any number of members.

    They hold for the image the margins come from: certified as fixed weights they are sound,
    recomputed for every image they are not (the certificate does not see how they change with it).

    Args:
        margins: Shape (..., L, N, K).
        y: The class the margins are of, shape (...): a predicted class, as the label is not known
            at test time.
        form: A key of :data:`SOLVERS`.
    Returns:
        Weights, shape (..., L); equal ones where a mean margin is not positive
        (:func:`inverse_square_margins`).
    """
    means, covariances = moments(margins)
    return SOLVERS[form](covariances, inverse_square_margins(means, y))


class GlobalWeights(NamedTuple):
    """Weights for all images, and what they rest on."""

    weights: Floats  # (L,)
    # of the images: those on which the bound exceeds 0 at equal weights, which alone are summed
    # over
    used_share: float


def global_weights(stats: Moments, ys: ArrayLike, form: str = "optimal") -> GlobalWeights:
    """Return one weight vector for all images: the minimiser of sum_b sum_i a_bi w' S_bi w on the
    simplex.

    Fitted on images that are not certified, it makes an ordinary fixed classifier. The sum is over
    the images on which the bound 1 - sum_i a_i w' S_i w says something at equal weights, that is,
    exceeds 0. On the others it could be improved by any amount for nothing, and a single one with a
    tiny margin, hence a huge a_i, would decide the weights of all. If there is no such image, the
    weights are equal.

    Args:
        stats: Moments of the margins of B images: (B, L, K) and (B, K, L, L).
        ys: Classes, shape (B,).
        form: A key of :data:`SOLVERS`.
    """
    means, covariances = stats
    if means.ndim != 3 or not len(means):
        raise ValueError(f"moments must be of B >= 1 images, (B, L, K), got {np.shape(means)}")
    a = inverse_square_margins(means, ys)  # (B, K)
    finite = np.where(np.isfinite(a), a, 0.0)
    equal = np.full(means.shape[1], 1 / means.shape[1])
    used = np.isfinite(a).all(axis=-1) & (variance(equal, covariances, finite) < 1)
    total = np.einsum("bk,bklm->lm", a[used], covariances[used])
    return GlobalWeights(SOLVERS[form](total[None], [1.0]), float(used.mean()))


def optimal_weights(covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Return the weights on the simplex that minimise sum_i a_i w' S_i w.

    Args:
        covariances: S_i of each class, shape (..., K, L, L), symmetric and positive semi-definite.
        a: Factors of the classes, shape (..., K), at least 0; leave the class itself out by a 0.
    Returns:
        Weights, shape (..., L). Equal weights where an a_i is infinite (a member whose mean margin
        is not positive: the bound that the weights would improve does not hold), or where every
        weight does as well as any other.
    Raises:
        ValueError: If shapes do not match, a number is NaN, or a factor is negative.
    """
    matrices, usable = _objective(covariances, a)
    members = matrices.shape[-1]
    # where all entries of S are 1 up to rounding, w' S w is 1 for all w
    usable = usable & (np.ptp(matrices, axis=(-1, -2)) > 4 * np.finfo(np.float64).eps)
    weights = np.full(matrices.shape[:-1], 1 / members)
    for index in zip(*np.nonzero(usable), strict=True) if usable.ndim else [()] * bool(usable):
        weights[index] = _minimise(matrices[index])
    return weights


def _objective(covariances: ArrayLike, a: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the sum of a_i S_i, (..., L, L), scaled to a largest entry of 1; and where it has a
    minimum, (...).
    """
    s, factors = np.asarray(covariances, dtype=np.float64), np.asarray(a, dtype=np.float64)
    if s.ndim < 3 or s.shape[-1] != s.shape[-2] or s.shape[-1] < 1 or factors.shape != s.shape[:-2]:
        raise ValueError(
            f"covariances must be (..., K, L, L) and a (..., K), got {s.shape} and {factors.shape}"
        )
    if not np.isfinite(s).all() or np.isnan(factors).any() or (factors < 0).any():
        raise ValueError(
            "covariances must be finite and a at least 0, none of them NaN; look at the margins"
        )
    usable = np.asarray(np.isfinite(factors).all(axis=-1))
    total = np.einsum("...k,...klm->...lm", np.where(usable[..., None], factors, 0.0), s)
    largest = np.abs(total).max(axis=(-1, -2))
    usable = usable & (largest > 0)
    return total / np.where(usable, largest, 1.0)[..., None, None], usable


def _minimise(matrix: Floats) -> Floats:
    """Minimise w' S w on the simplex, for one S = R' R.

    With u = t w, min_t |R u|^2 + (1' u - 1)^2 over the scale t is q / (1 + q) for q = w' S w, which
    rises with q. So the non-negative least-squares problem [R; 1'] u = [0; 1] has the same
    minimiser, up to its scale, and an exact active-set solver.
    """
    from scipy.optimize import nnls  # an eighth of a second, and rules that vote do not need it

    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    root = np.sqrt(values.clip(min=0.0))[:, None] * vectors.T
    members = len(matrix)
    u, _ = nnls(np.vstack([root, np.ones(members)]), np.append(np.zeros(members), 1.0))
    return u / u.sum()


def printed_pair_weights(covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Compute the paper's printed form for two members, for comparison: its covariance has the
    opposite sign.

        A = sum_i a_i (b_i + c_i + d_i),  B = -sum_i a_i (c_i + 2 d_i),  w_1 = clip(-B / 2A, 0, 1)

    with b = Var z^1, c = 2 Cov(z^1, z^2), d = Var z^2. If A is 0 the weights are equal. Shapes as
    for :func:`optimal_weights` with L = 2.
    """
    matrices, usable = _objective(covariances, a)
    if matrices.shape[-1] != 2:
        raise ValueError(
            f"the closed form must be given 2 members, got {matrices.shape[-1]}; use "
            "optimal_weights"
        )
    b, d, c = matrices[..., 0, 0], matrices[..., 1, 1], 2 * matrices[..., 0, 1]
    big_a, big_b = b + c + d, -(2 * d + c)
    # A is a sum of variances and may be a rounding error off 0
    curved = usable & (big_a > 4 * np.finfo(np.float64).eps)
    first = np.where(curved, np.clip(-big_b / np.where(curved, 2 * big_a, 1.0), 0.0, 1.0), 0.5)
    return np.stack([first, 1 - first], axis=-1)


SOLVERS = {"optimal": optimal_weights, "printed": printed_pair_weights}
"""How weights are solved for: exactly, or by the paper's printed form, for two members."""


def variance(weights: ArrayLike, covariances: ArrayLike, a: ArrayLike) -> Floats:
    """Compute the objective sum_i a_i w' S_i w: (..., L), (..., K, L, L), (..., K) -> (...)."""
    w = np.asarray(weights, dtype=np.float64)
    return np.einsum("...k,...klm,...l,...m->...", np.asarray(a), np.asarray(covariances), w, w)


def _box(low: ArrayLike, high: ArrayLike, members: int) -> tuple[Floats, Floats]:
    lows, highs = (
        np.broadcast_to(np.asarray(bound, dtype=np.float64), (members,)) for bound in (low, high)
    )
    if not ((lows >= 0) & (lows <= highs) & (highs <= 1)).all():
        raise ValueError(
            f"the bounds of weights must have 0 <= low <= high <= 1, got low {low} and high {high}"
        )
    if not lows.sum() <= 1 + 1e-12 or not highs.sum() >= 1 - 1e-12:
        raise ValueError(
            f"some weights must sum to 1, got low {low} and high {high} for {members} members"
        )
    return lows, highs


def box_vertices(low: ArrayLike, high: ArrayLike, members: int) -> Floats:
    """Return the vertices of {w on the simplex: low <= w <= high}, shape (V, L), in lexical order.

    At a vertex all weights but one are at a bound, and the last one takes the rest. Bounds are
    scalars or (L,).

    >>> box_vertices(0.3, 0.7, 2)
    array([[0.3, 0.7],
           [0.7, 0.3]])
    """
    lows, highs = _box(low, high, members)
    corners_inside = []
    for free in range(members):
        bounds = [(lows[i], highs[i]) if i != free else (0.0,) for i in range(members)]
        corners = np.array(list(itertools.product(*bounds)))
        rest = 1 - corners.sum(axis=1)
        inside = (rest >= lows[free] - 1e-12) & (rest <= highs[free] + 1e-12)
        corners[:, free] = rest.clip(lows[free], highs[free])
        corners_inside.append(corners[inside])
    vertices = np.concatenate(corners_inside)
    return vertices[np.unique(vertices.round(12), axis=0, return_index=True)[1]]


def clip_to_box(w: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Project weights (..., L), by Euclidean distance, onto {w on the simplex: low <= w <= high}.

    It is clip(w - tau, low, high) for the tau at which it sums to 1; the sum falls linearly between
    breakpoints.

    >>> clip_to_box([0.9, 0.1], 0.3, 0.7)
    array([0.7, 0.3])
    """
    weights = np.asarray(w, dtype=np.float64)
    lows, highs = _box(low, high, weights.shape[-1])
    if not np.isfinite(weights).all():
        raise ValueError(f"weights must be finite, got {weights.tolist()}")
    taus = np.sort(
        np.concatenate([weights - lows, weights - highs], axis=-1), axis=-1
    )  # (..., 2 L)
    # falling from sum(high) to sum(low)
    sums = (weights[..., None, :] - taus[..., None]).clip(lows, highs).sum(axis=-1)
    right = (sums > 1).sum(axis=-1, keepdims=True).clip(1, taus.shape[-1] - 1)
    (t0, t1), (s0, s1) = (
        [np.take_along_axis(values, right - step, axis=-1) for step in (1, 0)]
        for values in (taus, sums)
    )
    share = np.where(s0 > s1, (s0 - 1) / np.where(s0 > s1, s0 - s1, 1.0), 0.0).clip(0.0, 1.0)
    return (weights - (t0 + share * (t1 - t0))).clip(lows, highs)
