"""Weights of the largest average certified radius."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from rs.statistics.radius_weights import (
    ALPHA,
    FOLDS,
    PARTS,
    SHRINKAGES,
    DisputedDraws,
    best_forward,
    best_of_all,
    radii_of,
    radius_weights,
)


def disputed_draws(seed, members=3, images=30, draws=20, skill=0.0, deviation=1.0):
    """Draws whose margins of two classes are normal, some images and draws being hard for all
    members.

    Args:
        skill: Mean margin of each member, or one for all.
        deviation: Standard deviation of what members do not have in common.
    """
    rng = np.random.default_rng(seed)
    of_images = rng.normal(size=(images, 1, 1))
    of_draws = 0.5 * rng.normal(size=(images, 1, draws))
    of_members = deviation * rng.normal(size=(images, members, draws))
    skills = np.broadcast_to(skill, members)[:, None]
    z = skills + of_images + of_draws + of_members
    margins = np.stack([np.zeros_like(z), z], axis=-1)
    return DisputedDraws.of(margins, np.zeros(images, dtype=int))


problems = st.builds(
    disputed_draws,
    seed=st.integers(0, 2**32 - 1),
    members=st.integers(1, 4),
    images=st.integers(2, 12),
    draws=st.integers(1, 12),
    deviation=st.sampled_from([0.1, 1.0, 3.0]),
)


def mean_radius(problem, weights):
    """J by hand."""
    votes = problem.votes(weights)
    bounds = special.betaincinv(np.maximum(votes, 1), problem.draws - votes + 1, ALPHA)
    radii = np.where(votes > 0, special.ndtri(bounds), 0.0)
    return statistics.fmean(radii.clip(min=0.0))


def lattice(members):
    """All weights (points, L), in twelfths."""
    counts = itertools.product(range(PARTS + 1), repeat=members)
    return np.array([point for point in counts if sum(point) == PARTS])


# -------------------------------------------------------------------------------------------------
# votes


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 5))
def test_votes_are_those_of_the_softmax_average(seed, members, classes):
    """Outputs and weights in 32nds, whose sums are exact, so that there are ties. A tie is not a
    vote.
    """
    rng = np.random.default_rng(seed)
    p = rng.multinomial(32, np.full(classes, 1 / classes), size=(3, members, 7)) / 32
    y = rng.integers(classes, size=3)
    weights = (rng.multinomial(32, np.full(members, 1 / members)) / 32).tolist()
    margins = p[np.arange(3), :, :, y][..., None] - p

    votes = DisputedDraws.of(margins, y).votes(weights)

    average = np.einsum("l,blnk->bnk", weights, p)
    of_label = np.take_along_axis(average, y[:, None, None], axis=2)
    beaten_classes = (average < of_label).sum(axis=2)
    expected = (beaten_classes == classes - 1).sum(axis=1)
    assert votes.tolist() == expected.tolist()


# -------------------------------------------------------------------------------------------------
# the best weights


@given(problems)
def test_no_other_weights_in_twelfths_have_a_larger_radius_unless_equally_good_ones_are_averaged(
    problem,
):
    """With the radii summed exactly, as rationals would be, up to one rounding."""
    radii = radii_of(problem)
    points = lattice(problem.members)
    sums = np.array([math.fsum(radii(tuple(point / PARTS))) for point in points])
    best = points[sums == sums.max()]
    squares = (best**2).sum(axis=1)
    nearest = best[squares == squares.min()]
    expected = nearest.mean(axis=0) / PARTS
    every = np.ones(problem.images, dtype=bool)
    assert best_of_all(radii, problem.members, every) == pytest.approx(expected, rel=1e-14)


def slow_radius_weights(problem):
    """Cross-validation and the rule of one standard error, in loops."""
    radii = radii_of(problem)
    members = problem.members
    folds = np.arange(problem.images) % FOLDS

    def fit(is_used, shrinkage):
        weights = best_of_all(radii, members, is_used)
        return tuple((1 - shrinkage) * weight + shrinkage / members for weight in weights)

    judged = {shrinkage: [] for shrinkage in SHRINKAGES}
    for shrinkage, (image, fold) in itertools.product(SHRINKAGES, enumerate(folds)):
        weights = fit(folds != fold, shrinkage)
        judged[shrinkage].append(radii(weights)[image])
    best = max(SHRINKAGES, key=lambda shrinkage: math.fsum(judged[shrinkage]))
    for shrinkage in SHRINKAGES:
        lags = np.subtract(judged[best], judged[shrinkage])
        if lags.mean() <= stats.sem(lags) * (1 + 1e-9):
            return fit(folds >= 0, shrinkage), shrinkage
    raise AssertionError


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("skill", [0.0, (0.0, 0.5, 1.0)])
def test_the_shrinkage_is_the_largest_within_one_error_of_the_best_on_images_left_out(seed, skill):
    problem = disputed_draws(seed, images=23, skill=skill)
    fitted = radius_weights(problem)
    weights, shrinkage = slow_radius_weights(problem)
    assert fitted.shrinkage == shrinkage
    assert fitted.weights == pytest.approx(weights, rel=1e-14)


# -------------------------------------------------------------------------------------------------
# weights of many members


def slow_choice(problem):
    """How often each member is chosen, in loops over what has been chosen, with J by hand."""
    counts = [0] * problem.members
    for step in range(1, PARTS + 1):
        means = []
        for member in range(problem.members):
            team = [*counts]
            team[member] += 1
            means.append(mean_radius(problem, [count / step for count in team]))
        largest = pytest.approx(max(means), rel=1e-12, abs=1e-12)
        best = [member for member, mean in enumerate(means) if mean == largest]
        least_chosen = min(best, key=lambda member: counts[member])
        counts[least_chosen] += 1
    return counts


@given(problems)
def test_each_member_that_is_chosen_is_the_best_one_to_add(problem):
    every = np.ones(problem.images, dtype=bool)
    weights = best_forward(radii_of(problem), problem.members, every)
    assert weights == tuple(count / PARTS for count in slow_choice(problem))
