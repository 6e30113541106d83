from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.errors import InputError
from rs.statistics import metrics
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import lower_bound, radius
from rs.statistics.resampling import dense_votes, label_bounds, share_at_most, with_fewer_draws
from rs.storage import certificate_rows
from tests.support.tiny_study import ALPHA, IMAGES, N0, N, cell_rows, make_rows

SIGMA, LEVEL = 0.5, 0.3


def row(votes0, votes, label, alpha=LEVEL):
    """A consistent row of one image."""
    n, chosen = sum(votes), int(np.argmax(votes0))
    p_lower = float(lower_bound(votes[chosen], n, alpha))
    predict = chosen if p_lower >= 0.5 else ABSTAIN
    texts = {"counts0": certificate_rows.format_counts(votes0), "counts": certificate_rows.format_counts(votes)}
    made = {"idx": 0, "label": label, "predict": predict, "radius": float(radius(p_lower, SIGMA))}
    made |= {"correct": int(predict == label), "p_lower": p_lower, "n0": sum(votes0), "n": n, "alpha": alpha}
    return pd.DataFrame([made | {"sigma": SIGMA, "mode": "certify", "scope": "model"} | texts])


def mean_over_subsets(draws, size):
    """The mean radius of class 0 over every subset of the draws, one by one."""
    radii = [
        radius(lower_bound(sum(draws[k] == 0 for k in chosen), size, LEVEL), SIGMA)
        for chosen in combinations(range(len(draws)), size)
    ]
    return np.mean(radii)


@pytest.mark.parametrize("votes", [(6, 2, 1), (9, 0, 0), (0, 5, 4), (1, 8, 0), (4, 4, 1), (8, 1, 0)])
@pytest.mark.parametrize("size", range(1, 10))
def test_fewer_draws_are_the_mean_over_every_choice_of_so_many(votes, size):
    rows = with_fewer_draws(row((3, 1, 1), votes, 0), size)
    draws = np.repeat(range(3), votes)
    assert rows["radius"].tolist() == pytest.approx([mean_over_subsets(draws, size)], rel=1e-12)
    assert (rows["n"].tolist(), rows["correct"].tolist()) == ([size], [1])


@pytest.mark.parametrize(("p", "n", "draws"), [(0.9, 12, 5), (0.6, 12, 11), (0.97, 40, 17)])
def test_their_mean_over_all_votes_is_the_mean_radius_of_a_run_of_so_many_draws(p, n, draws):
    """Unbiased: sum_v Bin(v; n, p) E[R | v] = sum_k Bin(k; draws, p) R(k), every outcome enumerated."""

    def mean(trials, values):
        chances = [comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
        return np.dot(chances, values)

    thinned = [with_fewer_draws(row((5, 0), (v, n - v), 0), draws)["radius"].iloc[0] for v in range(n + 1)]
    fresh = radius(lower_bound(np.arange(draws + 1), draws, LEVEL), SIGMA)
    assert mean(n, thinned) == pytest.approx(mean(draws, fresh), rel=1e-12)


def test_all_the_draws_are_the_rows_themselves():
    rows = cell_rows("gaussian", 0.5, 0)
    assert metrics.image_scores(with_fewer_draws(rows, N)).tolist() == metrics.image_scores(rows).tolist()


def test_long_tails_that_are_left_out_change_nothing():
    """100,000 draws, of which 20,000: the closed sum over all 20,001 numbers of votes."""
    from scipy.stats import hypergeom

    n, draws, votes = 100_000, 20_000, 98_765
    k = np.arange(draws + 1)
    exact = hypergeom.pmf(k, n, votes, draws) @ radius(lower_bound(k, draws, 0.001), SIGMA)
    rows = with_fewer_draws(row((9, 1), (votes, n - votes), 0, alpha=0.001), draws)
    assert rows["radius"].iloc[0] == pytest.approx(exact, rel=1e-9)  # of SciPy's logarithms of factorials


def test_a_class_chosen_wrong_stays_wrong_and_one_that_abstained_may_be_certified_by_fewer():
    wrong = with_fewer_draws(row((1, 4), (9, 1), 0), 5)
    assert (wrong["correct"].tolist(), wrong["radius"].tolist()) == ([0], [0])
    skipped = row((1, 4), (9, 1), 0).assign(n=0, counts="-", mode="shortcut")
    assert with_fewer_draws(skipped, 5)["correct"].tolist() == [0]
    abstains = row((4, 1), (5, 5), 0)
    assert abstains["radius"].tolist() == [0]
    assert with_fewer_draws(abstains, 2)["radius"].iloc[0] > 0  # two of two votes: 0.3^(1/2) > 1/2


def test_fewer_draws_refuse_more_draws_and_rows_without_votes():
    rows = cell_rows("gaussian", 0.5, 0)
    for draws in (0, N + 1):
        with pytest.raises(InputError, match=f"between 1 and the {N}"):
            with_fewer_draws(rows, draws)
    with pytest.raises(InputError, match="with votes"):
        with_fewer_draws(rows.assign(counts0="-"), 5)
    with pytest.raises(InputError, match="fixed number of draws"):
        with_fewer_draws(rows.assign(mode="within:0.1:200"), 5)


def test_label_bounds_are_those_of_right_certificates_and_of_the_labels_votes_elsewhere():
    right, abstains = row((5, 0), (9, 1), 0), row((3, 2), (5, 5), 0)
    wrong, lucky = row((0, 5), (2, 8), 0), row((1, 4), (9, 1), 0)  # lucky: the votes are for the label, n0's are not
    rows = pd.concat([right, abstains, wrong, lucky, wrong.assign(n=0, counts="-", mode="shortcut")])
    expected = [*lower_bound([9, 5, 2], 10, LEVEL), 0.5, 0]
    assert label_bounds(rows).tolist() == pytest.approx(expected, rel=1e-15)
    assert not lucky["correct"].any()


def test_above_one_half_their_distribution_is_certified_accuracy():
    """The share above p is that of right images with a radius above sigma Phi^-1(p)."""
    for sigma in (0.25, 0.5):
        rows = cell_rows("advmacer", sigma, 1)
        p = np.array([0.5, 0.6, 0.75, 0.9, 0.97])
        above = [np.mean((rows["correct"] == 1) & (rows["radius"] > r)) for r in radius(p, sigma)]
        assert (1 - share_at_most(label_bounds(rows), p)).tolist() == pytest.approx(above, abs=1e-12)


def test_a_log_without_votes_has_the_bounds_of_its_radii(tmp_path):
    ours = make_rows(0.5, 3)
    certificate_rows.write_field_log(ours, tmp_path / "log.tsv")
    log = certificate_rows.read_field_log(tmp_path / "log.tsv", sigma=0.5, n0=N0, n=N, alpha=ALPHA)
    expected = ours["p_lower"].where(ours["correct"] == 1, 0)
    assert label_bounds(log).tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert 0 < ours["correct"].sum() < IMAGES
    unknown = certificate_rows.read_field_log(tmp_path / "log.tsv", sigma=0.5)  # neither draws nor alpha
    assert label_bounds(unknown).tolist() == label_bounds(log).tolist()


def test_label_bounds_hold_with_probability_of_at_least_1_less_alpha():
    """Chosen by label, not by votes: whatever p_A and the class that n0 draws choose, every outcome enumerated."""
    n, alpha = 12, 0.2
    for votes0 in ((4, 1), (1, 4)):
        bounds = label_bounds(pd.concat([row(votes0, (v, n - v), 0, alpha) for v in range(n + 1)]))
        for p in np.linspace(0.01, 0.99, 99):
            chance = [comb(n, v) * p**v * (1 - p) ** (n - v) for v in range(n + 1)]
            assert np.dot(chance, bounds > p) <= alpha


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1))
def test_share_at_most_counts(values, at):
    assert share_at_most(values, at) == sum(value <= at for value in values) / len(values)


def test_dense_votes_are_as_wide_as_they_must_be():
    assert dense_votes(["0:2", "-", "2:5"]).tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 5]]
    assert dense_votes(["0:2"], 3).tolist() == [[2, 0, 0]]
    with pytest.raises(InputError, match="one of 2 classes, got 2:5"):
        dense_votes(["2:5"], 2)
