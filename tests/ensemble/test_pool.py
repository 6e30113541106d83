import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from rs.ensemble.base import Cascade, Ensemble, Rule, SoftmaxAverage
from rs.ensemble.pool import PoolEntry
from rs.ensemble.rules import MaxMargin
from rs.smoothing.classifier import SmoothedClassifier
from tests.support.helpers import Constant, refuses, smallnet
from tests.support.small_pool import (
    ALPHA,
    ENTRIES,
    N0,
    SIGMA,
    Counting,
    N,
    as_bytes,
    image,
    member,
    members,
    pool,
)


def alone(entry, models, **settings):
    ensemble = Ensemble([models[number] for number in entry.member_ids], entry.rule)
    classifier = SmoothedClassifier(ensemble, 2, SIGMA, **settings)
    return classifier.certify(image(), N0, N, ALPHA, seed=1)


class Wider(nn.Module):
    """A member whose output has float64 logits as an attribute."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return SimpleNamespace(logits=self.base(x).double())


class Product(Rule):
    """The largest sum of log-probabilities: a rule that is not in RULES."""

    def scores(self, outputs):
        return outputs.logits.log_softmax(dim=-1).sum(dim=0)


def test_a_users_own_rule_gives_the_certificate_it_gives_alone_beside_members_of_another_dtype():
    models = [*members(), Wider(smallnet(3))]
    entries = {"own": PoolEntry((0, 1), Product()), "wider": PoolEntry((3, 0))}
    for precision in ("float32", "bfloat16"):
        made = pool(models, entries, precision=precision)
        for name, entry in entries.items():
            assert as_bytes(made[name]) == as_bytes(alone(entry, models, precision=precision)), name


MANY = {}
for size in (1, 2, 3, 4):
    for chosen in itertools.permutations(range(4), size):
        weights = np.random.default_rng(size).dirichlet(np.ones(size))
        MANY[f"{chosen} equal"] = PoolEntry(chosen, SoftmaxAverage())
        MANY[f"{chosen} other"] = PoolEntry(chosen, SoftmaxAverage(weights))
"""Averages of one to four of four members in every order, with equal and with other weights: 128 of
them.
"""


class Balanced(nn.Module):
    """Logits that are two pixels times ``gain``: averages of opposite gains are ties, but for
    rounding.
    """

    def __init__(self, gain):
        super().__init__()
        self.gain = gain

    def forward(self, x):
        return self.gain * x.flatten(1)[:, :2]


def balanced():
    return [Balanced(gain) for gain in (1.0, -1.0, 3.0, -3.0)]


def networks():
    return [*map(smallnet, range(4))]


@pytest.mark.parametrize(("models", "batch"), [(networks, None), (balanced, None), (balanced, 7)])
def test_averages_that_are_evaluated_together_are_bit_for_bit_those_of_each_alone(
    models, batch, monkeypatch
):
    """Mixed with other rules, a few at once; alone each is a ``SmoothedClassifier``."""
    monkeypatch.setattr("rs.ensemble.pool.SCORES_AT_ONCE", 2_000)
    made = pool(models(), MANY | ENTRIES, batch=batch)
    assert list(made) == [*MANY, *ENTRIES]
    some = dict(list(MANY.items())[::5]) | ENTRIES
    for name, entry in some.items():
        assert as_bytes(made[name]) == as_bytes(alone(entry, models(), batch=batch)), name


def test_a_member_is_evaluated_once_on_each_draw_however_many_rules_use_it():
    models = [Counting(model) for model in members()]
    pool(models)
    assert [model.images for model in models] == [N0 + N] * 3


def test_members_that_no_entry_needs_any_more_are_not_evaluated():
    models = [Counting(Constant(0)), Counting(Constant(1)), Counting(Constant(0))]
    pool(models, {"zero": PoolEntry((0,)), "one": PoolEntry((1,))}, label=1)
    assert [model.images for model in models] == [N0, N0 + N, 0]


def test_a_member_that_is_not_a_number_spoils_the_ensembles_that_it_is_in_alone():
    """Averages of as many members are evaluated together, whoever is in them; a weight of 0 hides
    nothing.
    """
    models = [*members(), member(0, math.nan, 0.5)]
    good = {
        "two": PoolEntry((0, 1), SoftmaxAverage()),
        "turned": PoolEntry((2, 0), SoftmaxAverage([0.3, 0.7])),
    }
    made = pool(models, good)
    for name, entry in good.items():
        assert as_bytes(made[name]) == as_bytes(alone(entry, models))
    for bad in (
        PoolEntry((3,), SoftmaxAverage()),
        PoolEntry((0, 3), SoftmaxAverage([1.0, 0.0])),
        PoolEntry((3, 1), MaxMargin()),
        PoolEntry((3, 0), Cascade([0.0])),
        PoolEntry((0, 3), Cascade([0.9])),
    ):
        with refuses("numbers, got NaN"):
            pool(models, good | {"bad": bad})
