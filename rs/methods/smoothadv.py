"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from rs.methods.base import ClippedAttack, SeveralDraws, Step, accuracy, warmed_up
from rs.params import NonNegative, NonNegativeCount, validated
from rs.smoothing.attack import forward, pgd
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import mean_cross_entropy


@validated
class SmoothAdv(SeveralDraws, ClippedAttack):
    """Cross-entropy of the noisy copies of an adversarial point of the soft smoothed classifier.

    1/(BM) sum_ik CE(f(x_hat_i + d_ik), y_i),   x_hat_i from the attack with the same draws

    The attack maximizes the log of the mean over draws, the loss is the mean of the logs.
    """

    steps: NonNegativeCount
    epsilon: NonNegative
    warmup: NonNegativeCount

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = training_noise(x, self.draws, sigma, rng)
        epsilon = warmed_up(self.epsilon, epoch, self.warmup)
        x_hat = pgd(model, x, y, noise, self.steps, epsilon, rng=rng, bounds=self.bounds)
        logits = forward(model, x_hat, noise)
        loss = mean_cross_entropy(logits, y)
        return Step(loss, loss, torch.zeros_like(loss), accuracy(logits, y))
