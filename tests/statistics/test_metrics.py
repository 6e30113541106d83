import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.statistics import metrics
from rs.statistics.metrics import acr, certified_accuracy, check_comparable, common_budget, terms_of
from tests.support.helpers import refuses

images = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 4), st.booleans()),
    min_size=2,
    max_size=40,
)


def frame(pairs, **columns):
    radius, correct = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    budget = {"n0": 100, "n": 1000, "alpha": 0.001, "sigma": 0.5}
    made = {
        "idx": np.arange(len(radius)),
        "label": 0,
        "radius": radius,
        "correct": correct,
    } | budget
    return pd.DataFrame(made | columns)


@given(images)
def test_acr_is_the_integral_of_certified_accuracy(pairs):
    """Certified accuracy is a step function of the radius, so the integral is a finite sum."""
    rows = frame(pairs)
    steps = np.unique([0.0, *rows["radius"]])
    assert acr(rows) == pytest.approx(
        (np.diff(steps) * certified_accuracy(rows, steps[1:])).sum(), rel=1e-9
    )


@given(images)
def test_certified_accuracy_counts_correct_images_of_at_least_the_radius(pairs):
    grid = [0.0, 0.25, 0.3, 1.0, 9.0]
    expected = [sum(ok and r >= at for r, ok in pairs) / len(pairs) for at in grid]
    assert certified_accuracy(frame(pairs), grid).tolist() == expected
    assert certified_accuracy(frame(pairs), 0.25) == expected[1]
    listed = [[float(ok and r >= at) for r, ok in pairs] for at in grid]
    assert [metrics.certified_at(frame(pairs), at).tolist() for at in grid] == listed


ROWS = [(1.0, 1), (0.5, 1), (0.2, 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 10_000}, "the same n, got 1,000 and 10,000"),
        ({"alpha": np.nan}, "the same alpha, got 0.001 and an unknown one"),
        ({"alpha": [0.1, 0.1, 0.2]}, "rows must all have the same alpha"),
        ({"idx": [0, 1, 3]}, "the same images, got 3 and 3, 2 of them shared"),
        ({"idx": [0, 1, 1]}, "unique idx"),
        ({"label": [0, 0, 1]}, "the same labels"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused_with_a_reason(change, message):
    with refuses(message):
        check_comparable([terms_of(rows) for rows in (frame(ROWS), frame(ROWS, **change))])


def test_rows_that_skipped_their_draws_agree_with_any_n_and_do_not_hide_that_others_differ():
    """The shortcut changes neither ACR nor accuracies, only n of the rows it skipped."""
    some, none, a, b = (terms_of(frame(ROWS, n=n)) for n in ([1000, 0, 0], 0, 1000, 2000))
    expected = [([some, a], 1000), ([none, b], 2000), ([b, none], 2000), ([none], 0)]
    for terms, n in expected:
        assert common_budget(terms, "n") == n
    check_comparable([some, none, a])
    with refuses("the same n, got 1,000 and 2,000"):
        check_comparable([none, a, b])


@pytest.mark.parametrize("measure", [acr, metrics.image_scores])
def test_rows_that_ask_one_radius_have_no_average_radius(measure):
    asked = frame([(0.5, 1), (0.5, 1), (0.0, 0)], mode="at-radius:0.5:1000")
    with refuses(
        r"must hold radii, got only .*\(at-radius:0.5:1000\); .* without --at-radius",
    ):
        measure(asked)
    assert certified_accuracy(asked, 0.5) == pytest.approx(2 / 3)


def test_rows_whose_radius_is_unknown_have_no_average_radius():
    with refuses("finite"):
        acr(frame([(np.nan, 1)]))
