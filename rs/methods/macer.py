"""MACER: attack-free training that maximises the soft certified radius (Zhai et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rs.attack import forward
from rs.methods.base import Step, accuracy
from rs.noise import draw
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.soft import radius_hinge, soft_cross_entropy, top_two


def macer_step(
    logits: Tensor,
    y: Tensor,
    *,
    sigma: float,
    lam: float,
    gamma: float,
    beta: float,
    beta_cross_entropy: float = 1.0,
) -> Step:
    """MACER's objective on logits (B, M, K), wherever the images came from; AdvMacer shares it.

    1/B sum_i -log z_hat_i[y_i] + lam sigma/(2B) sum_{i in hinge} (gamma - xi_i)

    ``beta`` belongs to the radius term alone, as in MACER's code; the paper at hand writes one z_hat for both.
    """
    cross_entropy = soft_cross_entropy(logits, y, beta_cross_entropy)
    robustness = lam * radius_hinge(logits, y, sigma, gamma, beta)
    with torch.no_grad():
        hinge_share = top_two(logits, y, gamma, beta)[2].float().mean()
    return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y), hinge_share)


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

    chunks = 1

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: torch.Generator, epoch: int) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        logits = forward(model, x, draw(x, self.draws, sigma, rng))
        lam = self.lam if epoch >= self.defer else 0.0
        return macer_step(logits, y, sigma=sigma, lam=lam, gamma=self.gamma, beta=self.beta)
