"""Training of a router of noise levels (Dual RS: Sun, Mao & Vechev 2026)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rs.errors import InputError
from rs.methods.base import SeveralDraws, Step
from rs.params import NonNegative, Positive, validated
from rs.smoothing.attack import forward
from rs.smoothing.noise import draw
from rs.smoothing.soft import entropy, kl_divergence, soft_probabilities, to_float32


@validated
class Router(SeveralDraws):
    """Weighted cross-entropy with soft targets of noise levels, and consistency of the noisy copies.

        1/n sum_i w_i [ 1/M sum_k CE(t_i, f(x_i + d_ik))
                        + max_j R_ij (lam/M sum_k KL(a_i || softmax f(x_i + d_ik)) + eta H(a_i)) ]

    over the n images of the batch that some level certifies. R_ij is the radius of image i at level j, 0 where the
    expert is wrong, t_i = softmax(R_i / temperature), and a_i the mean prediction. w_i = 1 / q_j, where q_j is the
    share of such images whose largest radius is at level j.

    Targets, weights, consistency terms, lam = 40, eta = 0.5 and two draws are the source's, by reading notes; its code
    was not read. Not confirmed: that wrong experts count as radius 0, and that the source's "strong" factor of the
    consistency terms is the largest radius. The temperature is ours; the source has 1.
    """

    lam: NonNegative
    eta: NonNegative
    temperature: Positive

    needs_targets = True

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
        """See :meth:`rs.methods.base.Method.loss`; ``y`` is unused."""
        if targets is None:
            raise InputError("router must have targets (B, L + 1), got none; give the loss targets=...")
        radii, weights = targets[:, :-1], targets[:, -1]  # rs.training.image_votes.router_targets
        logits = to_float32(forward(model, x, draw(x, self.draws, sigma, rng)))
        soft, mean = F.softmax(radii / self.temperature, dim=-1).unsqueeze(1), soft_probabilities(logits)
        divergence = kl_divergence(mean.unsqueeze(1), logits).mean(dim=1)
        count, losses = (weights > 0).sum().clamp_min(1), -(soft * F.log_softmax(logits, dim=-1)).sum(dim=-1)
        cross_entropy = (weights * losses.mean(dim=1)).sum() / count
        consistency = radii.amax(dim=1) * (self.lam * divergence + self.eta * entropy(mean))
        robustness = (weights * consistency).sum() / count
        is_best = (logits.detach().argmax(dim=-1) == radii.argmax(dim=1, keepdim=True)).float().mean(dim=1)
        accuracy = (is_best * (weights > 0)).sum() / count
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy)
