"""CAT-RS: confidence-aware training (Jeong, Kim & Shin 2023)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rs.errors import InputError
from rs.methods.base import SeveralDraws, Step, TargetSettings, accuracy
from rs.params import NonNegative, NonNegativeCount, validated
from rs.smoothing.attack import forward, noise_gradient, norms, project
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import kl_divergence, to_float32


@validated
class CatRs(SeveralDraws):
    """The K_i easiest of M noisy copies, and the worst attacked copy of the images whose copies are
    all used.

        1/(BM) sum_i (the K_i smallest of CE(f(x_i + d_ik), y_i))
          + lam 1/B sum_i 1[K_i = M] max_k KL(pi_i || softmax f(x_i + d*_ik))

    with K_i ~ Binomial(M, p_i), 1 at least, and p_i the share of the copies that are classified
    correctly (``confidence: votes``), or pi_i[y_i] (``targets``, the authors' ImageNet). The
    targets pi_i are the votes of a Gaussian network at sigma 0.25, whatever the noise level of this
    training. The authors take them from one random crop of each image, here they are those of the
    image itself. Each step is two passes in train mode, and the attack is between them.
    """

    steps: NonNegativeCount
    epsilon: NonNegative
    lam: NonNegative
    confidence: Literal["votes", "targets"]
    targets: TargetSettings

    def loss(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        sigma: float,
        rng: Generator,
        epoch: int,
        targets: Tensor | None = None,
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        if targets is None:
            raise InputError(
                "cat-rs must have the targets of its images, (B, K), got none; give the loss "
                "targets=..."
            )
        noise = training_noise(x, self.draws, sigma, rng)
        logits = forward(model, x, noise)
        attacked = forward(model, x, kl_attack(model, x, noise, targets, self.steps, self.epsilon))
        if self.confidence == "votes":
            is_right = logits.detach().argmax(dim=-1) == y.unsqueeze(1)
            confidence = is_right.float().mean(dim=1, keepdim=True)
        else:
            confidence = targets.gather(1, y.unsqueeze(1))
        uniform = torch.rand(noise.shape[:2], generator=rng, device=x.device)
        used = (uniform < confidence).sum(dim=1).clamp_min(1)  # K_i
        cross_entropy = easiest_cross_entropy(logits, y, used)
        worst = kl_divergence(targets.unsqueeze(1), attacked).max(dim=1).values
        robustness = self.lam * torch.where(used == self.draws, worst, 0.0).mean()
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y))


def easiest_cross_entropy(logits: Tensor, y: Tensor, used: Tensor) -> Tensor:
    """Return 1/(BM) sum_i (the K_i smallest of the M cross-entropies): (B, M, K), (B,) and K_i (B,)
    -> scalar.
    """
    draws = logits.shape[1]
    losses = F.cross_entropy(
        to_float32(logits).flatten(0, 1), y.repeat_interleave(draws), reduction="none"
    )
    ascending = losses.unflatten(0, (-1, draws)).sort(dim=1).values
    is_used = torch.arange(draws, device=logits.device) < used.unsqueeze(1)
    return torch.where(is_used, ascending, 0.0).mean()


def kl_attack(
    model: nn.Module, x: Tensor, noise: Tensor, targets: Tensor, steps: int, epsilon: float
) -> Tensor:
    """Move each draw away from the targets, keeping its mean and its root mean square.

        g = grad KL(pi || softmax f(x + d)),
        d <- d + 2 epsilon / T g / (||g|| + 1e-8),   into the ball around d_0,
        d <- mean(d_0) + (d - mean(d)) ||d_0|| / ||d||

    The last line restores the mean and the root mean square; its result may leave the ball by a
    little. Nothing is clipped.

    Args:
        model: Images (N, C, H, W) -> logits (N, K); attacked in eval mode, its mode is restored.
        x: Images, shape (B, C, H, W).
        noise: The draws d_0, shape (B, M, C, H, W).
        targets: pi, shape (B, K).
        steps: T >= 0.
        epsilon: Radius of the ball, in pixels of [0, 1].
    """
    draws = noise.shape[1]
    images = x.repeat_interleave(draws, 0)
    repeated = targets.repeat_interleave(draws, 0)
    start = noise.flatten(0, 1)
    mean = _mean(start)
    length = norms(start)
    moved = start
    with evaluating(model):
        for _ in range(steps):
            g = noise_gradient(
                model, images, moved, lambda logits: kl_divergence(repeated, logits).sum() / draws
            )
            moved = start + project(
                moved + 2 * epsilon / steps * g / (norms(g) + 1e-8) - start, epsilon
            )
            moved = mean + (moved - _mean(moved)) * length / norms(moved)
    return moved.unflatten(0, noise.shape[:2])


def _mean(values: Tensor) -> Tensor:
    """Return the mean of the entries of each input, shape (N, 1, ...)."""
    axes = tuple(range(1, values.ndim))
    return values.mean(dim=axes, keepdim=True)
