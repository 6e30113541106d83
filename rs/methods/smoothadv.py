"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor, nn

from rs.methods.base import SeveralDraws, Step, accuracy, warmed_up
from rs.params import NonNegative, NonNegativeCount, validated
from rs.smoothing.attack import forward, pgd, stein_direction
from rs.smoothing.noise import draw
from rs.smoothing.soft import mean_cross_entropy


@validated
class SmoothAdv(SeveralDraws):
    """Cross-entropy of the noisy copies of an adversarial point of the soft smoothed classifier.

    1/(BM) sum_ik CE(f(x_hat_i + d_ik), y_i),   x_hat_i from the attack with the same draws

    The attack maximises the log of the mean over draws, the loss is the mean of the logs. ``attack`` is ``pgd`` or its
    gradient-free form ``pgd-free``.
    """

    steps: NonNegativeCount
    epsilon: NonNegative
    warmup: NonNegativeCount
    attack: Literal["pgd", "pgd-free"]

    def __post_init__(self) -> None:
        if self.attack == "pgd-free" and self.draws < 2:
            raise ValueError("the attack pgd-free needs at least 2 draws")

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = draw(x, self.draws, sigma, rng)
        epsilon = warmed_up(self.epsilon, epoch, self.warmup)
        direction = (lambda point: stein_direction(model, point, y, noise)) if self.attack == "pgd-free" else None
        x_hat = pgd(model, x, y, noise, self.steps, epsilon, rng=rng, direction=direction)
        logits = forward(model, x_hat, noise)
        loss = mean_cross_entropy(logits, y)
        return Step(loss, loss, torch.zeros_like(loss), accuracy(logits, y))
