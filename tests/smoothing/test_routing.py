"""A router and its experts: coverage by exact enumeration, abstention, and where each draws."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.routing import RoutedClassifier
from rs.smoothing.vote_counting import Tally
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import lower_bound, radius, routed_radius
from tests.support.helpers import Constant, Linear

X = torch.full((1, 2, 2), 0.5)
LEVELS, SIGMA, N0, N, ALPHA = (0.25, 1.0), 1.0, 3, 12, 0.2


def routed(router=None, experts=None):
    parts = experts or [Linear(), Linear()]
    smoothed = [SmoothedClassifier(part, 2, sigma) for part, sigma in zip(parts, LEVELS, strict=True)]
    return RoutedClassifier(SmoothedClassifier(router or Linear(), 2, SIGMA), smoothed)


def voting(monkeypatch, router, *experts):
    """A routed classifier whose parts have these pairs of votes, of n0 and of n draws, for their class 1."""
    system = routed()
    for part, pair in zip((system, *system.experts), (router, *experts), strict=True):
        tallies = {draws: Tally(np.array([draws - votes, votes])) for draws, votes in zip((N0, N), pair, strict=True)}
        monkeypatch.setattr(part, "tally", lambda x, draws, *_, tallies=tallies, **__: tallies[draws])
    return system


def false_chances(monkeypatch, router, experts):
    """Probability of a false certificate: draws of router and experts independent; and at most, however they depend.

    ``router`` and ``experts`` are the probabilities of class 1. A certificate is false if its radius is larger than
    the exact bounds give, as it may then be for classifiers with these probabilities.
    """
    pairs = list(itertools.product(range(N0 + 1), range(N + 1)))
    chance = {p: [stats.binom.pmf(a, N0, p) * stats.binom.pmf(b, N, p) for a, b in pairs] for p in (router, *experts)}
    of_class = [np.array([1 - p, p]) for p in (router, *experts)]
    joint, at_most = 0.0, np.zeros(2)
    for (pair, p_pair), (number, votes) in itertools.product(zip(pairs, chance[router], strict=True), enumerate(pairs)):
        certificate = voting(monkeypatch, pair, votes, votes).certify(X, N0, N, ALPHA)
        if certificate.predict == ABSTAIN:
            continue
        level = LEVELS.index(certificate.level)
        bounds = of_class[0][level], of_class[1 + level][certificate.predict]
        is_false = certificate.radius > routed_radius(bounds[0], SIGMA, bounds[1], LEVELS[level]) + 1e-9
        joint += is_false * p_pair * chance[experts[level]][number]
    for part, p in enumerate([router, experts[int(router > 0.5)]]):
        for (first, votes), weight in zip(pairs, chance[p], strict=True):
            selected = int(2 * first > N0)
            bound = lower_bound(votes if selected else N - votes, N, ALPHA / 2)
            at_most[part] += weight * (bound > max(0.5, [1 - p, p][selected]))
    return joint, at_most.sum()


@pytest.mark.parametrize(("router", "experts"), [(0.6, (0.5, 0.7)), (0.3, (0.8, 0.9)), (0.85, (0.7, 0.52))])
def test_a_certificate_is_false_with_probability_alpha_at_most(monkeypatch, router, experts):
    independent, however_they_depend = false_chances(monkeypatch, router, experts)
    assert 0 < independent <= however_they_depend <= ALPHA


def test_a_level_chosen_without_its_bound_by_the_draws_of_the_experts_fails_more_often_than_alpha():
    """Router and expert 0 vote for class 1 where z = 1, expert 1 where z = 0, each with probability 1/2.

    Where the level is that of the same votes, the failures of both experts add up. Chosen by other draws it fails as
    one expert does; and with the router's bound too, on the shared draws, still no more often than alpha.
    """
    votes, n, alpha = np.arange(11), 10, 0.1
    chance = stats.binom.pmf(votes, n, 0.5)
    fails = [lower_bound(k, n, alpha) > 0.5 for k in (votes, n - votes)]
    shared = (chance * np.where(votes >= n / 2, *fails)).sum()
    independent = 0.5 * sum((chance * failed).sum() for failed in fails)
    assert independent <= alpha < shared <= len(LEVELS) * alpha
    both_bounds = [lower_bound(k, n, alpha / 2) > 0.5 for k in (votes, n - votes)]  # of router and expert, by one z
    assert 0 < 0.5 * sum((chance * failed).sum() for failed in both_bounds) <= alpha


def test_a_router_that_abstains_certifies_nothing_and_asks_no_expert(monkeypatch):
    system = voting(monkeypatch, (N0, N // 2), (N0, N), (N0, N))
    monkeypatch.setattr(system.experts[1], "tally", None)
    certificate = system.certify(X, N0, N, ALPHA)
    assert (certificate.predict, certificate.radius, certificate.p_lower, certificate.level) == (ABSTAIN, 0, 0, 0)
    assert (certificate.n0, certificate.n, certificate.radius_class) == (0, 0, 0)
    assert certificate.counts_router.tolist() == [N - N // 2, N // 2]


def test_the_radius_is_the_smaller_one_at_half_of_alpha(monkeypatch):
    certificate = voting(monkeypatch, (N0, N), (N0, 0), (0, 1)).certify(X, N0, N, ALPHA)
    router = radius(lower_bound(N, N, ALPHA / 2), SIGMA)
    expert = radius(lower_bound(N - 1, N, ALPHA / 2), LEVELS[1])
    assert (certificate.predict, certificate.level, certificate.alpha) == (0, LEVELS[1], ALPHA)
    assert (certificate.radius_router, certificate.radius_class) == (router, expert)
    assert certificate.radius == min(router, expert)


def test_no_draws_of_router_and_expert_are_shared_and_the_expert_draws_as_alone(monkeypatch):
    system, streams = routed(Constant(1)), []
    original = SmoothedClassifier.tally

    def noted(part, x, draws, seed, *key, **options):
        streams.append((part, key[0]))
        return original(part, x, draws, seed, *key, **options)

    monkeypatch.setattr(SmoothedClassifier, "tally", noted)
    certificate = system.certify(torch.ones(1, 2, 2), 100, 1000, 0.002, seed=5, index=7)
    expert = system.experts[1]
    assert streams == [
        (system, Stream.ROUTE_SELECT),
        (system, Stream.ROUTE_ESTIMATE),
        (expert, Stream.SELECT),
        (expert, Stream.ESTIMATE),
    ]
    alone = expert.certify(torch.ones(1, 2, 2), 100, 1000, 0.001, seed=5, index=7)
    assert (certificate.p_lower, certificate.radius_class) == (alone.p_lower, alone.radius)


def test_what_a_router_cannot_do_is_refused():
    class Undecided(Linear):
        undecided = True

    system = routed()
    for call, rule in (
        (lambda: system.predict(X), "must be asked by certify"),
        (lambda: system.certify_until(X, 10, None), "with all n draws"),
        (lambda: system.certify(X, label=1), "label must be left out"),
        (lambda: system.certify(X, label=7), "label must be left out"),
        (lambda: system.certify(X, alpha=1.5), "alpha must lie in"),
        (lambda: RoutedClassifier(system, [system.experts[1], system.experts[0]]), "increasing noise levels"),
        (lambda: RoutedClassifier(system, [system.experts[0]] * 2), "increasing noise levels"),
        (lambda: routed(experts=[Linear(), Undecided()]), "votes for no class"),
    ):
        with pytest.raises(InputError, match=rule):
            call()
