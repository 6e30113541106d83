from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from rs.statistics.certificate import ABSTAIN, format_counts
from rs.statistics.radius import lower_bound, radius, two_sided_radius
from rs.statistics.resampling import dense_votes, two_sided, with_fewer_draws
from tests.support import tiny_study
from tests.support.helpers import refuses
from tests.support.tiny_study import ALPHA, IMAGES, N, cell_rows, make_rows

SIGMA = 0.5


def fewer(rows, draws):
    return next(with_fewer_draws(rows, [draws]))


def mean_over_subsets(is_vote, size):
    """The mean radius over every subset of the draws, one by one."""
    radii = [
        radius(lower_bound(sum(chosen), size, ALPHA), SIGMA)
        for chosen in combinations(is_vote, size)
    ]
    return np.mean(radii)


@pytest.mark.parametrize("size", range(1, 10))
def test_fewer_draws_are_the_mean_over_every_choice_of_so_many(size):
    rows = make_rows(SIGMA, 0, n=9, label=0)[:10]
    rows["counts"] = [format_counts([votes, 9 - votes]) for votes in range(10)]
    found = fewer(rows, size)
    expected = [
        mean_over_subsets([number < votes for number in range(9)], size) for votes in range(10)
    ]
    assert found["radius"].tolist() == pytest.approx(expected, rel=1e-12)
    assert set(found["n"]) == {size}
    assert set(found["correct"]) == {1}


def test_fewer_draws_refuse_more_draws_and_rows_that_stopped_early():
    rows = cell_rows("gaussian", 0.5, 0)
    for draws in (0, N + 1):
        with refuses(f"between 1 and the {N}"):
            fewer(rows, draws)
    with refuses("must hold radii"):
        fewer(rows.assign(mode="at-radius:0.25:200"), 5)


# ------------------------------------------------------------------------------------------
# two-sided certificates


def test_two_sided_rows_are_those_of_the_class_of_the_n0_draws():
    frame = cell_rows("gaussian", SIGMA, 0).assign(counts0="0:1,1:6,2:3")
    votes = dense_votes(frame["counts"], 3)
    rows = two_sided(frame, tiny_study.CLASSES)
    radii = two_sided_radius(votes, np.ones(IMAGES, dtype=int), 0.5, ALPHA)
    assert (radii > 0).any()
    predict = np.where(radii > 0, 1, ABSTAIN)
    assert rows["radius"].tolist() == radii.tolist()
    assert rows["predict"].tolist() == predict.tolist()
    assert rows["correct"].tolist() == (predict == frame["label"]).tolist()


def test_rows_of_other_classes_or_that_stopped_early_have_no_two_sided_radius():
    rows = cell_rows("gaussian", SIGMA, 0)
    with refuses("one of 1 classes"):
        two_sided(rows, 1)
    with refuses("must hold radii"):
        two_sided(rows.assign(mode="at-radius:0.25:200"), 3)


@cache
def outcomes(n, classes):
    """Every way in which n votes fall on the classes, (outcomes, classes)."""
    some = [head for head in product(range(n + 1), repeat=classes - 1) if sum(head) <= n]
    return np.array([(*head, n - sum(head)) for head in some])


GRID = {
    3: [(0.6, 0.3, 0.1), (0.34, 0.33, 0.33), (0.4, 0.5, 0.1), (0.9, 0.1, 0.0)],
    4: [(0.5, 0.3, 0.1, 0.1), (0.28, 0.26, 0.24, 0.22), (0.45, 0.45, 0.1, 0.0)],
}


@pytest.mark.parametrize(("classes", "n"), [(3, 14), (4, 10)])
@pytest.mark.parametrize("alpha", [0.05, 0.4])
def test_the_true_radius_of_any_class_is_exceeded_with_probability_at_most_alpha(classes, n, alpha):
    """True radius of class c: 1/2 (Phi^-1(p_c) - Phi^-1(max of others)). Every outcome."""
    lasts = outcomes(n, classes)
    selected = np.arange(classes)
    claims = [two_sided_radius(lasts, np.full(len(lasts), c), 1.0, alpha) for c in selected]
    claimed = np.stack(claims)  # (classes, outcomes)
    worst = 0.0
    for p in map(np.array, GRID[classes]):
        others = np.array([np.delete(p, c).max() for c in selected])
        truth = (ndtri(p) - ndtri(others)) / 2
        chance = stats.multinomial.pmf(lasts, n, p)
        assert chance.sum() == pytest.approx(1)
        wrong = (claimed > np.maximum(truth, 0)[:, None] + 1e-12) @ chance
        assert (wrong <= alpha).all()
        worst = max(worst, wrong.max())
    assert worst > 0  # some outcome does exceed it


def test_the_n_draws_may_not_choose_themselves():
    """Of two classes alike none has a radius: chosen by the very draws that bound it, one has it
    too often.
    """
    lasts, alpha = outcomes(40, 2), 0.2
    claimed = two_sided_radius(lasts, lasts.argmax(axis=-1), 1.0, alpha)
    assert stats.multinomial.pmf(lasts, 40, [0.5] * 2) @ (claimed > 0) > 1.2 * alpha
