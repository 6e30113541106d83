import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.statistics.ensemble_weights import (
    global_weights,
    inverse_square_margins,
    moments,
    optimal_weights,
    per_image_weights,
    printed_pair_weights,
    variance,
)


def problem(members, classes, draws, seed, shared=0.0, spread=1.0):
    """Covariances (K, L, L) of draws with something in common, members of unlike scale, and factors
    a (K,).
    """
    rng = np.random.default_rng(seed)
    scales = spread ** rng.uniform(-1, 1, (members, 1, 1))
    z = scales * (
        rng.normal(size=(members, draws, classes)) + shared * rng.normal(size=(draws, classes))
    )
    return moments(z).covariances, rng.uniform(0, 3, classes)


problems = st.builds(
    problem,
    members=st.integers(1, 5),
    classes=st.integers(1, 4),
    draws=st.integers(2, 8),
    seed=st.integers(0, 2**32 - 1),
    shared=st.sampled_from([0.0, 0.5, 3.0]),
    spread=st.sampled_from([1.0, 3.0, 100.0]),
)


def check_minimum(weights, covariances, a):
    """Check that weights w are on the simplex, and that no w' S w is smaller than theirs.

    The function is convex, so no vertex of the simplex may lie on the side to which it falls (Frank
    & Wolfe 1956): w' S w <= (S w)_l for every l, up to the rounding errors of a sum of K L^2 terms.
    """
    terms = np.asarray(a)[:, None, None] * np.asarray(covariances)
    gradient = terms.sum(axis=0) @ weights
    rounding = 8 * terms.size * np.finfo(float).eps * np.abs(terms).max()
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    assert weights @ gradient <= gradient.min() + rounding


@given(problems)
def test_optimal_weights_have_the_least_variance(given_problem):
    check_minimum(optimal_weights(*given_problem), *given_problem)


def test_the_printed_form_loses_where_the_corrected_one_is_optimal():
    """b = 1, d = 2, Cov = .9: w_1 = (2d - c) / (2 (b - c + d)) = 2.2 / 2.4.

    As printed it is (2d + c) / (2 (b + c + d)) = 5.8 / 9.6.
    """
    s, a = np.array([[[1.0, 0.9], [0.9, 2.0]]]), [1.0]
    right, printed = optimal_weights(s, a), printed_pair_weights(s, a)
    assert right[0] == pytest.approx(2.2 / 2.4, rel=1e-12)
    assert printed[0] == pytest.approx(5.8 / 9.6, rel=1e-12)
    assert variance(printed, s, a) > 1.1 * variance(right, s, a)


@pytest.mark.parametrize("a", [[0.0, 0.0], [np.inf, 1.0], [np.inf, 0.0]])
@pytest.mark.parametrize("solve", [optimal_weights, printed_pair_weights])
def test_weights_are_equal_where_the_bound_says_nothing(solve, a):
    assert solve([np.diag([1.0, 2.0])] * 2, a).tolist() == [0.5, 0.5]


def margins_with(means, noise, seed=0):
    """Margins (L, N, K) of class 0 with these means (L, K) and noise of these standard deviations
    (L,).
    """
    rng = np.random.default_rng(seed)
    z = np.array(means)[:, None, :] + np.array(noise)[:, None, None] * rng.normal(
        size=(len(means), 50, len(means[0]))
    )
    z[..., 0] = 0.0
    return z


def test_algorithm_2_minimizes_the_paper_s_objective_without_the_class_itself():
    z = margins_with([[0, 0.5, 0.3], [0, 0.4, 0.6]], [0.1, 0.2])
    means, s = z.mean(axis=1), [np.cov(z[:, :, i], bias=True) for i in (1, 2)]
    a = means[:, 1:].min(axis=0) ** -2
    found = per_image_weights(z, 0)
    check_minimum(found, s, a)
    assert 0.5 < found[0] < 1


def test_global_weights_minimize_the_sum_over_the_images_with_a_bound():
    good = [
        margins_with([[0, 0.5, 0.3], [0, 0.4, 0.6]], noise, 1) for noise in ([0.1, 0.2], [0.3, 0.1])
    ]
    bad = margins_with([[0, 0.5, 0.3], [0, -0.4, 0.6]], [0.01, 0.9])
    found = global_weights(moments(np.stack([good[0], bad, good[1]])), [0, 0, 0])
    assert found.used_share == pytest.approx(2 / 3)
    means, covariances = moments(np.stack(good))
    s = np.concatenate(covariances)
    a = np.concatenate([inverse_square_margins(own, 0) for own in means])
    check_minimum(found.weights, s, a)
    for one in good:  # alone it would say something else
        assert abs(per_image_weights(one, 0)[0] - found.weights[0]) > 0.01


def test_an_image_whose_bound_says_nothing_does_not_decide_the_weights_of_all():
    """A mean margin of 1e-3 makes an a_i of 1e6, a million times that of the other image."""
    good = margins_with([[0, 0.5, 0.3], [0, 0.4, 0.6]], [0.1, 0.05])
    barely = margins_with([[0, 0.5, 0.3], [0, 0, 0.6]], [0.05, 0.1], 1)
    barely[1, :, 1] += 1e-3 - barely[1, :, 1].mean()
    both = moments(np.stack([good, barely]))
    assert inverse_square_margins(both.means, [0, 0])[1].max() == pytest.approx(1e6)
    found = global_weights(both, [0, 0])
    np.testing.assert_allclose(found.weights, per_image_weights(good, 0), atol=1e-12)
    assert found.used_share == 0.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: optimal_weights(np.eye(2)[None], [-1.0]),
        lambda: printed_pair_weights(np.eye(3)[None], [1.0]),
    ],
)
def test_what_is_not_a_problem_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
