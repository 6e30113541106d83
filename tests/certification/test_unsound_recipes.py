"""Recipes of the field that look like certificates: each is falsified exactly, or refused.

Failure rates are sums over all binomial outcomes, or the attack's own count of flips; none is
estimated.
"""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from rs.errors import NotDeterministicError
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.noise import noisy_pair
from rs.statistics.radius import lower_bound, radius
from tests.support.looks import crossing_probability

ALPHA, N = 0.001, 1_000


def test_filtering_votes_by_confidence_and_renormalizing_is_false():
    """Keep confident copies only: 40 % for the class, 10 % against it, half rejected.

    The kept copies vote 4 to 1, but the class has 40 % of all: no radius is true. Rejections that
    count as votes for a class of their own never certify it, up to alpha.
    """
    kept_for, kept = 0.4, 0.5
    votes = np.arange(N + 1)
    renormalized = 0.0
    for count, weight in enumerate(stats.binom.pmf(votes, N, kept)):
        if weight > 1e-12:
            bound = lower_bound(votes[: count + 1], count, ALPHA)
            share = stats.binom.pmf(votes[: count + 1], count, kept_for / kept)
            renormalized += weight * share[bound > 0.5].sum()
    assert renormalized > 1 - ALPHA
    false = lower_bound(votes, N, ALPHA) > kept_for
    assert stats.binom.pmf(votes, N, kept_for)[false].sum() <= ALPHA


class Confident(nn.Module):
    """Two classes by the first pixel, and a third class for copies near their boundary."""

    def forward(self, x):
        lead = x[:, 0, 0, 0] - 0.5
        return torch.stack([-lead, lead, 0.3 - lead.abs()], dim=1)


def test_a_classifier_that_rejects_copies_abstains_where_filtering_certifies():
    """At lead .1 and sigma .25 the kept copies are 3 to 1 for class 1, and fewer than half."""
    x = torch.full((1, 2, 2), 0.6)
    certificate = SmoothedClassifier(Confident(), 3, 0.25).certify(x, 100, N, ALPHA)
    against, in_favor = (int(count) for count in certificate.counts[:2])
    filtered = lower_bound(in_favor, in_favor + against, ALPHA)
    assert radius(filtered, 0.25) > 0
    assert certificate.radius == 0


class Members(nn.Module):
    """The better member for the image at hand, as per-image weights choose it."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, z):
        first = z[:, 0, 0, 0] - 0.5
        second = 0.5 + 0 * first  # always sure of class 1
        lead = self.weights[0] * first + self.weights[1] * second
        return torch.stack([-lead, lead], dim=1)


def weights_of(x):
    """Weights by the clean image, as Algorithm 2 has them: all on the member that is surer."""
    return (0.0, 1.0) if x[0, 0, 0] > 0.45 else (1.0, 0.0)


def test_weights_chosen_per_image_are_false_inside_the_frozen_radius():
    """Frozen weights certify .62 at sigma .25; at distance .2 the chosen weights give class 0."""
    x = torch.full((1, 2, 2), 0.6)
    frozen = SmoothedClassifier(Members(weights_of(x)), 2, 0.25, noise="gaussian")
    certificate = frozen.certify(x, 100, N, ALPHA)
    attacked = x.clone()
    attacked[0, 0, 0] -= 0.2
    deployed = SmoothedClassifier(Members(weights_of(attacked)), 2, 0.25, noise="gaussian")
    assert (certificate.predict, certificate.radius > 0.2) == (1, True)
    assert deployed.predict(attacked, 10_000, 1e-6) == 0
    assert frozen.predict(attacked, 10_000, 1e-6) == 1


def test_reusing_the_selection_samples_fails_more_often_than_alpha():
    """Of ten equal classes the winner of the same samples is taken for the class of interest.

    With one set of n = 20 samples, the bound of the largest count exceeds 1/10 far more often than
    alpha = .05; fresh samples do so at most that often. Largest counts are enumerated by the exact
    union P(max >= k) >= P(one >= k) (10 - 45 pairs): Bonferroni's lower bound.
    """
    trials, classes, alpha = 20, 10, 0.05
    votes = np.arange(trials + 1)
    least = int(votes[lower_bound(votes, trials, alpha) > 1 / classes][0])
    one = float(stats.binom.sf(least - 1, trials, 1 / classes))
    pairs = sum(
        stats.multinomial.pmf([a, b, trials - a - b], trials, [0.1, 0.1, 0.8])
        for a in range(least, trials + 1)
        for b in range(least, trials + 1 - a)
    )
    assert one <= alpha
    assert classes * one - 45 * pairs > 3 * alpha


def test_batch_statistics_in_train_mode_are_refused():
    network = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten())
    with pytest.raises(NotDeterministicError, match="other images of the batch"):
        check_deterministic(network, noisy_pair((1, 2, 2), torch.device("cpu")))


def test_adaptive_stopping_without_splitting_alpha_fails_more_often_than_alpha():
    """Twenty looks of 50 samples at alpha = .05 each are wrong several times as often.

    They certify p = 1/2, whose radius is 0.
    """
    times = np.arange(50, 1001, 50)

    def failure(level):
        def certifies(votes, look):
            return lower_bound(votes, times[look], level) > 0.5

        return crossing_probability(certifies, times, 0.5)

    assert failure(0.05) > 3 * 0.05
    assert failure(0.05 / 20) <= 0.05
