from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rs.statistics import two_way
from rs.statistics.comparison import LEVEL, Sample, estimate, fewest_seeds_of
from rs.statistics.metrics import BUDGET, Terms
from rs.statistics.two_way import MeanSquares, half_width, p_value

TRIALS = 2000
TABLES = 500
"""Number of simulations that make every score, and not only sums of squares."""
NULL = 1e-6
"""A test of a simulation fails with at most this probability where what it tests is true."""
LEVELS = [LEVEL, LEVEL / 12, LEVEL / 36]
IMAGES = 359
SEED_VARIANCES = (0.0, 0.1, 1.0, 8.0, 50.0)
INTERACTIONS = (0.01, 0.5, 3.0)
"""Components of the variance of the mean, in units of the component of images."""


def simulated(rng, seeds, seed_variance, interaction):
    """Means and mean squares of balanced tables whose true mean is 0."""
    freedom = np.array([IMAGES - 1, seeds - 1, (IMAGES - 1) * (seeds - 1)])
    expected = np.array([1 + interaction, seed_variance + interaction, interaction])
    squares = expected * rng.chisquare(freedom, (TRIALS, 3)) / freedom
    mean = np.sqrt(1 + seed_variance + interaction) * rng.standard_normal(TRIALS)
    return mean, MeanSquares(*squares.T, IMAGES, seeds)


def check_rejections(p_values):
    """Check that no level rejects more often than it says."""
    for level in LEVELS:
        rejections = (p_values <= level).sum()
        assert rejections <= stats.binom.isf(NULL, len(p_values), level)


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
def test_a_true_zero_is_rejected_at_most_as_often_as_the_level_says(seeds):
    rng = np.random.default_rng(seeds)
    for seed_variance, interaction in product(SEED_VARIANCES, INTERACTIONS):
        mean, squares = simulated(rng, seeds, seed_variance, interaction)
        check_rejections(p_value(mean, squares))


def normal_scores(rng, seeds, seed_variance, interaction):
    """Scores of single models (S, I) whose true mean is 0."""
    by_seed = np.sqrt(seed_variance * seeds) * rng.standard_normal((seeds, 1))
    rest = np.sqrt(interaction * seeds * IMAGES) * rng.standard_normal((seeds, IMAGES))
    by_image = np.sqrt(IMAGES) * rng.standard_normal(IMAGES)
    return by_image + by_seed + rest


def sample_of(scores, seeds, **fewest):
    terms = Terms("certify", dict.fromkeys(BUDGET, 1.0), np.arange(IMAGES), np.zeros(IMAGES))
    return Sample(terms, scores, tuple(map(frozenset, seeds)), **fewest)


def sub_ensembles(rng, seeds, members, effect):
    """All sub-ensembles, each the mean of its members, with an effect of its own."""
    scores = normal_scores(rng, seeds, 8.0, 0.5)
    seeds_of = list(combinations(range(seeds), members))
    means = np.stack([scores[list(team)].mean(axis=0) for team in seeds_of])
    effects = effect * rng.standard_normal((len(means), 1))
    return [sample_of(means + effects, seeds_of)]


def unequal_sides(rng, few, many):
    """A difference whose variance comes mostly from the side with fewer seeds."""
    first = normal_scores(rng, len(few), 50.0, 0.5)
    second = normal_scores(rng, len(many), 0.0, 0.5)
    return sample_of(first, few), sample_of(second, many)


def unequal_methods(rng):
    """Pairs of a method with five seeds and one with two, whose seeds make most of the variance."""
    pairs = [(a, b) for a, b in product(range(5), range(2)) if a != b]
    teams = [(("many", a), ("few", b)) for a, b in pairs]
    many = normal_scores(rng, 5, 0.0, 0.5)
    few = normal_scores(rng, 2, 50.0, 0.5)
    scores = np.stack([(many[a] + few[b]) / 2 for a, b in pairs])
    return [sample_of(scores, pairs, fewest_seeds=fewest_seeds_of(teams))]


@pytest.mark.parametrize(
    ("simulate", "arguments"),
    [
        (sub_ensembles, (3, 2, 0.0)),
        (sub_ensembles, (4, 3, 0.0)),
        (sub_ensembles, (4, 3, 3.0)),
        (unequal_sides, ([[0], [1]], [[0], [1], [2], [3], [4]])),
        (unequal_sides, ([[0], [1]], [[2], [3], [4]])),
        (unequal_methods, ()),
    ],
)
def test_estimates_keep_the_level(monkeypatch, simulate, arguments):
    """Without the interval, which is no part of the p-value but takes most of the time."""
    monkeypatch.setattr(two_way, "half_width", lambda *_: 0.0)
    rng = np.random.default_rng(0)
    p_values = [estimate(*simulate(rng, *arguments)).p_value for _ in range(TABLES)]
    check_rejections(np.array(p_values))


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(
    "components", [(1.0, 0.3, 0.2), (1.0, 8.0, 0.5), (1.0, 0.1, 0.9), (1.0, 0.01, 0.01)]
)
def test_the_p_value_is_its_expectation(seeds, components):
    """By a midpoint rule over the three chi-squares' own quantiles."""

    def over_chi_squares(square, freedom, count):
        quantiles = (np.arange(count) + 0.5) / count
        return square * freedom / stats.chi2.ppf(quantiles, freedom)

    squares = MeanSquares(*components, IMAGES, seeds)
    by_image = over_chi_squares(squares.images, IMAGES - 1, 20)[:, None, None]
    by_seed = over_chi_squares(squares.seeds, seeds - 1, 5000)[:, None]
    rest = over_chi_squares(squares.rest, (IMAGES - 1) * (seeds - 1), 10)
    deviation = np.sqrt(by_image + np.maximum(by_seed - rest, 0))
    for mean in (0.5, 2.0, 4.0):
        expected = 2 * stats.norm.sf(mean / deviation).mean()
        assert p_value(mean, squares) == pytest.approx(expected, rel=0.02, abs=1e-4)


@pytest.mark.parametrize("mean", [0.3, 2.0, 3.5])
def test_special_cases_are_students_t(mean):
    """Degrees of freedom are of the images without a seed component, of the seeds with only one."""
    images_alone = p_value(mean, MeanSquares(1.0, 0.0, 0.0, 359, 3))
    assert images_alone == pytest.approx(2 * stats.t.sf(mean, 358), rel=1e-4)
    for seeds in (2, 3, 5):
        seeds_alone = p_value(mean, MeanSquares(0.0, 1.0, 0.0, 359, seeds))
        assert seeds_alone == pytest.approx(2 * stats.t.sf(mean, seeds - 1), rel=1e-6)


squares = st.builds(
    MeanSquares,
    *[st.floats(1e-6, 10)] * 3,
    image_count=st.integers(20, 2000),
    seed_count=st.integers(2, 6),
)


@given(squares, st.sampled_from(LEVELS))
def test_the_interval_ends_where_the_p_value_is_the_level(squares, level):
    width = half_width(level, squares)
    assert p_value(width, squares) == pytest.approx(level, rel=1e-6)
    assert width >= stats.norm.isf(level / 2) * np.sqrt(squares.images) * 0.999
