import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rs.statistics.comparison import DIGITS, LEVEL, estimate, holm, sample
from rs.statistics.two_way import half_width, mean_squares, p_value
from tests.support.helpers import refuses

ROUNDING = 10.0**-DIGITS * 5
"""Relative error of a number that is rounded to DIGITS digits."""


def frame(scores, **changes):
    columns = {"idx": range(len(scores)), "label": 0, "radius": scores, "correct": 1}
    return pd.DataFrame(columns | changes)


def models(scores):
    """A sample of single models, scores (S, I), with the seeds 0, 1, ..."""
    frames = [frame(of_model) for of_model in scores]
    return sample(frames, [[seed] for seed in range(len(frames))])


def quantile(degrees_of_freedom):
    """Student's quantile that an interval of both sides is made of."""
    return stats.t.isf(LEVEL / 2, degrees_of_freedom)


# ------------------------------------------------------------------------------------------------
# what is compared

scores_of_a_model = st.lists(st.integers(0, 8), min_size=3, max_size=3)
tables = st.lists(scores_of_a_model, min_size=2, max_size=4).map(
    lambda rows: np.array(rows, dtype=float)
)


def test_of_sub_ensembles_that_share_seeds_unevenly_the_larger_error_counts():
    """Of four pairs seed 0 is in three, seed 3 in one: the layout's own error over both can be the
    smaller one.
    """
    pairs = [(0, 1), (0, 2), (1, 2), (0, 3)]
    rng = np.random.default_rng(0)
    count_by_images = 0
    for _ in range(100):
        by_seed = rng.normal(size=(4, 30))
        by_seed *= rng.uniform(0.2, 2, 4)[:, None]
        scores = by_seed + 2 * rng.normal(size=30)
        frames = [frame(scores[list(pair)].mean(axis=0)) for pair in pairs]

        difference = estimate(sample(frames, pairs))

        width = difference.error_images * quantile(29)
        count_by_images += difference.half_width == pytest.approx(width, rel=ROUNDING)
        assert difference.half_width >= width * (1 - ROUNDING)
        by_t = 2 * stats.t.sf(abs(difference.value) / difference.error_images, 29)
        assert difference.p_value >= by_t * (1 - ROUNDING)
    assert count_by_images > 0


@given(tables)
def test_single_models_are_their_own_pseudo_values(scores):
    difference = estimate(models(scores))
    squares = mean_squares(scores)
    width = max(half_width(LEVEL, squares), difference.error_images * quantile(2))
    least = float(p_value(scores.mean(), squares))
    assert difference.half_width == pytest.approx(width, rel=ROUNDING, abs=1e-12)
    assert difference.p_value >= least * (1 - ROUNDING)
    assert difference.tie == (difference.p_value > LEVEL)


@given(tables, st.integers(0, 4))
def test_what_seeds_share_leaves_the_difference(scores, shift):
    """The same seeds on both sides are paired: a constant difference has no error at all."""
    difference = estimate(models(scores + shift), models(scores))
    assert difference.value == pytest.approx(shift)
    assert difference.error == pytest.approx(0.0, abs=1e-6)
    assert difference.error_images == pytest.approx(0.0, abs=1e-6)


def test_over_images_it_is_the_mean_gap_with_its_own_error():
    rng = np.random.default_rng(4)
    first = rng.random((3, 20))
    second = rng.random((3, 20))
    difference = estimate(models(first), models(second))
    gaps = first.mean(axis=0) - second.mean(axis=0)
    assert difference.value == pytest.approx(gaps.mean())
    assert difference.error_images == pytest.approx(stats.sem(gaps))
    assert (difference.images, difference.seeds) == (20, 3)


@pytest.mark.parametrize("seeds", [[[0]], [[0, 1, 2]], [[], []]])
def test_where_no_seed_can_be_left_out_the_error_is_of_images_only(seeds):
    """One seed, one ensemble, or unknown seeds."""
    difference = estimate(sample([frame([1.0, 2.0, 3.0])] * len(seeds), seeds))
    assert difference.error is None
    assert difference.half_width == pytest.approx(difference.error_images * quantile(2))


def test_a_difference_without_any_error_is_no_tie():
    assert not estimate(models(np.ones((2, 3)))).tie
    assert estimate(models(np.zeros((2, 3)))).tie


def test_samples_of_other_images_are_refused():
    with refuses("same images"):
        estimate(models(np.ones((2, 3))), models(np.ones((2, 4))))
    frames = [frame([1.0, 2.0], alpha=alpha) for alpha in (0.001, 0.01)]
    with refuses("same alpha"):
        sample(frames, [[0], [1]])
    with refuses("at least 2 images, got 1"):
        estimate(models(np.ones((2, 1))))


# -------------------------------------------------------------------------------------------------
# many claims


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1, exclude_max=True))
def test_holm_rejects_at_any_level_what_its_steps_reject(p_values, level):
    """The definition: from the smallest on, until one exceeds level / (number of those left)."""
    rejected = 0
    for p in sorted(p_values):
        if p * (len(p_values) - rejected) > level:
            break
        rejected += 1
    in_order = np.argsort(p_values)
    corrected = np.array(holm(p_values))[in_order]
    assert (corrected <= level).sum() == rejected
    assert (np.diff(corrected) >= 0).all()
