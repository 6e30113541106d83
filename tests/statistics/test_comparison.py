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


def frame(scores, **changes):
    return pd.DataFrame(
        {"idx": range(len(scores)), "label": 0, "radius": scores, "correct": 1} | changes
    )


def models(scores):
    """A sample of single models, scores (S, I), with the seeds 0, 1, ..."""
    return sample([frame(own) for own in scores], [[seed] for seed in range(len(scores))])


# ------------------------------------------------------------------------------------------------
# what is compared

tables = st.integers(2, 4).flatmap(
    lambda seeds: st.lists(
        st.lists(st.integers(0, 8), min_size=3, max_size=3), min_size=seeds, max_size=seeds
    )
)


def test_of_sub_ensembles_that_share_seeds_unevenly_the_larger_error_counts():
    """Of four pairs seed 0 is in three, seed 3 in one: the layout's own error over both can be the
    smaller one.
    """
    chosen, rng = [(0, 1), (0, 2), (1, 2), (0, 3)], np.random.default_rng(0)
    by_images = 0
    for _ in range(100):
        by_seed = rng.normal(size=(4, 30)) * rng.uniform(0.2, 2, 4)[:, None]
        scores = by_seed + 2 * rng.normal(size=30)
        made = estimate(sample([frame(scores[list(pair)].mean(axis=0)) for pair in chosen], chosen))
        width = made.error_images * stats.t.isf(LEVEL / 2, 29)
        by_images += made.half_width == pytest.approx(width, rel=ROUNDING)
        assert made.half_width >= width * (1 - ROUNDING)
        by_t = 2 * stats.t.sf(abs(made.value) / made.error_images, 29)
        assert made.p_value >= by_t * (1 - ROUNDING)
    assert by_images > 0


@given(tables)
def test_single_models_are_their_own_pseudo_values(scores):
    scores = np.array(scores, dtype=float)
    made, squares = estimate(models(scores)), mean_squares(scores)
    by_images = made.error_images * stats.t.isf(LEVEL / 2, 2)
    assert made.half_width == pytest.approx(
        max(half_width(LEVEL, squares), by_images), rel=ROUNDING, abs=1e-12
    )
    assert made.p_value >= float(p_value(scores.mean(), squares)) * (1 - ROUNDING)
    assert made.tie == (made.p_value > LEVEL)


@given(tables, st.integers(0, 4))
def test_what_seeds_share_leaves_the_difference(scores, shift):
    """The same seeds on both sides are paired: a constant difference has no error at all."""
    scores = np.array(scores, dtype=float)
    made = estimate(models(scores + shift), models(scores))
    assert made.value == pytest.approx(shift)
    assert (made.error, made.error_images) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_over_images_it_is_the_mean_gap_with_its_own_error():
    rng = np.random.default_rng(4)
    a, b = rng.random((3, 20)), rng.random((3, 20))
    made, gaps = estimate(models(a), models(b)), a.mean(axis=0) - b.mean(axis=0)
    assert (made.value, made.error_images) == pytest.approx((gaps.mean(), stats.sem(gaps)))
    assert (made.images, made.seeds) == (20, 3)


@pytest.mark.parametrize("seeds", [[[0]], [[0, 1, 2]], [[], []]])
def test_where_no_seed_can_be_left_out_the_error_is_of_images_only(seeds):
    """Of one seed; of one ensemble; of seeds that nobody knows."""
    made = estimate(sample([frame([1.0, 2.0, 3.0])] * len(seeds), seeds))
    assert made.error is None
    assert made.half_width == pytest.approx(made.error_images * stats.t.isf(LEVEL / 2, 2))


def test_a_difference_without_any_error_is_no_tie():
    assert not estimate(models(np.ones((2, 3)))).tie
    assert estimate(models(np.zeros((2, 3)))).tie


def test_samples_of_other_images_are_refused():
    with refuses("same images"):
        estimate(models(np.ones((2, 3))), models(np.ones((2, 4))))
    with refuses("same alpha"):
        sample([frame([1.0, 2.0], alpha=alpha) for alpha in (0.001, 0.01)], [[0], [1]])
    with refuses("at least 2 images, got 1"):
        estimate(models(np.ones((2, 1))))


# -------------------------------------------------------------------------------------------------
# many claims


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1, exclude_max=True))
def test_holm_rejects_at_any_level_what_its_steps_reject(p, level):
    """The definition: from the smallest on, until one exceeds level / (number of those left)."""
    rejected = 0
    for value in sorted(p):
        if value * (len(p) - rejected) > level:
            break
        rejected += 1
    corrected = np.array(holm(p))[np.argsort(p)]
    assert (corrected <= level).sum() == rejected
    assert (np.diff(corrected) >= 0).all()
