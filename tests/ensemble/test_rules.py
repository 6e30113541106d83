import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from numpy import argmax
from scipy.special import softmax
from torch import nn

from rs.ensemble.base import Cascade, Ensemble, LogitAverage, SoftmaxAverage
from rs.ensemble.rules import PARTS, RULES, HardVote, KConsensus, MaxMargin, check_rule
from rs.params import validate
from rs.smoothing.classifier import SmoothedClassifier
from rs.study.ensembles import Combination
from tests.support.combinations import EXAMPLES, GOOD, THRESHOLDS, WEIGHTS, fitting
from tests.support.helpers import Constant, generator, refuses, smallnet


def logits(members=3, draws=200, classes=4, dtype=torch.float32):
    return (3 * torch.randn((members, draws, classes), generator=generator())).to(dtype)


def mixed(weights, vectors):
    return np.asarray(weights) @ np.asarray(vectors)


def lead(probabilities):
    """By how much the largest one leads the second."""
    second, first = sorted(probabilities)[-2:]
    return first - second


def slow_softmax(members, parts):
    return argmax(mixed(parts["weights"], [softmax(z) for z in members]))


def slow_logits(members, parts):
    return argmax(mixed(parts["weights"], members))


def slow_vote(members, parts):
    """Most votes, and of those the largest average probability."""
    votes = [argmax(z) for z in members]
    average = np.mean([softmax(z) for z in members], axis=0)
    return max(range(len(average)), key=lambda k: (votes.count(k), average[k]))


def slow_max_margin(members, parts):
    surest = max(members, key=lambda z: lead(softmax(z)))
    return argmax(surest)


def slow_consensus(members, parts):
    votes = {argmax(z) for z in members[: parts["agree"]]}
    if len(votes) == 1:
        return votes.pop()
    return argmax(np.mean(members, axis=0))


def slow_cascade(members, parts):
    """The class of the first average of 1, 2, ... members that is clear, or of the last one."""
    p = [softmax(z) for z in members]
    for count, threshold in enumerate([*parts["thresholds"], 0], start=1):
        average = np.mean(p[:count], axis=0)
        if lead(average) >= threshold:
            return argmax(average)
    raise AssertionError


SLOW_FORMS = {
    "softmax": slow_softmax,
    "logits": slow_logits,
    "vote": slow_vote,
    "mme": slow_max_margin,
    "consensus": slow_consensus,
    "cascade": slow_cascade,
}
"""For each entry of RULES, the class that it votes for, from the logits (L, K) of one draw and the
parts it was given.
"""


def slow_cases():
    """Each rule that combinations of EXAMPLES make, with its slow form."""
    weights = {"equal": [1 / 3] * 3, "optimal": WEIGHTS}
    cases = {}
    for name, entry in RULES.items():
        for combination in fitting(name, entry):
            fitted = None
            if combination.solved:
                fitted = THRESHOLDS if combination.thresholds else WEIGHTS
            parts = vars(combination) | {"thresholds": THRESHOLDS}
            parts["weights"] = weights.get(combination.weights)
            rule = entry.build(combination, fitted)
            cases[rule] = partial(SLOW_FORMS[name], parts=parts)
    return cases


SLOW = slow_cases()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rule", SLOW, ids=str)
def test_a_rule_votes_like_a_slow_loop(rule, dtype):
    given_logits = logits(dtype=dtype)
    expected = [SLOW[rule](members) for members in given_logits.transpose(0, 1).tolist()]
    assert rule(given_logits).argmax(dim=-1).tolist() == expected


def test_surer_members_win_even_where_float32_would_see_a_tie():
    """1 - e^-20 and 1 - e^-30 are both 1 in float32."""
    members = torch.tensor([[[20.0, 0.0]], [[0.0, 30.0]]])
    assert (torch.softmax(members, dim=-1).amax(dim=-1) == 1).all()
    assert SoftmaxAverage()(members).argmax() == 1


def test_a_tied_vote_goes_to_the_tied_class_with_the_largest_average():
    """Two votes for 1, two for 2, and class 0 has the largest average of all."""
    members = torch.tensor([[[2.0, 2.1, 0]], [[2.0, 2.1, 0]], [[2.0, 0, 2.2]], [[2.0, 0, 2.2]]])
    assert SoftmaxAverage()(members).argmax() == 0
    assert HardVote()(members).argmax() == 2


# ------------------------------------------------------------------------------------------
# combinations


def check_combination(**parts):
    """Validate and check a combination."""
    check_rule(validate(Combination, parts, "combinations.x"))


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_needed_must_be_given_and_any_other_left_out(name, part):
    parts = dict(GOOD[name])
    must = "be given"
    if part in parts:
        del parts[part]
    else:
        must = "be left out"
        parts[part] = EXAMPLES[part][0]
    message = f"{part} must {must} for the rule {parts['rule']} of scope {parts['scope']}"
    with pytest.raises(ValueError, match=message):
        check_combination(**parts)


# ------------------------------------------------------------------------------------------------
# weights


@pytest.mark.parametrize("weights", [[1.1, -0.1], [], [[0.5, 0.5]], [math.nan, 1.0], [0.5, 0.499]])
def test_weights_off_the_simplex_are_refused(weights):
    for make in (SoftmaxAverage, LogitAverage):
        with pytest.raises(ValueError, match="weights must be at least 0 and sum to 1"):
            make(weights)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (SoftmaxAverage([1.0]), "one weight for each member, got 1 for 2"),
        (LogitAverage([0.2, 0.3, 0.5]), "one weight for each member, got 3 for 2"),
        (KConsensus(3), "at most the number of members, 2, got 3"),
    ],
)
def test_a_rule_for_other_members_is_refused_at_once(rule, message):
    with pytest.raises(ValueError, match=message):
        Ensemble([Constant(0), Constant(1)], rule)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("rule", [*SLOW, KConsensus(1)], ids=str)
def test_no_rule_hides_a_member_that_is_not_a_number(rule, value):
    """A cascade may not evaluate it: ``tests/ensemble/test_cascade.py``."""
    if isinstance(rule, Cascade):
        rule = Cascade([2.0, 2.0])

    class Broken(nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, value]).expand(len(x), 2)

    ensemble = Ensemble([Constant(0), Constant(0), Broken()], rule)
    classifier = SmoothedClassifier(ensemble, 2, 0.5)
    with refuses("numbers, got NaN"):
        classifier.certify(torch.zeros(1, 2, 2), 10, 10, 0.1)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 9, 17])
def test_a_draw_has_the_same_scores_wherever_it_stands_in_a_batch(members):
    """A sum over members may not be taken in another order at the end of a batch: it would be
    another classifier.
    """
    draw = logits(members, draws=1, classes=7)
    weights = np.random.default_rng(0).dirichlet(np.ones(members))
    rules = [
        SoftmaxAverage(weights),
        SoftmaxAverage(),
        LogitAverage(weights),
        HardVote(),
        MaxMargin(),
        KConsensus(members),
        Cascade([0.3] * (members - 1)),
    ]
    for rule, draws in product(rules, (2, 3, 37, 100, 501)):
        scores = rule(draw.expand(-1, draws, -1))
        assert torch.equal(scores, rule(draw).expand(draws, -1)), (rule, draws)


def test_an_ensemble_has_gradients_after_it_was_used_without():
    rule = SoftmaxAverage([0.123, 0.877])  # weights of no other test: they are kept
    with torch.inference_mode():
        rule(logits(members=2))
    x = torch.rand(3, 1, 4, 4, requires_grad=True)
    ensemble = Ensemble([smallnet(0), smallnet(1)], rule).eval()
    ensemble(x)[:, 0].sum().backward()
    assert x.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore")  # of torch's tracer, which OpenVINO uses
def test_an_ensemble_can_be_traced_as_a_member_of_another_one_is_for_int8():
    members = [nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval() for _ in range(2)]
    ensemble = Ensemble(members, SoftmaxAverage()).eval()
    x = torch.rand(5, 1, 2, 2)
    traced = torch.jit.trace(ensemble, x[:1], check_trace=False)
    torch.testing.assert_close(traced(x), ensemble(x))
