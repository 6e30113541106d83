"""Training on Gaussian noise (Cohen, Rosenfeld & Kolter 2019)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from rs.methods.base import Step, accuracy
from rs.params import validated
from rs.smoothing.attack import forward
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import mean_cross_entropy


@validated
class Gaussian:
    """Cross-entropy of one noisy copy of each image.

    1/B sum_i CE(f(x_i + d_i), y_i)
    """

    steps_per_batch = 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        logits = forward(model, x, training_noise(x, 1, sigma, rng))
        loss = mean_cross_entropy(logits, y)
        return Step(loss, loss, torch.zeros_like(loss), accuracy(logits, y))
