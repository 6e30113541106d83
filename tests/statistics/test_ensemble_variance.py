import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.statistics.ensemble_variance import (
    average_variance_bound,
    chebyshev_bounds,
    spread,
)
from rs.statistics.ensemble_weights import moments


def margins(members, draws, seed, mean):
    """Margins of class 0 of four: one shared part, one of each member."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(draws, 4)) + rng.normal(size=(members, draws, 4))
    z = mean + 0.2 * rng.random((members, 1, 4)) + 0.2 * noise
    z[..., 0] = 0.0
    return z


cases = st.tuples(
    st.integers(2, 5), st.integers(2, 20), st.integers(0, 2**32 - 1), st.floats(-0.2, 1.5)
)


@given(cases)
def test_the_variance_of_an_equal_average_keeps_the_paper_s_bound(case):
    members, draws, seed, mean = case
    z = margins(members, draws, seed, mean)
    bound = average_variance_bound(*spread(moments(z).covariances), members)
    assert (z.mean(axis=0).var(axis=0) <= bound + 1e-14).all()


@given(cases)
def test_bounds_never_exceed_the_share_they_bound_and_the_minimum_is_the_weaker(case):
    """Chebyshev's inequality is exact for the law that puts 1/N on each draw."""
    members, draws, seed, mean = case
    z = margins(members, draws, seed, mean)
    w = np.random.default_rng(seed).dirichlet(np.ones(members))
    found = chebyshev_bounds(z, 0, w)
    assert 0 <= found.minimum <= found.weighted + 1e-12
    assert found.weighted <= found.measured + 1e-12


def test_a_bound_adds_up_squared_coefficients_of_variation():
    """The average of both members is 0.9 and 1.1: mean 1, variance 0.01; class 2 is sure."""
    z = np.zeros((2, 2, 3))
    z[:, :, 1] = [[1.2, 0.8], [0.6, 1.4]]
    z[:, :, 2] = 2.0
    assert tuple(chebyshev_bounds(z, 0, [0.5, 0.5])) == pytest.approx((0.99, 0.99, 1.0))


def test_a_bound_needs_positive_mean_margins():
    """Squaring would hide the sign: this ensemble always loses."""
    z = np.zeros((2, 10, 2))
    z[..., 1] = -1.0
    assert tuple(chebyshev_bounds(z, 0, [0.5, 0.5])) == (0.0, 0.0, 0.0)
    z[0, :, 1] = 2.0
    assert tuple(chebyshev_bounds(z, 0, [0.5, 0.5])) == (
        1.0,
        0.0,
        1.0,
    )  # the paper's e_i is that of the worst member
