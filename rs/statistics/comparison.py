"""Average certified radii and their differences, with errors over images and training seeds.

A study certifies classifiers of some training seeds on some images; both are samples. With d[i] the
difference of the mean scores (radius times correct) on image i, and d_s[i] that difference without
every classifier that training seed s is in, the pseudo-values of the jackknife are

    p[s, i] = S d[i] - (S - 1) d_s[i]       (Tukey 1958; of U-statistics: Arvesen 1969)

For single models p[s, i] is the difference at seed s itself. For ensembles, each sub-ensemble of k
of the S seeds being a value of the kernel, the mean of all is a U-statistic, and the jackknife
never understates its variance in expectation (Efron & Stein 1981). The table p of seeds by images
is a two-way layout of random effects: :mod:`rs.statistics.two_way` computes the p-value and the
interval of its mean. Student's t over images alone gives another p-value; the larger one of both
decides. They agree in order where all classifiers have as many seeds and all seeds as many
classifiers.

The seeds of one method alone can make nearly all of the variance. The variance estimate then has
one degree of freedom less than that method has seeds, however many seeds the other methods have. So
the table counts as one of as many seeds as the method with the fewest has, on either side of a
difference, and in an ensemble of several methods. This is the conservative choice of degrees of
freedom for Student's t of two samples (Mickey & Brown 1966). Where all methods have the same seeds,
it is the number of rows of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from rs.errors import InputError
from rs.statistics import metrics, two_way
from rs.statistics.metrics import Terms

Floats = NDArray[np.float64]

LEVEL = 0.05
"""Two-sided; a difference whose p-value is larger is a tie."""

NORMAL_QUANTILE = float(stats.norm.isf(LEVEL / 2))
DIGITS = 6
"""Significant digits of p-values and errors over images and seeds; processors agree on these."""


@dataclass(frozen=True)
class Sample:
    """Scores (classifiers, images) of one method: one row per training seed, or set of seeds."""

    terms: Terms  # of the first classifier's rows: budget, images and labels
    scores: Floats  # whose mean is compared (:func:`sample`), in the order of the images' numbers
    seeds: tuple[frozenset[int], ...]  # training seeds of each classifier; empty: not known
    # of the method with the fewest seeds (:func:`fewest_seeds_of`); None: of the only method
    fewest_seeds: int | None = None

    def mean(self, without: int | None = None) -> Floats | None:
        """Return the mean scores (images,) of classifiers without a seed; ``None`` if none."""
        is_left = [without not in seeds for seeds in self.seeds]
        if not any(is_left):
            return None
        return self.scores[is_left].mean(axis=0)

    @property
    def all_seeds(self) -> frozenset[int]:
        """The training seeds of all classifiers."""
        return frozenset[int]().union(*self.seeds)

    @property
    def counted_seeds(self) -> int:
        """The number of seeds that determines the degrees of freedom."""
        if self.fewest_seeds is None:
            return len(self.all_seeds)
        return self.fewest_seeds


@dataclass(frozen=True)
class Estimate:
    """An average certified radius, a certified accuracy, or the difference of two, with its errors.

    ``error`` is the half-width of the 95% interval over images and training seeds, divided by the
    normal quantile 1.96: the standard error of a normal estimate with that interval. So a
    difference is a tie if it is at most 1.96 errors, for any number of seeds.
    """

    value: float
    error_images: float  # standard error over images, given the training seeds at hand
    error: float | None  # over images and training seeds; None for a single seed
    # two-sided, of "the value is 0": the larger one over images, and over images and seeds
    p_value: float
    images: int
    seeds: int  # number of training seeds; 0: not known

    @property
    def tie(self) -> bool:
        """Whether the value may be 0 at :data:`LEVEL`: it lies in the 95% interval around 0."""
        return abs(self.value) <= self.half_width

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval, over images and seeds if that is known."""
        if self.error is None:
            return self.error_images * _student_quantile(self.images)
        return self.error * NORMAL_QUANTILE


def fewest_seeds_of(teams: Iterable[Iterable[tuple[str, int]]]) -> int | None:
    """Return the number of seeds of the method with the fewest; ``None`` without methods.

    Args:
        teams: Training method and seed of each member, for each ensemble.

    >>> fewest_seeds_of([[("advmacer", 0), ("macer", 1)], [("advmacer", 2), ("macer", 1)]])
    1
    """
    seeds: dict[str, set[int]] = {}
    for team in teams:
        for method, seed in team:
            seeds.setdefault(method, set()).add(seed)
    return min(map(len, seeds.values()), default=None)


def sample(
    rows: Sequence[pd.DataFrame],
    seeds: Sequence[Iterable[int]],
    radius: float | None = None,
    fewest_seeds: int | None = None,
) -> Sample:
    """Return the scores of classifiers, with their training seeds.

    Args:
        rows: Rows of each classifier.
        seeds: Training seeds of each classifier.
        radius: Scores are 1 for images that are certified at this radius, else 0; their mean is the
            certified accuracy. ``None``: radius times correct, whose mean is the ACR.
        fewest_seeds: As in :class:`Sample`.
    Raises:
        InputError: If there are none, or they are of different images or budgets.
    """
    terms = [metrics.terms_of(frame) for frame in rows]
    metrics.check_comparable(terms)
    if radius is None:
        scores = [metrics.image_scores(frame) for frame in rows]
    else:
        scores = [metrics.certified_at(frame, radius) for frame in rows]
    return Sample(terms[0], np.stack(scores), tuple(map(frozenset, seeds)), fewest_seeds)


def estimate(first: Sample, second: Sample | None = None) -> Estimate:
    """Return the mean score of a sample, such as its ACR, or the difference of two, with errors.

    A seed is the same in both samples: its networks start with the same weights and see the images
    in the same order, so their common effect cancels in the difference.

    Raises:
        InputError: If the two are of different images or budgets, or of fewer than two images.
    """
    samples = [first] if second is None else [first, second]
    metrics.check_comparable([group.terms for group in samples])
    are_known = all(all(group.seeds) for group in samples)
    seeds = sorted(frozenset[int]().union(*(group.all_seeds for group in samples)))
    counted = min(group.counted_seeds for group in samples)
    difference = _difference(samples)
    assert difference is not None  # it leaves no seed out
    images = len(difference)
    if images < 2:
        raise InputError(f"a standard error needs at least 2 images, got {images}; certify more")
    value = float(difference.mean())
    error_images = float(difference.std(ddof=1)) / math.sqrt(images)
    by_images = _student_p_value(value, error_images, images)
    p_value = by_images
    error = None
    without_seed = [_difference(samples, seed) for seed in seeds]
    differences = [part for part in without_seed if part is not None]
    if counted >= 2 and len(differences) == len(seeds) and are_known:
        table = len(seeds) * difference - (len(seeds) - 1) * np.stack(differences)
        squares = two_way.mean_squares(table)._replace(seed_count=counted)
        p_value = max(by_images, float(two_way.p_value(value, squares)))
        over_images = error_images * _student_quantile(images)
        half_width = max(over_images, two_way.half_width(LEVEL, squares))
        error = _rounded(half_width / NORMAL_QUANTILE)
    return Estimate(value, error_images, error, _rounded(p_value), images, len(seeds))


def is_tie(p_value: float) -> bool:
    """Return whether a difference of this p-value may be 0 at :data:`LEVEL`."""
    return p_value > LEVEL


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: one of them is wrongly small at most at LEVEL.

    The k-th smallest of m is multiplied by m - k + 1, and is at least the corrected value of the
    smaller ones (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    multiplied = np.asarray(p_values, dtype=np.float64)[order] * factors
    corrected = np.maximum.accumulate(multiplied).clip(max=1.0)
    return corrected[np.argsort(order)].tolist()


def _difference(samples: Sequence[Sample], without: int | None = None) -> Floats | None:
    """Return the mean scores without a seed, or the difference of two samples' mean scores.

    It is ``None`` if all classifiers of a sample have this seed.
    """
    first, *others = [group.mean(without) for group in samples]
    for other in others:
        if first is None or other is None:
            return None
        first = first - other
    return first


def _student_p_value(value: float, error: float, images: int) -> float:
    if error == 0:
        return float(value == 0)
    return float(2 * stats.t.sf(abs(value) / error, images - 1))


@cache
def _student_quantile(images: int) -> float:
    return float(stats.t.isf(LEVEL / 2, images - 1))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
