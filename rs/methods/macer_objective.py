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
    """MACER's objective on logits (B, M, K), wherever the images came from; AdvMacer shares it.

    1/B sum_i -log z_hat_i[y_i] + lam sigma/(2B) sum_{i in hinge} (gamma - xi_i)

    ``beta`` belongs to the radius term alone, as in MACER's code; the AdvMacer paper writes one z_hat for both.
    """
    cross_entropy = soft_cross_entropy(logits, y, beta_cross_entropy)
    robustness = lam * radius_hinge(logits, y, sigma, gamma, beta)
    with torch.no_grad():
        hinge_share = top_two(logits, y, gamma, beta)[2].float().mean()
    return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y), hinge_share)
