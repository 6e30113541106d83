import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.statistics.ensemble_variance import (
    average_variance_bound,
    chebyshev_bounds,
    mean_covariances,
    spread,
    trained_covariances,
)
from rs.statistics.ensemble_weights import moments


def margins(members=3, draws=40, classes=4, seed=0, mean=0.5, y=0):
    """Margins of class y: one shared part, one of each member."""
    rng = np.random.default_rng(seed)
    noise = 0.2 * rng.normal(size=(draws, classes)) + 0.2 * rng.normal(size=(members, draws, classes))
    z = mean + 0.2 * rng.random((members, 1, classes)) + noise
    z[..., y] = 0.0
    return z


def covariances(z):
    return moments(z).covariances


cases = st.tuples(st.integers(2, 5), st.integers(2, 20), st.integers(0, 2**32 - 1), st.floats(-0.2, 1.5))


def test_spread_is_the_largest_variance_and_the_largest_covariance_of_two():
    z = margins()
    found = spread(covariances(z))
    for i in range(4):
        s = np.cov(z[:, :, i], bias=True)
        assert found.alpha[i] == pytest.approx(max(s[m, m] for m in range(3)), abs=1e-15)
        assert found.beta[i] == pytest.approx(max(s[0, 1], s[0, 2], s[1, 2]), abs=1e-15)


@given(cases)
def test_the_variance_of_an_equal_average_keeps_the_paper_s_bound(case):
    members, draws, seed, mean = case
    z = margins(members, draws, seed=seed, mean=mean)
    bound = average_variance_bound(*spread(covariances(z)), members)
    assert (z.mean(axis=0).var(axis=0) <= bound + 1e-14).all()


def test_mean_covariances_are_those_of_pairs_told_apart_by_method():
    z, methods = margins(4, y=2), ["a", "b", "a", "b"]
    s = np.mean([np.cov(z[:, :, i], bias=True) for i in (0, 1, 3)], axis=0)
    found = mean_covariances(covariances(z), 2, methods)
    assert found.variance == pytest.approx(np.diag(s).mean(), rel=1e-12)
    assert found.within == pytest.approx((s[0, 2] + s[1, 3]) / 2, rel=1e-12)
    assert found.across == pytest.approx((s[0, 1] + s[0, 3] + s[2, 1] + s[2, 3]) / 4, rel=1e-12)


def test_training_adds_the_variance_over_seeds_to_the_variance_of_a_member_and_to_nothing_else():
    z, methods = margins(4, mean=0.5), ["a", "b", "a", "a"]
    plain, made = covariances(z), trained_covariances(z, methods)
    means = z.mean(axis=1)  # (L, K)
    for i in (1, 2, 3):
        added = made[i] - plain[i]
        assert added == pytest.approx(np.diag(np.array([1, 0, 1, 1]) * np.var(means[[0, 2, 3], i], ddof=1)), abs=1e-15)
        assert added[0, 0] > 0


def test_means_over_no_pairs_are_nan():
    one_method, one_each = (
        mean_covariances(covariances(margins(2)), 0, methods) for methods in (["a", "a"], ["a", "b"])
    )
    assert np.isnan([one_method.across, one_each.within]).all()
    assert np.isfinite([one_method.within, one_each.across]).all()


@given(cases)
def test_bounds_never_exceed_the_share_they_bound_and_the_minimum_is_the_weaker(case):
    """Chebyshev's inequality is exact for the law that puts 1/N on each draw."""
    members, draws, seed, mean = case
    z = margins(members, draws, seed=seed, mean=mean)
    w = np.random.default_rng(seed).dirichlet(np.ones(members))
    found = chebyshev_bounds(z, 0, w)
    assert 0 <= found.minimum <= found.weighted + 1e-12
    assert found.weighted <= found.measured + 1e-12


def test_bounds_are_the_paper_s_sums():
    z, w = margins(seed=3, mean=1.0), np.array([0.5, 0.3, 0.2])
    means, s = moments(z)
    p = [w @ s[i] @ w for i in (1, 2, 3)]
    found = chebyshev_bounds(z, 0, w)
    assert found.minimum == pytest.approx(1 - sum(p / means[:, 1:].min(axis=0) ** 2), rel=1e-12)
    assert found.weighted == pytest.approx(1 - sum(p / (w @ means[:, 1:]) ** 2), rel=1e-12)
    assert 0 < found.minimum < found.weighted < 1


def test_a_bound_needs_positive_mean_margins():
    """Squaring would hide the sign: this ensemble always loses."""
    z = np.zeros((2, 10, 2))
    z[..., 1] = -1.0
    assert tuple(chebyshev_bounds(z, 0, [0.5, 0.5])) == (0.0, 0.0, 0.0)
    z[0, :, 1] = 2.0
    assert tuple(chebyshev_bounds(z, 0, [0.5, 0.5])) == (1.0, 0.0, 1.0)  # the paper's e_i is that of the worst member


def test_many_images_are_each_of_them():
    zs, ys, ws = np.stack([margins(seed=s, y=s) for s in range(3)]), [0, 1, 2], np.eye(3)
    for function, rest in ((chebyshev_bounds, (ws,)), (mean_covariances, ())):
        extra = (["a", "a", "b"],) if function is mean_covariances else ()
        seen = covariances(zs) if function is mean_covariances else zs
        together = function(seen, ys, *rest, *extra)
        for b in range(3):
            alone = function(seen[b], ys[b], *(r[b] for r in rest), *extra)
            np.testing.assert_allclose([values[b] for values in together], alone, rtol=1e-12)
