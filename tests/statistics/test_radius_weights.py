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


def disputed_draws(seed, members=3, images=30, draws=20, skill=0.0, own=1.0):
    """Draws whose margins of two classes are normal, some images and draws being hard for all
    members.

    Args:
        skill: Mean margin of each member, or one for all.
        own: Standard deviation of what members do not have in common.
    """
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(images, 1, 1)) + 0.5 * rng.normal(size=(images, 1, draws))
    skills = np.broadcast_to(skill, members)[:, None]
    z = skills + hard + own * rng.normal(size=(images, members, draws))
    return DisputedDraws.of(np.stack([np.zeros_like(z), z], axis=-1), np.zeros(images, dtype=int))


problems = st.builds(
    disputed_draws,
    seed=st.integers(0, 2**32 - 1),
    members=st.integers(1, 4),
    images=st.integers(2, 12),
    draws=st.integers(1, 12),
    own=st.sampled_from([0.1, 1.0, 3.0]),
)


def mean_radius(problem, weights):
    """J by hand."""
    votes = problem.votes(weights)
    bounds = special.betaincinv(np.maximum(votes, 1), problem.draws - votes + 1, ALPHA)
    radii = np.where(votes > 0, special.ndtri(bounds), 0.0)
    return statistics.fmean(radii.clip(min=0.0))


def lattice(members):
    """All weights in twelfths."""
    counts = itertools.product(range(PARTS + 1), repeat=members)
    return [tuple(count / PARTS for count in one) for one in counts if sum(one) == PARTS]


# -------------------------------------------------------------------------------------------------
# votes


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 5))
def test_votes_are_those_of_the_softmax_average(seed, members, classes):
    """Outputs and weights in 32nds, whose sums are exact, so that there are ties: none of them is a
    vote.
    """
    rng = np.random.default_rng(seed)
    p = rng.multinomial(32, np.full(classes, 1 / classes), size=(3, members, 7)) / 32
    y = rng.integers(classes, size=3)
    weights = (rng.multinomial(32, np.full(members, 1 / members)) / 32).tolist()
    z = p[np.arange(3), :, :, y][..., None] - p
    average = np.einsum("l,blnk->bnk", weights, p)
    own = np.take_along_axis(average, y[:, None, None], axis=2)
    is_beaten = (average < own).sum(axis=2) == classes - 1
    assert DisputedDraws.of(z, y).votes(weights).tolist() == is_beaten.sum(axis=1).tolist()


# -------------------------------------------------------------------------------------------------
# the best weights


@given(problems)
def test_no_other_weights_in_twelfths_have_a_larger_radius_unless_equally_good_ones_are_averaged(
    problem,
):
    """With the radii summed exactly, as rationals would be, up to one rounding."""
    radii = radii_of(problem)
    means = {w: math.fsum(radii(w)) for w in lattice(problem.members)}
    largest = max(means.values())
    top = [w for w in means if means[w] == largest]
    least = min(round(sum((PARTS * one) ** 2 for one in w)) for w in top)
    nearest = [w for w in top if round(sum((PARTS * one) ** 2 for one in w)) == least]
    expected = [statistics.fmean(own) for own in zip(*nearest, strict=True)]
    every = np.ones(problem.images, dtype=bool)
    assert best_of_all(radii, problem.members, every) == pytest.approx(expected, rel=1e-14)


def slow_radius_weights(problem):
    """Cross-validation and the rule of one standard error, in loops."""
    radii, members, images = radii_of(problem), problem.members, np.arange(problem.images)

    def fit(used, shrinkage):
        fitted = best_of_all(radii, members, used)
        return tuple((1 - shrinkage) * weight + shrinkage / members for weight in fitted)

    judged = {
        shrinkage: [radii(fit(images % FOLDS != b % FOLDS, shrinkage))[b] for b in images]
        for shrinkage in SHRINKAGES
    }
    best = max(SHRINKAGES, key=lambda shrinkage: math.fsum(judged[shrinkage]))
    for shrinkage in SHRINKAGES:
        lags = np.subtract(judged[best], judged[shrinkage])
        error = stats.sem(lags)
        if lags.mean() <= error * (1 + 1e-9):
            return fit(images >= 0, shrinkage), shrinkage
    raise AssertionError


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("skill", [0.0, (0.0, 0.5, 1.0)])
def test_the_shrinkage_is_the_largest_within_one_error_of_the_best_on_images_left_out(seed, skill):
    problem = disputed_draws(seed, images=23, skill=skill)
    weights, shrinkage = slow_radius_weights(problem)
    found = radius_weights(problem)
    assert found.shrinkage == shrinkage
    assert found.weights == pytest.approx(weights, rel=1e-14)


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
        best = pytest.approx(max(means), rel=1e-12, abs=1e-12)
        good = [member for member, mean in enumerate(means) if mean == best]
        counts[min(good, key=lambda member: (counts[member], member))] += 1
    return counts


@given(problems)
def test_each_member_that_is_chosen_is_the_best_one_to_add(problem):
    every = np.ones(problem.images, dtype=bool)
    weights = best_forward(radii_of(problem), problem.members, every)
    assert weights == tuple(count / PARTS for count in slow_choice(problem))
