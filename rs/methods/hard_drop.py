"""Hard-drop: attacked noise, no hard images, images of medium difficulty more often.

Source: Sun et al. 2025.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from scipy.special import ndtri
from torch import Generator, Tensor, nn

from rs.errors import InputError
from rs.methods.base import Accuracies, SeveralDraws, Step, accuracy
from rs.params import Count, NonNegative, NonNegativeCount, validated
from rs.smoothing.attack import forward, noise_gradient, norms, per_input
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import mean_cross_entropy
from rs.statistics.radius import lower_bound

WEIGHT_DRAWS, WEIGHT_ALPHA, MIN_SHARE = 16, 0.1, 0.75
"""Draws of a weight, the alpha of its bound, and the share below which all weights are equal.

12 of 16 is the smallest count with a positive radius.
"""


@validated
class HardDrop(SeveralDraws):
    """Cross-entropy of copies whose noise is moved on its sphere until they are misclassified.

        1/(BM) sum_ik CE(f(x_i + d*_ik), y_i)

    For the first ``defer`` epochs d* is the noise itself, and images are shuffled. Then the images
    that fewer than ``threshold`` of ``discard_draws`` noisy copies get right are discarded for
    good. Epochs draw from the others with replacement, by weights that are renewed ``every`` so
    many epochs (0: equal ones). The weight of an image is the certified radius of
    :data:`WEIGHT_DRAWS` draws, as in the authors' code; the formula of the paper differs.
    """

    steps: NonNegativeCount
    step_size: NonNegative  # of the attack, in pixels of [0, 1]
    defer: NonNegativeCount
    threshold: Annotated[float, Field(ge=0, le=1)]
    discard_draws: Count
    every: NonNegativeCount

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = training_noise(x, self.draws, sigma, rng)
        steps = self.steps if epoch >= self.defer else 0
        noise = sphere_attack(model, x, y, noise, steps, self.step_size)
        logits = forward(model, x, noise)
        loss = mean_cross_entropy(logits, y)
        return Step(loss, loss, torch.zeros_like(loss), accuracy(logits, y))

    def image_weights(self, epoch: int, weights: Tensor, accuracies: Accuracies) -> Tensor | None:
        """See :meth:`rs.methods.base.WeightsImages.image_weights`; 0 discards an image."""
        if epoch < self.defer:
            return None
        if epoch == self.defer:
            shares = accuracies(torch.arange(len(weights)), self.discard_draws)
            weights = (shares >= self.threshold).double()
            if not weights.any():
                raise InputError(
                    f"threshold must leave an image to train on, got {self.threshold}; lower it"
                )
        if self.every and (epoch - self.defer) % self.every == 0:
            numbers = weights.nonzero().squeeze(1)
            renewed = weights_of_accuracies(accuracies(numbers, WEIGHT_DRAWS))
            weights = torch.zeros_like(weights).index_copy(0, numbers, renewed)
        return weights / weights.sum()


def weights_of_accuracies(accuracies: Tensor) -> Tensor:
    """Return weights of images, not normalized, from their shares of correct draws.

    >>> weights_of_accuracies(torch.tensor([0.0, 12 / 16, 14 / 16, 1.0]))
    tensor([0.1537, 0.1537, 0.5257, 1.1075], dtype=torch.float64)
    """
    counts = np.floor(WEIGHT_DRAWS * accuracies.double().clamp_min(MIN_SHARE).numpy())
    return torch.from_numpy(ndtri(lower_bound(counts, WEIGHT_DRAWS, WEIGHT_ALPHA)))


def sphere_attack(
    model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, steps: int, step_size: float
) -> Tensor:
    """Move each draw along its sphere, at most ``steps`` times, until its copy is misclassified.

        d <- d + s g / (||g|| + 1e-8),   d <- ||d_0|| d / (||d|| + 1e-8)

    The first misclassified iterate is kept, so a draw that is misclassified already stays. The last
    iterate is not evaluated. Nothing is clipped.

    Args:
        model: Images (N, C, H, W) -> logits (N, K); attacked in eval mode, its mode is restored.
        x: Images, shape (B, C, H, W).
        y: Labels, shape (B,).
        noise: The draws, shape (B, M, C, H, W).
        steps: T >= 0.
        step_size: s, in pixels of [0, 1].
    """
    draws = noise.shape[1]
    images = x.repeat_interleave(draws, 0)
    labels = y.repeat_interleave(draws)
    moved = noise.flatten(0, 1)
    noise_norm = norms(moved)
    attacked = torch.ones_like(labels, dtype=torch.bool)

    def objective(logits: Tensor) -> Tensor:
        nonlocal attacked
        attacked = attacked & (logits.argmax(dim=-1) == labels)
        return F.cross_entropy(logits, labels, reduction="sum") / draws

    with evaluating(model):
        for _ in range(steps):
            g = noise_gradient(model, images, moved, objective)
            ahead = moved + step_size * g / (norms(g) + 1e-8)
            ahead = noise_norm * ahead / (norms(ahead) + 1e-8)
            moved = torch.where(per_input(attacked, moved), ahead, moved)
    return moved.unflatten(0, noise.shape[:2])
