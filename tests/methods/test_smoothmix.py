"""Where SmoothMix puts its mixed images."""

import pytest
import torch
from scipy import stats
from torch import nn

from rs.methods import method_class
from tests.support.helpers import generator

VALUES = {"draws": 3, "steps": 2, "step_size": 0.1, "eta": 5.0, "one_step": False, "warmup": 10}
B, SIGMA = 400, 0.25


class Recorder(nn.Module):
    """Two classes with logits (s(x), 0), s the sum of the pixels: label 1 is lost along (1, 1, 1,
    1) / 2.
    """

    def __init__(self):
        super().__init__()
        self.trained_on = []

    def forward(self, x):
        if self.training:
            self.trained_on.append(x)
        score = x.flatten(1).sum(dim=1)
        return torch.stack([score, torch.zeros_like(score)], dim=1)


@pytest.mark.parametrize("limit", [0.5, 1.0])
def test_share_of_the_adversarial_side_is_uniform_up_to_the_limit_and_the_same_for_all_draws(limit):
    x, y = torch.full((B, 1, 2, 2), 0.5, dtype=torch.float64), torch.ones(B, dtype=torch.long)
    model, method = Recorder().train(), method_class("smoothmix")(**VALUES, mix_limit=limit)
    method.loss(model, x, y, sigma=SIGMA, rng=generator(3), epoch=0)
    noise = SIGMA * torch.randn((B, 3, 1, 2, 2), generator=generator(3), dtype=torch.float64)
    moves = [seen.unflatten(0, (B, 3)) - noise - x[:, None] for seen in model.trained_on]
    clean, mixed = (
        move.flatten(2).sum(dim=2) / 2 for move in moves
    )  # (B, M): pixels along the attack
    share = mixed / 0.2  # the attack goes 2 steps of .1
    assert clean.abs().max() < 1e-12
    assert (share - share[:, :1]).abs().max() < 1e-6
    assert share.min() >= 0
    assert share.max() <= limit
    assert stats.kstest(share[:, 0], stats.uniform(0, limit).cdf).pvalue > 1e-6
