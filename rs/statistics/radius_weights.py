"""Ensemble weights of the largest average certified radius: pure NumPy and SciPy.

Margins of L members are z[l, j, i] = F^l(x_j)[y] - F^l(x_j)[i], over N noisy inputs j and K classes
i. The softmax average with weights w votes for y on input j where sum_l w_l z[l, j, i] > 0 for
every i != y. If it does so on k_b(w) of the N inputs of image b, and p(k) is the lower confidence
bound of k votes in N at ALPHA,

    J(w) = 1/B sum_b max(0, Phi^-1(p(k_b(w))))

is the average certified radius of N samples, in units of sigma. It is not an approximation of the
vote. J is a step function, evaluated on a lattice of weights. The weights that fit these images and
samples best are shrunk toward equal weights, as far as cross-validation over images demands.

Weights are the same on every processor: votes are signs of sums in the order of the members, and J
is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import fmean  # rounded once, whatever the order
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rs.statistics.radius import lower_bound, radius

Floats = NDArray[np.float64]
Weights = tuple[float, ...]

ALPHA = 0.5
"""Failure probability of the confidence bounds in J, which are median-unbiased.

At a certificate's own alpha, a hundred samples would say little.
"""

PARTS = 12
"""Candidate weights are multiples of 1/PARTS: also halves, thirds, quarters and sixths."""

MAX_POINTS = 500
"""Largest number of candidates of which all are evaluated: enough for four members."""

FOLDS = 5
"""Folds of the cross-validation."""

SHRINKAGES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Candidates for the shrinkage toward equal weights; earlier ones are preferred."""

ROUNDING = 1 + 1e-9
"""Tolerance of a comparison with a standard error: a difference on a single image equals it."""


@dataclass(frozen=True)
class DisputedDraws:
    """What weights can change in the votes of L members, on B images with N samples each.

    A class that all members put below the label never wins a sample. The other pairs of a class
    and a sample are disputed: at least one member's margin is not positive.
    """

    images: int  # B
    draws: int  # N
    places: NDArray[np.int64]  # (T,), b N + j of the sample j of image b
    margins: Floats  # (T, L)

    @classmethod
    def of(cls, margins: ArrayLike, ys: ArrayLike) -> Self:
        """Find the disputed samples of margins (B, L, N, K) and classes (B,)."""
        z = np.asarray(margins, dtype=np.float64)
        images, _, draws, classes = z.shape
        is_other = np.arange(classes) != np.asarray(ys)[:, None]  # (B, K)
        is_disputed = (z <= 0).any(axis=1) & is_other[:, None]  # (B, N, K)
        image, draw, rival = np.nonzero(is_disputed)
        return cls(images, draws, image * draws + draw, z[image, :, draw, rival])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the images of several parts."""
        draws = parts[0].draws
        images = 0
        places = []
        for part in parts:
            places.append(part.places + images * draws)
            images += part.images
        margins = np.concatenate([part.margins for part in parts])
        return cls(images, draws, np.concatenate(places), margins)

    @property
    def members(self) -> int:
        """Number of members, L."""
        return self.margins.shape[1]

    @property
    def used_share(self) -> float:
        """Share of images with a disputed sample; on others, all weights get all votes."""
        return len(np.unique(self.places // self.draws)) / self.images

    def of_members(self, numbers: Sequence[int]) -> Self:
        """Return what is disputed among some of the members."""
        margins = self.margins[:, list(numbers)]
        is_disputed = (margins <= 0).any(axis=1)
        return replace(self, places=self.places[is_disputed], margins=margins[is_disputed])

    def votes(self, weights: Sequence[float]) -> NDArray[np.int64]:
        """Return k_b, the votes for the label of each image, (B,); a tie is lost."""
        total = np.zeros(len(self.margins))
        for weight, margins in zip(weights, self.margins.T, strict=True):
            total += weight * margins
        is_lost = np.zeros(self.images * self.draws, dtype=bool)
        is_lost[self.places[total <= 0]] = True
        lost_votes = is_lost.reshape(self.images, self.draws).sum(axis=1)
        return self.draws - lost_votes


Radii = Callable[[Weights], Floats]
"""Radii of the images in units of sigma, (B,), by weights (L,): J is their mean."""


def radii_of(disputed: DisputedDraws) -> Radii:
    """Return the radii of the images as a cached function of the weights."""
    votes = np.arange(disputed.draws + 1)
    radius_of_votes = radius(lower_bound(votes, disputed.draws, ALPHA), sigma=1.0)
    return cache(lambda weights: radius_of_votes[disputed.votes(weights)])


class RadiusWeights(NamedTuple):
    """Weights for all images, and how far they were shrunk."""

    weights: Weights  # (L,)
    shrinkage: float  # one of SHRINKAGES: 0, as fitted, to 1, equal weights


def radius_weights(disputed: DisputedDraws) -> RadiusWeights:
    """Return the weights of the largest J, shrunk toward equal ones by cross-validation.

    Each fold of the images is judged with weights that were fitted to the other folds, shrunk by
    each of SHRINKAGES. The result is the largest shrinkage whose J is within one standard error, of
    the paired difference over images, of the largest J (Breiman et al. 1984, section 3.4.3). For a
    single image, weights are equal.
    """
    members = disputed.members
    equal = (1 / members,) * members
    if disputed.images < 2:
        return RadiusWeights(equal, 1.0)
    candidates = math.comb(PARTS + members - 1, PARTS)
    fit = best_of_all if candidates <= MAX_POINTS else best_forward
    radii = radii_of(disputed)
    folds = np.arange(disputed.images) % min(FOLDS, disputed.images)
    judged = np.empty((len(SHRINKAGES), disputed.images))
    for fold in range(folds.max() + 1):
        is_left_out = folds == fold
        fitted = fit(radii, members, ~is_left_out)
        for row, shrinkage in enumerate(SHRINKAGES):
            judged[row, is_left_out] = radii(_shrunk(fitted, shrinkage))[is_left_out]
    shrinkage = SHRINKAGES[_first_within_one_error(judged)]
    if shrinkage == 1:
        return RadiusWeights(equal, shrinkage)
    fitted = fit(radii, members, np.full(disputed.images, True))
    return RadiusWeights(_shrunk(fitted, shrinkage), shrinkage)


def best_of_all(radii: Radii, members: int, is_used: NDArray[np.bool_]) -> Weights:
    """Return the weights in twelfths with the largest J over the used images (B,).

    If several are equally good, it is the mean of those nearest to equal weights, so the order of
    the members does not matter.
    """
    counts = _lattice(members)
    means = np.array([fmean(radii(_weights(point))[is_used]) for point in counts])
    best = counts[means == means.max()]
    distances = (best**2).sum(axis=1)  # ordered as the distances to equal weights
    nearest = best[distances == distances.min()]
    mean = nearest.sum(axis=0) / (len(nearest) * PARTS)
    return tuple(mean.tolist())


def best_forward(radii: Radii, members: int, is_used: NDArray[np.bool_]) -> Weights:
    """Choose PARTS members one after the other, with replacement (Caruana et al. 2004).

    Each step adds the member with which the softmax average of the chosen members has the largest J
    over the used images (B,). Among equally good members, it is the one that was chosen least, then
    the first.

    Returns:
        Weights (L,): the share of each member among those that were chosen.
    """
    counts = np.zeros(members, dtype=np.int64)
    for _ in range(PARTS):
        candidates = counts + np.eye(members, dtype=np.int64)
        scores = []
        for member, candidate in enumerate(candidates):
            mean = fmean(radii(_weights(candidate))[is_used])
            scores.append((mean, -counts[member]))
        counts = candidates[scores.index(max(scores))]
    return _weights(counts)


@cache
def _lattice(members: int) -> NDArray[np.int64]:
    """Return all vectors of whole numbers (points, L) that are at least 0 and sum to PARTS."""
    end = PARTS + members - 1
    bars = [(-1, *inner, end) for inner in combinations(range(end), members - 1)]
    return np.diff(bars) - 1


def _weights(counts: NDArray[np.int64]) -> Weights:
    return tuple((counts / counts.sum()).tolist())


def _shrunk(weights: Weights, shrinkage: float) -> Weights:
    return tuple((1 - shrinkage) * weight + shrinkage / len(weights) for weight in weights)


def _first_within_one_error(judged: Floats) -> int:
    """Return the first row of (candidates, B) within one paired standard error of the best mean."""
    means = [fmean(row) for row in judged]
    lags = judged[np.argmax(means)] - judged
    errors = lags.std(axis=1, ddof=1) / math.sqrt(judged.shape[1])
    is_near = np.array([fmean(row) for row in lags]) <= errors * ROUNDING
    return int(is_near.argmax())
