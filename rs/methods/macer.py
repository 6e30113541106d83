"""MACER: attack-free training that maximises the soft certified radius (Zhai et al. 2020)."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from rs.methods.base import Step
from rs.methods.macer_objective import macer_objective
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.smoothing.attack import forward
from rs.smoothing.noise import draw


@validated
class Macer:
    """Cross-entropy of the soft smoothed classifier plus a hinge on its certified radius, on the image itself.

    A step takes the whole batch with ``draws`` copies of each image. ``defer`` holds lam at 0 for that many epochs.
    """

    draws: Count
    lam: NonNegative
    gamma: Positive
    beta: Positive
    defer: NonNegativeCount

    steps_per_batch = 1

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        logits = forward(model, x, draw(x, self.draws, sigma, rng))
        lam = self.lam if epoch >= self.defer else 0.0
        return macer_objective(logits, y, sigma=sigma, lam=lam, gamma=self.gamma, beta=self.beta)
