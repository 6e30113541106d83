"""Cascades: members evaluated in turn, alone and in a pool.

The slow form of the rule is in ``test_rules.py``.
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
        self.pixel = pixel
        self.gain = gain

    def forward(self, x):
        z = self.gain * (x.flatten(1)[:, self.pixel] - 0.6)
        return torch.stack([-z, z], dim=1)


class NanAbove(nn.Module):
    """Not a number where a pixel is above ``limit``."""

    def __init__(self, base, limit):
        super().__init__()
        self.base = base
        self.limit = limit

    def forward(self, x):
        is_above = x.flatten(1)[:, :1] > self.limit
        return self.base(x).masked_fill(is_above, math.nan)


MEMBERS = [Pixel(0, 2.0), Pixel(1, 3.0), Pixel(4, 4.0)]


def outputs_of(x):
    return Outputs([member(x) for member in MEMBERS])


def smoothed(members, thresholds):
    return SmoothedClassifier(Ensemble(members, Cascade(thresholds)), 2, SIGMA, batch=100)


# -------------------------------------------------------------------------------------------------
# what it decides


@settings(deadline=None)
@given(st.lists(st.floats(0, 1.1), min_size=2, max_size=2), st.permutations(range(40)))
def test_a_vote_depends_on_its_draw_alone(thresholds, order):
    rule = Cascade(thresholds)
    x = image() + SIGMA * torch.randn((40, 1, 4, 4), generator=generator())
    scores, members_asked = rule.decide(outputs_of(x))
    scores_in_order, asked_in_order = rule.decide(outputs_of(x[order]))
    assert torch.equal(scores_in_order, scores[order])
    assert torch.equal(asked_in_order, members_asked[order])


# -------------------------------------------------------------------------------------------------
# what it evaluates


def evaluations_by_member(thresholds):
    """How many draws each member is asked about, by the rule on the logits of all of them."""
    classifier = SmoothedClassifier(nn.Identity(), 2, SIGMA)
    copies = torch.cat([*classifier.noisy_copies(image(), DRAWS, 1, Stream.ESTIMATE, 0)])
    _, members_asked = Cascade(thresholds).decide(outputs_of(copies))
    return [int((members_asked >= number).sum()) for number in (1, 2, 3)]


@pytest.mark.parametrize("thresholds", [[0.9, 0.5], [0.5, 0.9], [0.2, 0.0]])
def test_evaluations_are_counted_exactly_and_images_that_fill_up_a_batch_are_not(thresholds):
    members = [Counting(member) for member in MEMBERS]
    classifier = smoothed(members, thresholds)

    tally = classifier.tally(image(), DRAWS, 1, Stream.ESTIMATE, 0)

    first, *later = evaluations_by_member(thresholds)
    filled_up = [math.ceil(count / BATCH_MULTIPLE) * BATCH_MULTIPLE for count in later]
    assert first > later[0]
    assert tally.evaluations == first + sum(later)
    assert [member.images for member in members] == [DRAWS, *filled_up]


def test_certificates_that_stop_early_or_skip_their_draws_count_what_they_evaluated():
    members = [Counting(member) for member in MEMBERS]
    classifier = smoothed(members, [1.1, 1.1])
    test = Decider([0.1 * SIGMA], SIGMA, 0.01, 1000)

    certificates = [classifier.certify(image(), 100, 300, 0.01, label=label) for label in (0, 1)]
    certificates.append(classifier.certify_until(image(), 100, test))

    total = 0
    for certificate in certificates:
        assert certificate.evaluations == 3 * (100 + certificate.n)
        total += certificate.evaluations
    assert sum(member.images for member in members) == total


# -------------------------------------------------------------------------------------------------
# in a pool


def test_a_member_that_is_not_a_number_where_no_draw_asks_it_changes_nothing():
    """Alone it is not evaluated there; in a pool it is, for others."""
    first = Pixel(0, 50.0)  # from 0.9 on it is clear
    second = Pixel(1, 3.0)
    members = [first, NanAbove(second, 0.9)]
    entries = {"cascade": PoolEntry((0, 1), Cascade([0.9]))}

    without_nan = pool([first, second], entries)["cascade"]
    with_nan = pool(members, entries)["cascade"]
    alone = smoothed(members, [0.9]).certify(image(), 30, 330, 0.01, seed=1)

    assert as_bytes(with_nan) == as_bytes(without_nan)
    assert as_bytes(alone) == as_bytes(without_nan)
    entries["average"] = PoolEntry((0, 1), SoftmaxAverage())
    with refuses("numbers, got NaN"):
        pool(members, entries)


SCRIPT = """
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
    done = python("-c", SCRIPT, **arithmetic.PORTABLE)
    assert done.returncode == 0, done.stderr
    first, *answers = done.stdout.split("\n")
    assert first == "portable"
    assert set(" ".join(answers).split()) == {"True"}
