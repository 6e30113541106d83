"""MACER: attack-free training that maximizes the soft certified radius (Zhai et al. 2020)."""

from __future__ import annotations

from typing import Literal

from torch import Generator, Tensor, nn

from rs.methods.base import Step, accuracy
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.smoothing.attack import forward
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import mean_cross_entropy, radius_hinge, soft_cross_entropy

CrossEntropy = Literal["log-of-mean", "mean-of-logs"]
"""Whether a cross-entropy averages softmaxes over draws (MACER) or their logs (SmoothAdv)."""


def macer_objective(
    logits: Tensor,
    y: Tensor,
    *,
    sigma: float,
    lam: float,
    gamma: float,
    beta: float,
    cross_entropy: CrossEntropy = "log-of-mean",
    beta_cross_entropy: float = 1.0,
) -> Step:
    """Compute MACER's objective from logits of the image, or of its adversarial point (AdvMacer).

    1/B sum_i -log z_hat_i[y_i] + lam sigma/(2B) sum_{i in hinge} (gamma - xi_i)

    Args:
        logits: Shape (B, M, K).
        y: Labels, shape (B,).
        sigma: Noise standard deviation, in pixels of [0, 1].
        lam: Weight of the radius term.
        gamma: Ceiling of the hinge, in noise standard deviations.
        beta: Inverse temperature of the radius term alone, as in MACER's code; the AdvMacer paper
            writes one z_hat.
        cross_entropy: ``log-of-mean``, as above; or ``mean-of-logs``, -1/(BM) sum_ik log
            softmax(f(x_i + d_ik))[y_i].
        beta_cross_entropy: Inverse temperature of the cross-entropy.
    """
    of_draws = mean_cross_entropy if cross_entropy == "mean-of-logs" else soft_cross_entropy
    classification = of_draws(logits, y, beta_cross_entropy)
    hinge, hinge_share = radius_hinge(logits, y, sigma, gamma, beta)
    robustness = lam * hinge
    return Step(
        classification + robustness, classification, robustness, accuracy(logits, y), hinge_share
    )


@validated
class Macer:
    """Cross-entropy of the soft smoothed classifier plus a hinge on its certified radius.

    A step takes the whole batch with ``draws`` copies of each image. lam is 0 for the first
    ``defer`` epochs.
    """

    draws: Count
    lam: NonNegative
    gamma: Positive
    beta: Positive
    defer: NonNegativeCount

    steps_per_batch = 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        logits = forward(model, x, training_noise(x, self.draws, sigma, rng))
        lam = self.lam if epoch >= self.defer else 0.0
        return macer_objective(logits, y, sigma=sigma, lam=lam, gamma=self.gamma, beta=self.beta)
