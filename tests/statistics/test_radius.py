import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rs.statistics.certificate import MIN_ALPHA, TOLERANCE
from rs.statistics.radius import (
    PREDICTED_SHARE,
    cap,
    fewest_votes,
    lower_bound,
    radius,
    two_sided_radius,
    upper_bound,
)

alphas = st.sampled_from([1e-4, 1e-3, 0.01, 0.05, 0.3])
sigmas = st.floats(0.05, 4.0)
votes = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(votes, alphas)
def test_both_bounds_agree_with_scipys_exact_interval(vote, alpha):
    k, n = vote
    for bound, side in ((lower_bound, "greater"), (upper_bound, "less")):
        interval = stats.binomtest(k, n, alternative=side).proportion_ci(1 - alpha, method="exact")
        expected = interval.low if side == "greater" else interval.high
        assert bound(k, n, alpha) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(n=st.integers(1, 400), p=st.floats(0.001, 0.999), alpha=alphas)
def test_each_bound_misses_with_probability_at_most_alpha(n, p, alpha):
    k = np.arange(n + 1)
    chance = stats.binom.pmf(k, n, p)
    assert chance[lower_bound(k, n, alpha) > p].sum() <= alpha * (1 + 1e-9)
    assert chance[upper_bound(k, n, alpha) < p].sum() <= alpha * (1 + 1e-9)


@given(n=st.integers(1, 10**6), alpha=alphas)
def test_bounds_at_no_success_and_nothing_but_successes_have_their_closed_forms(n, alpha):
    assert lower_bound(0, n, alpha) == 0
    assert upper_bound(n, n, alpha) == 1
    assert lower_bound(n, n, alpha) == alpha ** (1 / n)
    assert upper_bound(0, n, alpha) == pytest.approx(1 - alpha ** (1 / n), rel=1e-9)


@given(t=st.floats(0.01, 5.0), sigma=sigmas)
def test_linear_classifier_is_certified_up_to_its_boundary(t, sigma):
    """f(x) = 1[w.x > 0] at distance t * sigma from its boundary has p_A = Phi(t)."""
    p = stats.norm.cdf(t)
    assert radius(p, sigma) == pytest.approx(t * sigma, rel=1e-6)
    assert radius(p, sigma, 1 - p) == pytest.approx(t * sigma, rel=1e-6)


counts3 = st.lists(st.integers(0, 2000), min_size=3, max_size=3).filter(lambda c: sum(c) > 0)


@given(counts3, st.integers(0, 2), alphas, sigmas)
def test_two_sided_radius_is_never_below_the_one_sided_radius_at_its_share_of_alpha(
    counts, predict, alpha, sigma
):
    one_sided = radius(lower_bound(counts[predict], sum(counts), PREDICTED_SHARE * alpha), sigma)
    assert two_sided_radius(counts, predict, sigma, alpha) >= one_sided - 1e-9 * sigma


@given(n=st.integers(1, 10**6), alpha=alphas, sigma=sigmas)
def test_no_outcome_is_certified_beyond_the_cap(n, alpha, sigma):
    k = np.unique(np.linspace(0, n, 20).astype(int))
    assert radius(lower_bound(k, n, alpha), sigma).max() == cap(n, alpha, sigma)


@given(n=st.integers(1, 5000), alpha=alphas)
def test_the_fewest_votes_are_the_first_count_whose_binomial_tail_is_small(n, alpha):
    """The bound of k reaches 1/2 exactly when P(Binomial(n, 1/2) >= k) <= alpha."""
    k = int(fewest_votes(0.5, n, alpha))
    if k > n:
        assert 0.5**n > alpha
    else:
        assert stats.binom.sf(k - 1, n, 0.5) <= alpha * (1 + 1e-9)
        assert stats.binom.sf(k - 2, n, 0.5) > alpha * (1 - 1e-9)


def test_a_bound_is_below_1_and_its_radius_finite_where_it_would_be_rounded_to_1():
    for n, alpha in [(1000, 1 - 2**-53), (10**18, 0.001)]:
        assert alpha ** (1 / n) == 1
        assert lower_bound(n, n, alpha) == 1 - 2**-53
        assert math.isfinite(cap(n, alpha, 1.0))


@pytest.mark.parametrize("failures", [1, 10, 1000])
def test_at_the_least_level_the_tail_of_the_bound_is_alpha(failures):
    """Summed in 60 digits; the bound is right to the relative difference at which rows count as
    equal.
    """
    n, alpha = 100_000, MIN_ALPHA * 1e-50
    p = float(lower_bound(n - failures, n, alpha))

    def tail(p):
        choose, total, p = 1, Decimal(0), Decimal(p)
        for lost in range(failures + 1):
            total += choose * p ** (n - lost) * (1 - p) ** lost
            choose = choose * (n - lost) // (lost + 1)
        return total

    with localcontext(prec=60):
        assert tail(p * (1 - TOLERANCE)) < Decimal(alpha) < tail(p * (1 + TOLERANCE))


@pytest.mark.parametrize("draws", [10, 249, 100_000])
def test_there_is_a_bound_for_all_votes_at_the_smallest_alpha(draws):
    """SciPy finds none for some of 2 to 6 votes."""
    votes = np.arange(8)
    low, high = (bound(votes, draws, MIN_ALPHA * 1e-50) for bound in (lower_bound, upper_bound))
    assert ((low >= 0) & (low <= votes / draws) & (votes / draws <= high) & (high <= 1)).all()


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (upper_bound, (99_990, 100_000, 1e-300), "at least 1e-250, got 1e-300"),
        (lower_bound, (5, [10, 10.5], 0.1), "trials must be"),
        (upper_bound, ([1, 11], 10, 0.1), "successes must be"),
        (radius, ([0.9, 1.1], 0.5), "p_lower must lie"),
        (radius, (0.9, math.inf), "sigma must be positive"),
        (two_sided_radius, ([[5, 5], [5, 5]], [0, 2], 1.0, 0.1), "predict must be classes"),
    ],
)
def test_impossible_numbers_are_refused_with_a_reason(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
