"""The soft smoothed classifier and the losses on it.

Logits have shape (B, M, K): B images, M noise draws, K classes. The soft smoothed prediction at
inverse temperature beta is the mean over draws of ``softmax(beta * logits)``: the average comes
after the softmax, the temperature inside it. Everything runs in float32 or better, whatever the
dtype of the logits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rs.errors import InputError

LOG_GUARD = 1e-10
"""Added to p_y before its logarithm in MACER's cross-entropy (Zhai et al. 2020, public code)."""

LOG_CLAMP = 1e-20
"""Smallest p under the logarithm in attacks, entropies and divergences (Salman et al. 2019; Jeong &
Shin 2020).
"""


def to_float32(logits: Tensor) -> Tensor:
    """Return the logits in float32, or in float64 if they come in it."""
    return logits if logits.dtype == torch.float64 else logits.float()


def soft_probabilities(logits: Tensor, beta: float = 1.0) -> Tensor:
    """Compute the soft smoothed prediction z_hat (B, K) of logits (B, M, K).

    It is the mean over samples of softmax(beta * logits).
    """
    return F.softmax(beta * to_float32(logits), dim=-1).mean(dim=1)


def soft_cross_entropy(logits: Tensor, y: Tensor, beta: float = 1.0) -> Tensor:
    """Compute the cross-entropy of the soft classifier, the logarithm outside the mean.

        -1/B sum_i log(z_hat_i[y_i] + 1e-10)                                   (Zhai et al. 2020)

    Args:
        logits: Shape (B, M, K).
        y: Labels, shape (B,).
        beta: Inverse temperature; 1 in MACER's code, whatever the temperature of its radius term.
    Returns:
        A scalar: the mean over images.
    """
    p = soft_probabilities(logits, beta).gather(1, y.unsqueeze(1)).squeeze(1)
    return -torch.log(p + LOG_GUARD).mean()


def mean_cross_entropy(logits: Tensor, y: Tensor, beta: float = 1.0) -> Tensor:
    """Compute the mean cross-entropy of samples, the logarithm inside the mean.

    -1/(BM) sum_ik log softmax(beta f(x_i + d_ik))[y_i]
    """
    draws = logits.shape[1]
    return F.cross_entropy(beta * to_float32(logits).flatten(0, 1), y.repeat_interleave(draws))


def radius_hinge(
    logits: Tensor, y: Tensor, sigma: float, gamma: float, beta: float
) -> tuple[Tensor, Tensor]:
    """Compute MACER's robustness loss: a hinge on the soft certified radius.

        sigma/(2B) sum_{i active} (gamma - xi_i),   xi = Phi^-1(q1) - Phi^-1(q2)

    An image is in the hinge (is *active*) if its soft prediction is right and its margin xi is
    finite and at most gamma (Zhai et al. 2020).

    The hinge selects *before* it evaluates Phi^-1 with gradients: outside the hinge the derivative
    of Phi^-1 may be infinite, and a mask applied afterward would make NaN of it (0 * inf).

    Args:
        logits: Shape (B, M, K).
        y: Labels, shape (B,).
        sigma: Noise standard deviation, in pixels of [0, 1].
        gamma: Ceiling of the hinge, in noise standard deviations.
        beta: Inverse temperature of the soft prediction in this term.
    Returns:
        A scalar, divided by the number of images (not of active ones); 0 with zero gradient if none
        is active. And the share of images that are active.
    """
    values, classes = soft_probabilities(logits, beta).topk(2, dim=-1)
    q1 = values[:, 0]
    q2 = values[:, 1]
    with torch.no_grad():
        xi = torch.special.ndtri(q1) - torch.special.ndtri(q2)
        active = (classes[:, 0] == y) & torch.isfinite(xi) & (xi <= gamma)
    upper = torch.special.ndtri(torch.where(active, q1, 0.75))
    lower = torch.special.ndtri(torch.where(active, q2, 0.25))
    loss = sigma / 2 * torch.where(active, gamma - (upper - lower), 0.0).sum() / len(y)
    return loss, active.float().mean()


def entropy(p: Tensor) -> Tensor:
    """Compute the entropy -sum_c p_c log max(p_c, 1e-20) of the last axis; (..., K) -> (...)."""
    return -(p * p.clamp_min(LOG_CLAMP).log()).sum(dim=-1)


def kl_divergence(p: Tensor, logits: Tensor) -> Tensor:
    """Compute KL(p || softmax(logits)) over the last axis; (..., K) -> (...).

    Gradients flow through both. Written out because torch's own has NaN gradients where a target
    that carries gradient is exactly 0.
    """
    log_p = p.clamp_min(LOG_CLAMP).log()
    log_q = F.log_softmax(to_float32(logits), dim=-1)
    return (p * (log_p - log_q)).sum(dim=-1)


def gradient_of(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of a function of a tensor, such as images, and the gradient of their sum.

    The caller may be in torch's no-grad or inference mode.

    Raises:
        InputError: If no gradient reaches the tensor.
    """
    with torch.inference_mode(False), torch.enable_grad():
        point = x.detach().clone().requires_grad_()
        values = function(point)
        gradient = None
        if values.requires_grad:
            (gradient,) = torch.autograd.grad(values.sum(), point, allow_unused=True)
        if gradient is None:
            raise InputError(
                "base must be differentiable for a gradient, but its logits carry none; give the "
                "nn.Module itself, without torch.no_grad, and the engine plain"
            )
        return values.detach(), gradient
