"""AdvMacer: maximize the certified radius at the adversarial point (Liu, Hoang, Nguyen & Weng)."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from rs.methods.base import ClippedAttack, Step, warmed_up, warmed_up_steps
from rs.methods.macer import CrossEntropy, macer_objective
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.smoothing.attack import Tempered, forward, pgd
from rs.smoothing.noise import training_noise


@validated
class AdvMacer(ClippedAttack):
    """MACER's objective at SmoothAdv's adversarial point x_hat (algorithm 1 of the paper).

        1/B sum_i -log z_hat(x_hat_i)[y_i] + lam sigma/(2B) sum_{i in hinge} (gamma - xi(x_hat_i))

    with the draws of the attack reused: the first ``attack_draws`` of them, or all if there are
    fewer. An image costs 2 ``steps`` min(``attack_draws``, ``draws``) + 3 ``draws`` forward passes.
    Over the first ``steps_warmup`` epochs the number of attack steps rises from 0 to ``steps``,
    which saves most of the attack's cost. ``steps`` = 0 makes it MACER. ``cross_entropy`` =
    ``mean-of-logs`` makes the first term SmoothAdv's, -1/(BM) sum_ik log softmax(f(x_hat_i +
    d_ik))[y_i]; then lam = 0 makes it SmoothAdv. Where the paper is silent or ambiguous, the
    alternatives are parameters: ``beta_cross_entropy`` and ``beta_attack`` (1; the paper writes one
    F^beta), ``fresh_draws`` (draw anew for the loss), ``chunked`` (a step per chunk of ``batch //
    draws`` images, or one step on the whole batch), ``defer`` (epochs with lam = 0).
    """

    draws: Count
    attack_draws: Count
    steps: NonNegativeCount
    steps_warmup: NonNegativeCount
    epsilon: NonNegative
    warmup: NonNegativeCount
    lam: NonNegative
    gamma: Positive
    beta: Positive
    cross_entropy: CrossEntropy
    beta_cross_entropy: Positive
    beta_attack: Positive
    fresh_draws: bool
    chunked: bool
    defer: NonNegativeCount

    @property
    def steps_per_batch(self) -> int:
        """A chunked step takes ``batch // draws`` images; otherwise a step takes ``batch``."""
        return self.draws if self.chunked else 1

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """See :meth:`rs.methods.base.Method.loss`."""
        noise = training_noise(x, self.draws, sigma, rng)
        epsilon = warmed_up(self.epsilon, epoch, self.warmup)
        steps = warmed_up_steps(self.steps, epoch, self.steps_warmup)
        attacked = noise[:, : self.attack_draws]
        tempered = Tempered(model, self.beta_attack)
        x_hat = pgd(tempered, x, y, attacked, steps, epsilon, rng=rng, bounds=self.bounds)
        if self.fresh_draws:
            noise = training_noise(x, self.draws, sigma, rng)
        return macer_objective(
            forward(model, x_hat, noise),
            y,
            sigma=sigma,
            lam=self.lam if epoch >= self.defer else 0.0,
            gamma=self.gamma,
            beta=self.beta,
            cross_entropy=self.cross_entropy,
            beta_cross_entropy=self.beta_cross_entropy,
        )
