"""What no way can take fewer draws than: ``benchmarks.sequential.fewest``."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from benchmarks import sequential
from benchmarks.sequential import ALPHA, BETA, Source, fewest
from rs.statistics.sequential import FINAL_LOOK_SHARE, Decider

pytestmark = pytest.mark.trust_only

SIGMA, N = 0.5, 2_000


def source(p, n=N):
    images = len(p)
    return Source("made", SIGMA, n, np.array(p), np.ones(images, bool), np.zeros(images, bool))


def mean_draws(radius, p):
    """Of a run for one radius, exactly, by following the law of the successes."""
    run = Decider([radius], SIGMA, ALPHA, N, beta=BETA)
    law, mean = np.ones(1), 0.0  # law[k] = P(k successes so far, and no answer)
    for look, new in enumerate(np.diff(run.times, prepend=0)):
        mean += new * law.sum()
        law = np.convolve(law, stats.binom.pmf(np.arange(new + 1), new, p))
        k = np.arange(len(law))
        law[run.rule.above(k, look, run.p0[0]) | run.rule.below(k, look, run.required_share[0])] = 0
    return mean


def test_an_image_that_all_draws_vote_for_needs_as_many_as_would_certify_it_unanimously():
    largest = max(radius for radius in sequential.TABLE if ndtr(radius / SIGMA) <= ALPHA ** (1 / N))
    assert fewest(source([1.0])) == pytest.approx([math.log(ALPHA) / math.log(ndtr(largest / SIGMA))])


@pytest.mark.parametrize("radius", [0.0, 0.5, 1.0])
def test_no_rule_takes_fewer_draws_than_the_fewest(monkeypatch, radius):
    monkeypatch.setattr(sequential, "TABLE", (radius,))
    shares = [p for p in np.linspace(0.04, 1, 25) if abs(p - ndtr(radius / SIGMA)) > 0.01]
    least = fewest(source(shares))
    spent = np.array([mean_draws(radius, p) for p in shares])
    assert (least > 0).all()
    assert (least <= spent).all()
    assert (least > spent / 20).any()


def test_an_image_at_radius_0_needs_a_share_of_the_draws_that_depends_on_the_levels_alone():
    """Near the normal limit: w_0 is z standard errors of n draws above 1/2, and kl(b, beta) = (1 - b) z^2 / 2."""
    n, z = 50_000, ndtri(1 - FINAL_LOOK_SHARE * ALPHA)
    kl = lambda b: b * math.log(b / BETA) + (1 - b) * math.log((1 - b) / (1 - BETA))  # noqa: E731
    given_up = brentq(lambda b: kl(b) - (1 - b) * z**2 / 2, BETA, 0.999)
    steps = 1 / 200  # of the probability of giving up
    assert fewest(source([0.5], n))[0] / n == pytest.approx(1 - given_up, abs=steps)
