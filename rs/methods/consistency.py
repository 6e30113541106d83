"""Consistency regularization (Jeong & Shin 2020)."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from rs.methods.base import ClippedAttack, SeveralDraws, Step, accuracy, warmed_up
from rs.params import NonNegative, NonNegativeCount, validated
from rs.smoothing.attack import forward, projected_path_attack
from rs.smoothing.noise import training_noise
from rs.smoothing.soft import entropy, kl_divergence, mean_cross_entropy, soft_probabilities


@validated
class Consistency(SeveralDraws, ClippedAttack):
    """Cross-entropy of noisy copies, divergence from their mean prediction, and its entropy.

        1/(BM) sum_ik CE(f(x_i + d_ik), y_i)
          + 1/B sum_i [ lam/M sum_k KL(a_i || softmax f(x_i + d_ik)) + eta H(a_i) ]

    with a_i the mean prediction; nothing is detached. ``steps`` > 0 moves x_i to an adversarial
    point first, by Jeong's variant of the attack with the same draws ("SmoothAdv + Consistency").
    """

    lam: NonNegative
    eta: NonNegative
    steps: NonNegativeCount
    epsilon: NonNegative
    warmup: NonNegativeCount

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = training_noise(x, self.draws, sigma, rng)
        epsilon = warmed_up(self.epsilon, epoch, self.warmup)
        x_hat = projected_path_attack(model, x, y, noise, self.steps, epsilon, self.bounds)
        logits = forward(model, x_hat, noise)
        mean = soft_probabilities(logits)
        cross_entropy = mean_cross_entropy(logits, y)
        divergence = kl_divergence(mean.unsqueeze(1), logits).mean()
        robustness = self.lam * divergence + self.eta * entropy(mean).mean()
        return Step(cross_entropy + robustness, cross_entropy, robustness, accuracy(logits, y))
