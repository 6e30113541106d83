"""SmoothMix: mix-up toward adversarial points with a uniform target (Jeong et al. 2021)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from rs.methods.base import ClippedAttack, SeveralDraws, Step, accuracy, warmed_up
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.smoothing.attack import clip, forward, mixing_path, per_input, project
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import kl_divergence, mean_cross_entropy, soft_probabilities


@validated
class SmoothMix(SeveralDraws, ClippedAttack):
    """Cross-entropy on the clean side, and a mix with the adversarial side, fading to uniform.

        L = 1/(BM) sum_ik CE(f(x_c + d_ik), y_i)
          + eta w_e 1/(BM) sum_ik 1[argmax a_i = y_i] KL(t_i || softmax f(x_mix + d_ik))
        x_mix = (1 - l_i) x_c + l_i x_adv,   t_i = (1 - l_i) a_i + l_i / K,   l_i ~ U(0, 1/2)

    with a_i the mean prediction at x_c, not detached, and w_e the warm-up. x_adv is the end of an
    unbounded attack path; x_c is its start (``one_step: false``) or its first iterate, pulled into
    the ball of radius w_e alpha (``one_step: true``, the one-step adversary).
    """

    steps: Count
    step_size: Positive  # alpha, in pixels of [0, 1]
    eta: NonNegative
    one_step: bool
    warmup: NonNegativeCount
    mix_limit: Annotated[float, Field(gt=0, le=1)]  # l_i ~ U(0, mix_limit)

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = training_noise(x, self.draws, sigma, rng)
        ramp = warmed_up(1.0, epoch, self.warmup)
        path = mixing_path(model, x, y, noise, self.steps, self.step_size, self.bounds)
        clean_side = x
        if self.one_step:
            start = project(path[1] - x, ramp * self.step_size)
            clean_side = clip(x + start, self.bounds)
        logits = forward(model, clean_side, noise)
        cross_entropy = mean_cross_entropy(logits, y)
        share = self.mix_limit * torch.rand(len(x), generator=rng, device=x.device, dtype=x.dtype)
        mixed = torch.lerp(clean_side, path[-1], per_input(share, x))
        mean = soft_probabilities(logits)
        share = share.to(mean.dtype).unsqueeze(1)
        target = (1 - share) * mean + share / mean.shape[-1]
        right = mean.argmax(dim=-1) == y
        divergence = kl_divergence(target.unsqueeze(1), forward(model, mixed, noise))
        robustness = self.eta * ramp * (right.unsqueeze(1) * divergence).mean()
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y))
