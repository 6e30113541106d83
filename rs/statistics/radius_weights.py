"""Ensemble weights of the largest average certified radius: pure NumPy and SciPy.

Margins of L members are z[l, j, i] = F^l(x_j)[y] - F^l(x_j)[i], over N noisy inputs j and K classes
i. The softmax average with weights w votes for y on input j where sum_l w_l z[l, j, i] > 0 for
every i != y. If it does so on k_b(w) of the N inputs of image b,

    J(w) = 1/B sum_b max(0, Phi^-1(p(k_b(w))))       p(k): lower confidence bound of k votes in N, at ALPHA

is the average certified radius itself, in units of sigma, as far as N draws show it: nothing stands
in for the vote. J is a step function, looked at on a lattice of weights, and what fits these images
and draws best is shrunk towards equal weights as far as images that were left out ask for it.

Weights are the same on every processor: votes are signs of sums in the order of the members, and J
is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

At a certificate's own alpha a hundred draws would say little.
"""

PARTS = 12
"""Weights tried are multiples of 1/PARTS, which include halves, thirds, quarters and sixths."""

MAX_POINTS = 500
"""Number of such weights up to which all are looked at: those of up to four members."""

FOLDS = 5
"""Folds of the cross-validation."""

SHRINKAGES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""How far the fitted weights may go towards equal ones; earlier ones are preferred."""

ROUNDING = 1 + 1e-9
"""Tolerance of the comparison with a standard error: a difference on one image alone is exactly
one.
"""


@dataclass(frozen=True)
class DisputedDraws:
    """All that weights can change in the votes of L members, on B images with N draws each.

    A class that every member puts below the label never wins a draw. Disputed is what is left: a
    class and a draw with the members' margins, at least one of which is not positive.
    """

    images: int  # B
    draws: int  # N
    places: NDArray[np.int64]  # (T,), b N + j
    margins: Floats  # (T, L)

    @classmethod
    def of(cls, margins: ArrayLike, ys: ArrayLike) -> Self:
        """Find the disputed draws of margins (B, L, N, K) and classes (B,)."""
        z, y = np.asarray(margins, dtype=np.float64), np.asarray(ys)
        rivals = (z <= 0).any(axis=1) & (np.arange(z.shape[-1]) != y[:, None])[:, None]  # (B, N, K)
        image, draw, rival = np.nonzero(rivals)
        return cls(len(z), z.shape[2], image * z.shape[2] + draw, z[image, :, draw, rival])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put the images of several parts behind each other."""
        starts = np.cumsum([0, *(part.images * part.draws for part in parts[:-1])])
        places = np.concatenate(
            [part.places + start for part, start in zip(parts, starts, strict=True)]
        )
        margins = np.concatenate([part.margins for part in parts])
        return cls(sum(part.images for part in parts), parts[0].draws, places, margins)

    @property
    def members(self) -> int:
        """Number of members, L."""
        return self.margins.shape[1]

    @property
    def used_share(self) -> float:
        """Share of the images that have a disputed draw: on the others all weights get all votes."""
        return len(np.unique(self.places // self.draws)) / self.images

    def of_members(self, numbers: Sequence[int]) -> Self:
        """Return what is disputed among some of the members."""
        margins = self.margins[:, list(numbers)]
        disputed = (margins <= 0).any(axis=1)
        return type(self)(self.images, self.draws, self.places[disputed], margins[disputed])

    def votes(self, weights: Sequence[float]) -> NDArray[np.int64]:
        """Return k_b, the votes for the label of each image, (B,); a tie is lost."""
        total = np.zeros(len(self.margins))
        for weight, margins in zip(weights, self.margins.T, strict=True):
            total += weight * margins
        lost = np.zeros(self.images * self.draws, dtype=bool)
        lost[self.places[total <= 0]] = True
        return self.draws - lost.reshape(self.images, self.draws).sum(axis=1)


Radii = Callable[[Weights], Floats]
"""Radii of the images in units of sigma, (B,), by weights (L,): J is their mean."""


def radii_of(disputed: DisputedDraws) -> Radii:
    """Return the radii of the images as a function of the weights, which remembers what it was
    asked.
    """
    table = radius(lower_bound(np.arange(disputed.draws + 1), disputed.draws, ALPHA), sigma=1.0)
    return cache(lambda weights: table[disputed.votes(weights)])


class RadiusWeights(NamedTuple):
    """Weights for all images, and how far they were shrunk."""

    weights: Weights  # (L,)
    shrinkage: float  # one of SHRINKAGES: 0, as fitted, to 1, equal weights


def radius_weights(disputed: DisputedDraws) -> RadiusWeights:
    """Return the weights that maximise J, shrunk towards equal ones by cross-validation over
    images.

    Each fold of the images is judged with weights that were fitted to the other folds, shrunk by
    each of SHRINKAGES. The largest shrinkage is taken whose J is within one standard error, of the
    paired difference over images, of the largest J (Breiman et al. 1984, section 3.4.3). A single
    image leaves nothing to judge by, so weights are equal.
    """
    equal, radii = (1 / disputed.members,) * disputed.members, radii_of(disputed)
    if disputed.images < 2:
        return RadiusWeights(equal, 1.0)
    solve = (
        best_of_all
        if math.comb(PARTS + disputed.members - 1, PARTS) <= MAX_POINTS
        else best_forward
    )
    folds = np.arange(disputed.images) % min(FOLDS, disputed.images)
    judged = np.empty((len(SHRINKAGES), disputed.images))
    for fold in range(folds.max() + 1):
        out = folds == fold
        fitted = solve(radii, disputed.members, ~out)
        judged[:, out] = [radii(_shrunk(fitted, shrinkage))[out] for shrinkage in SHRINKAGES]
    shrinkage = SHRINKAGES[_first_within_one_error(judged)]
    fitted = solve(radii, disputed.members, np.full(disputed.images, True))
    return RadiusWeights(_shrunk(fitted, shrinkage) if shrinkage < 1 else equal, shrinkage)


def chosen_weights(disputed: DisputedDraws, budget: int) -> RadiusWeights:
    """Return the shares of ``budget`` members that each one has, chosen by J on all images:
    :func:`best_forward`.
    """
    used = np.full(disputed.images, True)
    return RadiusWeights(best_forward(radii_of(disputed), disputed.members, used, budget), 0.0)


def best_of_all(radii: Radii, members: int, used: NDArray[np.bool_]) -> Weights:
    """Return the weights in twelfths with the largest J over the images ``used`` (B,).

    Of equally good ones, the mean of those nearest to equal weights: so the order of the members
    does not matter.
    """
    counts = _lattice(members)
    means = np.array([fmean(radii(_weights(point))[used]) for point in counts])
    best = counts[means == means.max()]
    distances = (best**2).sum(axis=1)  # sums being equal, the order of distances to equal weights
    nearest = best[distances == distances.min()]
    return tuple((nearest.sum(axis=0) / (len(nearest) * PARTS)).tolist())


def best_forward(
    radii: Radii, members: int, used: NDArray[np.bool_], budget: int = PARTS
) -> Weights:
    """Choose ``budget`` members one after the other, with replacement (Caruana et al. 2004).

    Each step adds the member with which the softmax average of those chosen so far has the largest
    J over the images ``used`` (B,); of equally good ones that which was chosen least, then the
    first.

    Returns:
        Weights (L,): the share of ``budget`` that each member has.
    """
    counts = np.zeros(members, dtype=np.int64)
    for _ in range(budget):
        tried = counts + np.eye(members, dtype=np.int64)
        means = [fmean(radii(_weights(point))[used]) for point in tried]
        counts = tried[max(range(members), key=lambda member: (means[member], -counts[member]))]
    return _weights(counts)


@cache
def _lattice(members: int) -> NDArray[np.int64]:
    """Return all whole numbers (points, L) that are at least 0 and sum to PARTS."""
    bars = [
        (-1, *chosen, PARTS + members - 1)
        for chosen in combinations(range(PARTS + members - 1), members - 1)
    ]
    return np.diff(bars) - 1


def _weights(counts: NDArray[np.int64]) -> Weights:
    return tuple((counts / counts.sum()).tolist())


def _shrunk(weights: Weights, shrinkage: float) -> Weights:
    return tuple((1 - shrinkage) * weight + shrinkage / len(weights) for weight in weights)


def _first_within_one_error(judged: Floats) -> int:
    """Return the first row of (candidates, B) whose mean is at most one paired standard error below
    the largest.
    """
    lags = judged[np.argmax([fmean(row) for row in judged])] - judged
    errors = lags.std(axis=1, ddof=1) / math.sqrt(judged.shape[1])
    return int((np.array([fmean(row) for row in lags]) <= errors * ROUNDING).argmax())
