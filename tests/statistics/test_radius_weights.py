"""Weights of the largest average certified radius, and members chosen by it."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from rs.statistics.radius_weights import (
    ALPHA,
    FOLDS,
    PARTS,
    SHRINKAGES,
    DisputedDraws,
    best_of_all,
    chosen_weights,
    radii_of,
    radius_weights,
)


def pool(seed, members=3, images=30, draws=20, skill=0.0, own=1.0):
    """Margins (B, L, N, 2) of the classes 0: of two classes, normal, some images and draws being
    hard for all members.

    Args:
        skill: Mean margin of each member, or one for all.
        own: Standard deviation of what members do not have in common.
    """
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(images, 1, 1)) + 0.5 * rng.normal(size=(images, 1, draws))
    z = (
        np.broadcast_to(skill, members)[:, None]
        + hard
        + own * rng.normal(size=(images, members, draws))
    )
    return np.stack([np.zeros_like(z), z], axis=-1)


def disputed_draws(*args, **kwargs):
    z = pool(*args, **kwargs)
    return DisputedDraws.of(z, np.zeros(len(z), dtype=int))


problems = st.builds(
    disputed_draws,
    seed=st.integers(0, 2**32 - 1),
    members=st.integers(1, 4),
    images=st.integers(2, 12),
    draws=st.integers(1, 12),
    own=st.sampled_from([0.1, 1.0, 3.0]),
)


def mean_radius(given_contests, weights):
    """J by hand."""
    bounds = [special.betaincinv(k, given_contests.draws - k + 1, ALPHA) if k else 0.0 for k in
              given_contests.votes(weights)]  # fmt: skip
    return statistics.fmean(max(0.0, float(special.ndtri(bound))) for bound in bounds)


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
    p, y = (
        rng.multinomial(32, np.full(classes, 1 / classes), size=(3, members, 7)) / 32,
        rng.integers(classes, size=3),
    )
    weights = (rng.multinomial(32, np.full(members, 1 / members)) / 32).tolist()
    z = p[np.arange(3), :, :, y][..., None] - p
    average = np.einsum("l,blnk->bnk", weights, p)
    expected = [
        sum(all(draw[y[b]] > draw[i] for i in range(classes) if i != y[b]) for draw in average[b])
        for b in range(3)
    ]
    assert DisputedDraws.of(z, y).votes(weights).tolist() == expected


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
    radii, size, equal = radii_of(problem), problem.images, [1 / problem.members] * problem.members

    def between(fitted, shrinkage):
        return tuple((1 - shrinkage) * w + shrinkage / len(equal) for w in fitted)

    judged = {shrinkage: [] for shrinkage in SHRINKAGES}
    for b in range(size):
        used = np.array([i % FOLDS != b % FOLDS for i in range(size)])
        fitted = best_of_all(radii, problem.members, used)
        for shrinkage, scores in judged.items():
            scores.append(float(radii(between(fitted, shrinkage))[b]))
    best = max(SHRINKAGES, key=lambda shrinkage: math.fsum(judged[shrinkage]))
    for shrinkage in SHRINKAGES:
        lags = [b - a for a, b in zip(judged[shrinkage], judged[best], strict=True)]
        if statistics.fmean(lags) <= statistics.stdev(lags) / math.sqrt(size) * (1 + 1e-9):
            return between(
                best_of_all(radii, problem.members, np.ones(size, dtype=bool)), shrinkage
            ), shrinkage
    raise AssertionError


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("skill", [0.0, (0.0, 0.5, 1.0)])
def test_the_shrinkage_is_the_largest_within_one_error_of_the_best_on_images_left_out(seed, skill):
    problem = disputed_draws(seed, images=23, skill=skill)
    weights, shrinkage = slow_radius_weights(problem)
    found = radius_weights(problem)
    assert found.shrinkage == shrinkage
    assert found.weights == pytest.approx(weights, rel=1e-14)


# -------------------------------------------------------------------------------------------------
# chosen members


def slow_choice(problem, budget):
    """How often each member is chosen, in loops over what has been chosen, with J by hand."""
    chosen = []
    for _ in range(budget):
        means = []
        for member in range(problem.members):
            team = [*chosen, member]
            means.append(
                mean_radius(
                    problem, [team.count(one) / len(team) for one in range(problem.members)]
                )
            )
        good = [
            one
            for one, mean in enumerate(means)
            if mean == pytest.approx(max(means), rel=1e-12, abs=1e-12)
        ]
        chosen.append(min(good, key=lambda one: (chosen.count(one), one)))
    return [chosen.count(one) for one in range(problem.members)]


@given(problems, st.integers(1, 5))
def test_each_member_that_is_chosen_is_the_best_one_to_add(problem, budget):
    counts = slow_choice(problem, budget)
    weights, shrinkage = chosen_weights(problem, budget)
    assert weights == tuple(count / budget for count in counts)
    assert shrinkage == 0


# -------------------------------------------------------------------------------------------------
# noise
