"""Thresholds of a cascade: ``rs.statistics.cascade_thresholds``."""

import itertools

import numpy as np
import pytest
from hypothesis import given
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


@given(
    seed=st.integers(0, 2**32 - 1),
    stages=st.integers(1, 3),
    count=st.integers(1, 15),
    allowed=st.integers(0, 6),
)
def test_no_thresholds_that_keep_the_share_need_fewer_evaluations(seed, stages, count, allowed):
    """Leads in quarters, so that some are equal."""
    rng = np.random.default_rng(seed)
    leads = rng.integers(5, size=(stages, count)) / 4
    differs = rng.random((stages, count)) < 0.5
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
