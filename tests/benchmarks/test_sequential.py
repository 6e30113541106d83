"""What no way can take fewer draws than: ``benchmarks.sequential.fewest``."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from benchmarks import sequential
from benchmarks.sequential import ALPHA, BETA, Source, fewest
from rs.statistics.sequential import Decider

pytestmark = pytest.mark.trust_only

SIGMA, N = 0.5, 2_000


def mean_draws(radius, p):
    """Of a run for one radius, exactly, by following the law of the successes."""
    run = Decider([radius], SIGMA, ALPHA, N, beta=BETA)
    law, mean = np.ones(1), 0.0  # law[k] = P(k successes so far, and no answer)
    for look, new in enumerate(np.diff(run.times, prepend=0)):
        mean += new * law.sum()
        law = np.convolve(law, stats.binom.pmf(np.arange(new + 1), new, p))
        k = np.arange(len(law))
        law[
            (run.rule.lower(k, look) >= run.p0[0])
            | (run.rule.upper(k, look) < run.required_share[0])
        ] = 0
    return mean


@pytest.mark.parametrize("radius", [0.0, 0.5, 1.0])
def test_no_rule_takes_fewer_draws_than_the_fewest(monkeypatch, radius):
    monkeypatch.setattr(sequential, "TABLE", (radius,))
    shares = [p for p in np.linspace(0.04, 1, 25) if abs(p - ndtr(radius / SIGMA)) > 0.01]
    least = fewest(
        Source(
            "made",
            SIGMA,
            N,
            np.array(shares),
            np.ones_like(shares, bool),
            np.zeros_like(shares, bool),
        )
    )
    spent = np.array([mean_draws(radius, p) for p in shares])
    assert (least > 0).all()
    assert (least <= spent).all()
    assert (least > spent / 20).any()
