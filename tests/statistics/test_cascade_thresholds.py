"""Thresholds of a cascade: ``rs.statistics.cascade_thresholds``."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rs.statistics.cascade_thresholds import MAX_SHARES, fit_thresholds


def outcome(leads, differs, thresholds):
    """Draws decided otherwise, and evaluations, by a loop."""
    otherwise = evaluations = 0
    for draw in range(leads.shape[1]):
        stage = next((j for j, t in enumerate(thresholds) if leads[j, draw] >= t), len(thresholds))
        evaluations += stage + 1
        otherwise += stage < len(thresholds) and bool(differs[stage, draw])
    return otherwise, evaluations


def fewest(leads, differs, allowed):
    """The fewest evaluations of all thresholds that decide at most ``allowed`` draws otherwise, by
    trying them all.
    """
    choices = [[*np.unique(row), 2.0] for row in leads]
    found = [outcome(leads, differs, thresholds) for thresholds in itertools.product(*choices)]
    return min(evaluations for otherwise, evaluations in found if otherwise <= allowed)


@st.composite
def draws(draw, most=3):
    """Leads in quarters, so that some are equal."""
    stages, count = draw(st.integers(1, most)), draw(st.integers(1, 7))
    quarters = st.lists(st.integers(0, 4), min_size=stages * count, max_size=stages * count)
    leads = np.array(draw(quarters), dtype=np.float64).reshape(stages, count) / 4
    flags = st.lists(st.booleans(), min_size=stages * count, max_size=stages * count)
    return leads, np.array(draw(flags)).reshape(stages, count)


@settings(deadline=None)
@given(draws(), st.integers(0, 6))
def test_no_thresholds_that_keep_the_share_need_fewer_evaluations(given_draws, allowed):
    leads, differs = given_draws
    count = leads.shape[1]
    share = min(allowed, count - 1) / count
    fit = fit_thresholds(leads, differs, share)
    assert (fit.share, fit.evaluations) == tuple(
        pytest.approx(value / count, rel=1e-15) for value in outcome(leads, differs, fit.thresholds)
    )
    assert fit.share <= share
    assert round(fit.evaluations * count) == fewest(leads, differs, int(share * count))


def test_a_large_number_of_draws_is_shared_out_in_parts_and_the_share_is_kept():
    rng = np.random.default_rng(0)
    leads, differs = rng.random((3, 4000)), rng.random((3, 4000)) < 0.3
    fits = [fit_thresholds(leads, differs, share) for share in (0.0, 0.01, 0.1, 0.29)]
    assert MAX_SHARES < 0.29 * 4000
    assert all(fit.share <= share for fit, share in zip(fits, (0.0, 0.01, 0.1, 0.29), strict=True))
    costs = [fit.evaluations for fit in fits]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
