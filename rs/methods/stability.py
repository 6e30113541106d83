"""Stability training (Li et al. 2019), in the version of Jeong & Shin's code (2020)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rs.methods.base import Step, accuracy
from rs.params import NonNegative, validated
from rs.smoothing.attack import forward
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import to_float32


@validated
class Stability:
    """Cross-entropy of the clean image, and of the noisy copy against the clean image's prediction.

        1/B sum_i [ CE(f(x_i), y_i) + lam H(softmax f(x_i), softmax f(x_i + d_i)) ]
        H(a, b) = -sum_c a_c log b_c

    The label is used for the clean image only; the soft target carries gradient.
    """

    lam: NonNegative

    steps_per_batch = 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        clean = to_float32(model(x))
        logits = forward(model, x, training_noise(x, 1, sigma, rng))
        cross_entropy = F.cross_entropy(clean, y)
        log_noisy = F.log_softmax(to_float32(logits[:, 0]), dim=-1)
        robustness = -self.lam * (F.softmax(clean, dim=-1) * log_noisy).sum(dim=-1).mean()
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y))
