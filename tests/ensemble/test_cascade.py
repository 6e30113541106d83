"""Cascades: members asked in turn, alone and in a pool. The slow form of the rule is in
``test_rules.py``.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rs.ensemble.base import Cascade, Ensemble, SoftmaxAverage
from rs.ensemble.cascade import BATCH_MULTIPLE
from rs.ensemble.outputs import Outputs
from rs.ensemble.pool import PoolEntry
from rs.runtime import arithmetic
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.sequential import Decider
from tests.support.helpers import generator, needs_x86, python, refuses
from tests.support.small_pool import SIGMA, Counting, as_bytes, image, pool

DRAWS = 1030


class Pixel(nn.Module):
    """Two logits of one pixel, computed number by number: the same bits wherever an image stands in
    a batch.
    """

    def __init__(self, pixel, gain):
        super().__init__()
        self.pixel, self.gain = pixel, gain

    def forward(self, x):
        z = self.gain * (x.flatten(1)[:, self.pixel] - 0.6)
        return torch.stack([-z, z], dim=1)


class NanAbove(nn.Module):
    """Not a number where a pixel is above ``limit``."""

    def __init__(self, base, limit):
        super().__init__()
        self.base, self.limit = base, limit

    def forward(self, x):
        return self.base(x).masked_fill(x.flatten(1)[:, :1] > self.limit, math.nan)


def three():
    return [Pixel(0, 2.0), Pixel(1, 3.0), Pixel(4, 4.0)]


def smoothed(members, thresholds):
    return SmoothedClassifier(Ensemble(members, Cascade(thresholds)), 2, SIGMA, batch=100)


# -------------------------------------------------------------------------------------------------
# what it decides


thresholds = st.lists(st.floats(0, 1.1), min_size=2, max_size=2)


@settings(deadline=None)
@given(thresholds, st.permutations(range(40)))
def test_a_vote_depends_on_its_draw_alone(given_thresholds, order):
    rule = Cascade(given_thresholds)
    x = image() + SIGMA * torch.randn((40, 1, 4, 4), generator=generator())
    scores, taken = rule.decide(Outputs([member(x) for member in three()]))
    turned, taken_turned = rule.decide(Outputs([member(x[list(order)]) for member in three()]))
    assert torch.equal(turned, scores[list(order)])
    assert torch.equal(taken_turned, taken[list(order)])


# -------------------------------------------------------------------------------------------------
# what it evaluates


def asked(given_thresholds):
    """How many draws each member is asked about, by the rule on the logits of all of them."""
    classifier = SmoothedClassifier(nn.Identity(), 2, SIGMA)
    copies = torch.cat([*classifier.noisy_copies(image(), DRAWS, 1, Stream.ESTIMATE, 0)])
    outputs = Outputs([member(copies) for member in three()])
    _, taken = Cascade(given_thresholds).decide(outputs)
    return [int((taken >= number).sum()) for number in (1, 2, 3)]


@pytest.mark.parametrize("given_thresholds", [[0.9, 0.5], [0.5, 0.9], [0.2, 0.0]])
def test_evaluations_are_counted_exactly_and_images_that_fill_up_a_batch_are_not(given_thresholds):
    members, counts = [Counting(member) for member in three()], asked(given_thresholds)
    assert counts[0] > counts[1]
    found = smoothed(members, given_thresholds).tally(image(), DRAWS, 1, Stream.ESTIMATE, 0)
    assert found.evaluations == sum(counts)
    filled = [-(-count // BATCH_MULTIPLE) * BATCH_MULTIPLE for count in counts[1:]]
    assert [member.images for member in members] == [DRAWS, *filled]


def test_certificates_that_stop_early_or_skip_their_draws_count_what_they_evaluated():
    members = [Counting(member) for member in three()]
    classifier = smoothed(members, [1.1, 1.1])
    certificates = [classifier.certify(image(), 100, 300, 0.01, label=label) for label in (0, 1)]
    test = Decider([0.1 * SIGMA], SIGMA, 0.01, 1000)
    certificates.append(classifier.certify_until(image(), 100, test))
    for made in certificates:
        assert made.evaluations == 3 * (100 + made.n)
    evaluations = sum(made.evaluations for made in certificates)
    assert sum(member.images for member in members) == evaluations


# -------------------------------------------------------------------------------------------------
# in a pool


def test_a_member_that_is_not_a_number_where_no_draw_asks_it_changes_nothing():
    """Alone it is not evaluated there; in a pool it is, for others."""
    members = [Pixel(0, 50.0), NanAbove(Pixel(1, 3.0), 0.9)]  # from .9 on, the first is clear
    entry = PoolEntry((0, 1), Cascade([0.9]))
    expected = as_bytes(pool([members[0], Pixel(1, 3.0)], {"cascade": entry})["cascade"])
    assert as_bytes(pool(members, {"cascade": entry})["cascade"]) == expected
    assert as_bytes(smoothed(members, [0.9]).certify(image(), 30, 330, 0.01, seed=1)) == expected
    with refuses("numbers, got NaN"):
        pool(members, {"cascade": entry, "average": PoolEntry((0, 1), SoftmaxAverage())})


ALIKE = """
import torch
from rs.certification.inference import optimize_for_inference
from rs.ensemble.base import Cascade, Ensemble
from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
from rs.models import architectures
from rs.runtime import arithmetic
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import Draws

shape, cpu = (1, 8, 8), torch.device("cpu")
networks = []
for seed in range(3):
    networks.append(architectures.build("smallnet", shape, 10, [0.5], [0.25], seed).eval())
x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
noisy = x + torch.randn((500, *shape), generator=torch.Generator().manual_seed(1))
print(arithmetic.current())
for engine in ("plain", "folded"):
    for thresholds in ([0.02, 0.01], [0.05, 0.02], [0.0, 0.01], [2.0, 0.02]):
        rule = Cascade(thresholds)
        made = optimize_for_inference(Ensemble(networks, rule), engine, "float32", shape, cpu)
        alone = SmoothedClassifier(made.module, 10, 0.5).certify(x, 100, 1000, 0.01)
        entries = {"cascade": PoolEntry((0, 1, 2), rule)}
        members = SmoothedClassifier(MemberLogits([*made.module.members]), 10, 0.5)
        pool = NoisyPool(members, x, Draws(100, 1000, 0.01)).certify(entries)["cascade"]
        print(repr(alone) == repr(pool), 1100 <= alone.evaluations <= 3300)
        parts = [output.scores for output in made.module.evaluate_cascade([noisy])]
        scores = sorted(map(tuple, torch.cat(parts).tolist()))
        print(scores == sorted(map(tuple, made.module(noisy).tolist())))
"""


@needs_x86
@pytest.mark.trust_only
def test_portable_arithmetic_gives_the_same_scores_in_turn_and_the_rows_of_the_pool():
    """Its answers are the same in every batch of a multiple of 20 images, as the draws of a study
    come.
    """
    done = python("-c", ALIKE, **arithmetic.PORTABLE)
    assert done.returncode == 0, done.stderr
    first, *answers = done.stdout.split("\n")
    assert first == "portable"
    assert set(" ".join(answers).split()) == {"True"}
