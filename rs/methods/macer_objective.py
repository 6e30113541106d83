"""The objective that MACER and AdvMacer share (Zhai et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from rs.methods.base import Step, accuracy
from rs.smoothing.soft import radius_hinge, soft_cross_entropy, top_two


def macer_objective(
    logits: Tensor,
    y: Tensor,
    *,
    sigma: float,
    lam: float,
    gamma: float,
    beta: float,
    beta_cross_entropy: float = 1.0,
) -> Step:
    """Compute MACER's objective from logits (B, M, K) of the image, or of its adversarial point (AdvMacer).

    1/B sum_i -log z_hat_i[y_i] + lam sigma/(2B) sum_{i in hinge} (gamma - xi_i)

    Args:
        logits: Shape (B, M, K).
        y: Labels, shape (B,).
        sigma: Noise standard deviation, in pixels of [0, 1].
        lam: Weight of the radius term.
        gamma: Ceiling of the hinge, in noise standard deviations.
        beta: Inverse temperature of the radius term alone, as in MACER's code; the AdvMacer paper writes one z_hat.
        beta_cross_entropy: Inverse temperature of the cross-entropy.
    """
    cross_entropy = soft_cross_entropy(logits, y, beta_cross_entropy)
    robustness = lam * radius_hinge(logits, y, sigma, gamma, beta)
    with torch.no_grad():
        hinge_share = top_two(logits, y, gamma, beta)[2].float().mean()
    return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y), hinge_share)
