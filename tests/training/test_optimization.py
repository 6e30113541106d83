"""Optimizers and schedules against their definitions."""

import numpy as np
import pytest
import torch
from torch import nn

from rs.methods.base import Step
from rs.recipes import over_packaged
from rs.training.optimization import learning_rate_at
from rs.training.recipe import Training
from tests.support.helpers import TRAINING, trainer, weights

ADAMW = {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1, "milestones": []}


class Slopes(nn.Module):
    """A matrix and a bias, in float64; the loss is a fixed linear function of them."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64))
        self.bias = nn.Parameter(torch.tensor([2.0, -1.0], dtype=torch.float64))


class Slope:
    steps_per_batch = 1

    def loss(self, model, x, y, *, sigma, rng, epoch):
        loss = model.matrix.sum() - 2 * model.bias.sum()
        return Step(loss, loss, loss, loss)


def moved(**settings):
    """The parameters after six steps."""
    model = Slopes()
    training = trainer(model=model, epochs=2, **{**ADAMW, **settings})
    training.method = Slope()
    training.run()
    return model


def test_adamw_decays_matrices_and_no_biases():
    """A constant gradient g has bias-corrected moments g and g^2: each step is -rate sign(g).

    Decoupled decay multiplies a weight by 1 - rate * decay before it.
    """
    model = moved()
    start = Slopes()
    matrix = start.matrix.detach()
    for _ in range(6):
        matrix = matrix * (1 - 0.01 * 0.1) - 0.01
    # torch adds 1e-8 to the root of the second moment, at least 1
    torch.testing.assert_close(model.matrix.detach(), matrix, rtol=0, atol=6 * 0.01 * 1e-8)
    bias = start.bias.detach() + 6 * 0.01
    torch.testing.assert_close(model.bias.detach(), bias, rtol=0, atol=6 * 0.01 * 1e-8)


def test_muon_takes_matrices_and_leaves_the_others_to_adamw():
    model = moved(optimizer="muon")
    expected = Slopes()
    muon = torch.optim.Muon(
        [expected.matrix], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(6):
        expected.matrix.grad = torch.ones_like(expected.matrix)
        muon.step()
    assert torch.equal(model.matrix, expected.matrix)
    assert torch.equal(model.bias, moved().bias)


def test_a_training_continues_with_the_state_of_each_optimizer(tmp_path):
    settings = {**ADAMW, "optimizer": "muon", "epochs": 4}
    unbroken = trainer(**settings)
    unbroken.run()
    first = trainer(**settings)
    first.epoch(0)
    first.save(tmp_path / "checkpoint.pt")
    resumed = trainer(**settings)
    resumed.run(tmp_path / "checkpoint.pt")
    assert weights(resumed.model) == weights(unbroken.model)


def test_every_optimizer_takes_the_learning_rate_of_the_schedule():
    training = trainer(**{**ADAMW, "optimizer": "muon", "schedule": "cosine"})
    training.run()
    rates = set()
    for optimizer in training.optimizers:
        for group in optimizer.param_groups:
            rates.add(group["lr"])
    assert len(training.optimizers) == 2
    share = (1 + 2.5 / 3) / 2  # three steps in each of two epochs
    assert rates == {learning_rate_at(training.settings, share)}


def test_a_cosine_schedule_is_half_a_wave_after_a_linear_warm_up():
    settings = {**TRAINING, "schedule": "cosine", "ramp": 0.2, "epochs": 10, "learning_rate": 0.4}
    wave = 0.2 * (1 + np.cos(np.pi * np.arange(81) / 80))
    expected = [*np.linspace(0, 0.4, 21), *wave[1:]]
    found = [learning_rate_at(Training(**settings), step / 100) for step in range(101)]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_card_of_a_training_by_sgd_is_that_of_earlier_versions():
    card = Training(**TRAINING).card()
    assert card.keys() == TRAINING.keys()
    other = Training(**TRAINING, optimizer="adamw", micro_batch=4).card()
    assert other == card | {"optimizer": "adamw", "micro_batch": 4}


def test_parameters_with_defaults_of_their_own_stay_as_they_are():
    values = {"defaults": {}, "recipes": {"mine": {}}}
    assert over_packaged(values) == values
