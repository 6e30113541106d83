from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import two_sided_radius
from rs.statistics.resampling import SPLITS, split_radius, two_sided
from rs.storage import certificate_rows
from tests.support import tiny_study
from tests.support.tiny_study import ALPHA, IMAGES, cell_rows


def test_two_sided_rows_are_those_of_the_class_and_the_split_of_the_n0_draws():
    frame = cell_rows("gaussian", 0.5, 0).assign(counts0="0:6,1:1,2:3")
    votes = np.array([[certificate_rows.parse_counts(text).get(k, 0) for k in range(3)] for text in frame["counts"]])
    for split, rows in two_sided(frame, tiny_study.CLASSES).items():
        radii = split_radius(np.tile([6, 1, 3], (IMAGES, 1)), votes, 0.5, ALPHA, split=split)
        predict = np.where(radii > 0, 0, ABSTAIN)
        assert rows["radius"].tolist() == radii.tolist()
        assert rows["predict"].tolist() == predict.tolist()
        assert rows["correct"].tolist() == (predict == frame["label"]).tolist()


@pytest.mark.parametrize(
    ("classes", "changes", "message"),
    [
        (1, {}, "one of 1 classes"),
        (3, {"counts": "0:1"}, "needs the votes"),
        (3, {"counts0": ["-"] + ["0:1"] * (IMAGES - 1)}, "votes of the n0 draws"),
    ],
)
def test_rows_without_all_their_votes_have_no_two_sided_radius(classes, changes, message):
    with pytest.raises(InputError, match=message):
        two_sided(cell_rows("gaussian", 0.5, 0).assign(**changes), classes)


def test_an_image_whose_n_draws_were_skipped_keeps_its_class_and_has_no_radius():
    frame = cell_rows("gaussian", 0.5, 0)
    skipped = {"mode": "shortcut", "n": 0, "counts": "-", "radius": 0.0, "p_lower": 0.0, "correct": 0, "label": 1}
    cut = two_sided(pd.concat([frame[:1].assign(**skipped), frame[1:]]), 3)["even"]
    assert cut[["predict", "radius", "correct"]][:1].values.tolist() == [[0, 0.0, 0]]
    assert cut["radius"][1:].tolist() == two_sided(frame, 3)["even"]["radius"][1:].tolist()


@cache
def outcomes(n, classes):
    """Every way in which n votes fall on the classes, (outcomes, classes)."""
    some = [head for head in product(range(n + 1), repeat=classes - 1) if sum(head) <= n]
    return np.array([(*head, n - sum(head)) for head in some])


GRID = {
    3: [(0.6, 0.3, 0.1), (0.5, 0.25, 0.25), (0.34, 0.33, 0.33), (0.4, 0.5, 0.1), (0.9, 0.1, 0.0), (0.45, 0.44, 0.11)],
    4: [
        (0.5, 0.3, 0.1, 0.1),
        (0.7, 0.1, 0.1, 0.1),
        (0.28, 0.26, 0.24, 0.22),
        (0.45, 0.45, 0.1, 0.0),
        (0.2, 0.6, 0.1, 0.1),
    ],
}


@pytest.mark.parametrize(("classes", "n0", "n"), [(3, 5, 14), (4, 4, 10)])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("alpha", [0.05, 0.4])
def test_whatever_the_n0_draws_say_the_true_radius_is_exceeded_with_probability_at_most_alpha(
    classes, n0, n, split, alpha
):
    """True radius of class c: 1/2 (Phi^-1(p_c) - Phi^-1(max of others)). Every outcome of both, given each of n0's."""
    firsts, lasts = outcomes(n0, classes), outcomes(n, classes)
    pairs = [np.repeat(firsts, len(lasts), axis=0), np.tile(lasts, (len(firsts), 1))]
    claimed = split_radius(*pairs, 1.0, alpha, split=split).reshape(len(firsts), len(lasts))
    chosen = firsts.argmax(axis=1)
    worst = 0.0
    for p in map(np.array, GRID[classes]):
        others = np.array([np.delete(p, c).max() for c in chosen])
        truth = (ndtri(p[chosen]) - ndtri(others)) / 2
        chance = stats.multinomial.pmf(lasts, n, p)
        assert chance.sum() == pytest.approx(1)
        wrong = (claimed > np.maximum(truth, 0)[:, None] + 1e-12) @ chance
        assert (wrong <= alpha).all()
        worst = max(worst, wrong.max())
    assert worst > 0  # some outcome does exceed it


def test_two_classes_leave_nothing_to_split():
    first, votes = np.array([[9, 1], [4, 6]]), np.array([[90, 10], [45, 55]])
    even, weighted = (split_radius(first, votes, 0.5, 0.01, split=split) for split in SPLITS)
    assert even == pytest.approx(weighted, rel=1e-12)


def test_votes_of_the_n0_draws_and_one_more_are_the_weights():
    first, votes = np.array([[70, 20, 6, 4]]), np.array([[700, 250, 30, 20]])
    expected = two_sided_radius(votes, [0], 0.5, 0.01, weights=first + 1)
    assert split_radius(first, votes, 0.5, 0.01, split="votes").tolist() == expected.tolist()


votes_of_4 = st.lists(st.integers(0, 300), min_size=4, max_size=4).filter(any)


@given(votes_of_4, votes_of_4, st.integers(0, 3), st.sampled_from(SPLITS))
def test_a_vote_that_goes_over_to_the_predicted_class_never_lowers_the_radius(first, votes, k, split):
    before, chosen = np.array([votes]), int(np.argmax(first))
    after = before.copy()
    after[0, k] -= 1
    after[0, chosen] += 1
    if votes[k] > 0:
        radii = [split_radius(np.array([first]), counts, 1.0, 0.01, split=split)[0] for counts in (before, after)]
        assert radii[1] >= radii[0] - 1e-12


@pytest.mark.parametrize("split", SPLITS)
def test_the_n_draws_may_not_choose_themselves(split):
    """Of two classes alike none has a radius: chosen by the very draws that bound it, one has it too often."""
    lasts, alpha = outcomes(40, 2), 0.2
    claimed = split_radius(lasts, lasts, 1.0, alpha, split=split)
    assert stats.multinomial.pmf(lasts, 40, [0.5] * 2) @ (claimed > 0) > 1.2 * alpha


def mean_gain(p, n0=8, n=30, alpha=0.05):
    """The mean radius of parts by n0 votes less that of even parts, over every outcome of n0 and n draws."""
    firsts, lasts = outcomes(n0, len(p)), outcomes(n, len(p))
    likely = lasts[stats.multinomial.pmf(lasts, n, p) > 1e-9]
    pairs = [np.repeat(firsts, len(likely), axis=0), np.tile(likely, (len(firsts), 1))]
    even, weighted = (split_radius(*pairs, 1.0, alpha, split=split) for split in SPLITS)
    gains = (weighted - even).reshape(len(firsts), len(likely))
    return stats.multinomial.pmf(firsts, n0, p) @ gains @ stats.multinomial.pmf(likely, n, p)


def test_a_split_by_n0_draws_pays_where_one_class_is_second_and_costs_where_several_are():
    assert mean_gain((0.7, 0.28, 0.01, 0.01)) > 0 > mean_gain((0.7, 0.1, 0.1, 0.1))
