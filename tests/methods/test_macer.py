"""MACER and AdvMacer are one objective at two points."""

import math

import pytest
import torch
from torch import nn

from rs.methods import method_class
from rs.methods.macer import macer_objective
from tests.support.helpers import generator

MACER = {"draws": 4, "lam": 12.0, "gamma": 8.0, "beta": 16.0, "defer": 2}
ADVMACER = MACER | {
    "attack_draws": 8,
    "steps": 2,
    "steps_warmup": 0,
    "epsilon": 0.5,
    "warmup": 10,
    "beta_cross_entropy": 1.0,
    "beta_attack": 1.0,
}
ADVMACER |= {"fresh_draws": False, "chunked": True, "cross_entropy": "log-of-mean"}
SMOOTHADV = {key: ADVMACER[key] for key in ("draws", "steps", "epsilon", "warmup")}
SIGMA = 0.25


def loss_and_gradients(name, values, epoch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hidden = nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), *hidden).train()
    x, y = torch.rand((16, 1, 4, 4), generator=generator(1)), torch.arange(16) % 3
    step = method_class(name)(**values).loss(
        model, x, y, sigma=SIGMA, rng=generator(2), epoch=epoch
    )
    step.loss.backward()
    return step, [weight.grad for weight in model.parameters()]


def test_the_share_in_the_hinge_is_of_right_images_whose_margin_is_gamma_at_most():
    """xi = 2 Phi^-1(q1) of two classes is 1, 2.5 and 4; the last image is wrong."""
    q1 = [0.5 * math.erfc(-xi / 2 / math.sqrt(2)) for xi in (1.0, 2.5, 4.0, 1.0)]
    logits = torch.tensor([[[math.log(q), math.log1p(-q)]] for q in q1], dtype=torch.float64)
    step = macer_objective(
        logits, torch.tensor([0, 0, 0, 1]), sigma=SIGMA, lam=12.0, gamma=3.0, beta=1.0
    )
    assert step.hinge_share == 0.5


@pytest.mark.parametrize("epoch", [0, 5])
def test_advmacer_without_its_hinge_is_smoothadv_to_the_bit_if_it_takes_the_mean_of_logs(epoch):
    smoothadv, gradients = loss_and_gradients("smoothadv", SMOOTHADV, epoch)
    advmacer, others = loss_and_gradients(
        "advmacer", ADVMACER | {"lam": 0.0, "cross_entropy": "mean-of-logs"}, epoch
    )
    assert torch.equal(advmacer.loss, smoothadv.loss)
    assert torch.equal(advmacer.accuracy, smoothadv.accuracy)
    assert all(torch.equal(a, b) for a, b in zip(others, gradients, strict=True))
