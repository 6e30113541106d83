"""Thresholds of a cascade: ``rs.statistics.cascade_thresholds``."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

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
def draws(draw):
    """Leads in quarters, so that some are equal."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 7)))
    quarters = draw(arrays(np.int64, shape, elements=st.integers(0, 4)))
    return quarters / 4, draw(arrays(bool, shape))


@settings(deadline=None)
@given(draws(), st.integers(0, 6))
def test_no_thresholds_that_keep_the_share_need_fewer_evaluations(given_draws, allowed):
    leads, differs = given_draws
    count = leads.shape[1]
    share = min(allowed, count - 1) / count
    fit = fit_thresholds(leads, differs, share)
    otherwise, evaluations = outcome(leads, differs, fit.thresholds)
    assert fit.share == otherwise / count
    assert fit.evaluations == pytest.approx(evaluations / count, rel=1e-15)
    assert fit.share <= share
    assert round(fit.evaluations * count) == fewest(leads, differs, int(share * count))


def test_a_large_number_of_draws_is_shared_out_in_parts_and_the_share_is_kept():
    rng = np.random.default_rng(0)
    leads, differs = rng.random((3, 4000)), rng.random((3, 4000)) < 0.3
    costs = []
    for share in (0.0, 0.01, 0.1, 0.29):
        fit = fit_thresholds(leads, differs, share)
        assert fit.share <= share
        costs.append(fit.evaluations)
    assert MAX_SHARES < 0.29 * 4000
    assert costs == sorted({*costs}, reverse=True)
