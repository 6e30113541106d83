"""Gradients of the smoothed classifier, for attacks on it: by backpropagation and from votes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rs.errors import InputError
from rs.params import Bounds
from rs.runtime.streams import Stream
from rs.smoothing.inputs import (
    check_key,
    check_range,
    evaluating,
    is_whole,
    logits_of,
    warn_of_probabilities,
)
from rs.smoothing.noise import add_noise, certification_noise
from rs.smoothing.soft import LOG_CLAMP, soft_probabilities


class LogProbabilities(nn.Module):
    """Images (N, C, H, W) -> log of the mean class probabilities under noise, (N, K).

        log z_hat(x),   z_hat(x) = 1/M sum_j softmax(f(x + e_j))        (Salman et al. 2019)

    It is differentiable, and one fixed function: every image and every call has the same noise,
    which the key names. The noise is Gaussian, also for a classifier with noise on the grid.

    Args:
        network: Images -> logits, evaluated in eval mode.
        sigma: Noise standard deviation, in pixels of [0, 1].
        samples: M, the number of noisy copies of each image.
        seed, key: Key of the noise.
        bounds: The least and the largest value of the images of the first call; those of later
            calls are not checked, because an attack moves them.
    Raises:
        InputError: If ``samples`` or ``seed`` is not what it must be.
    """

    def __init__(
        self,
        network: nn.Module,
        sigma: float,
        samples: int,
        seed: int = 0,
        *key: int,
        bounds: Bounds = None,
    ) -> None:
        super().__init__()
        if not is_whole(samples, 1):
            raise InputError(f"samples must be a whole number of at least 1, got {samples!r}")
        check_key(seed=seed)
        self.network = getattr(network, "surrogate", network)  # of an ensemble
        self.sigma = sigma
        self.samples = samples
        self.key = (seed, Stream.ATTACK, *key)
        self.bounds = bounds
        self._is_checked = False
        self.training = False  # it is a fixed function, whatever the network's mode

    def forward(self, x: Tensor) -> Tensor:
        """Compute the log probabilities in float32, clamped at 1e-20.

        Raises:
            InputError: If images of the first call are not within the bounds.
        Warns:
            InputWarning: If the network seems to return probabilities in this call.
        """
        if not self._is_checked:
            check_range(x, self.bounds, "images")
        x = x.float()
        draws = range(self.samples)
        noise = certification_noise(draws, x.shape[1:], self.sigma, *self.key, device=x.device)
        with evaluating(self.network):
            logits = logits_of(self.network(add_noise(x, noise)))
        if not self._is_checked:
            warn_of_probabilities(logits)
            self._is_checked = True
        probabilities = soft_probabilities(logits.unflatten(0, (len(x), self.samples)))
        return probabilities.clamp_min(LOG_CLAMP).log()


def margin(scores: Tensor, classes: Tensor) -> Tensor:
    """Return the lead of the best other class over the given ones: (N, K), (N,) -> (N,)."""
    label = classes[:, None]
    others = scores.scatter(1, label, -torch.inf)
    return others.amax(dim=1) - scores.gather(1, label)[:, 0]


def vote_gradient(copies: Tensor, votes: Tensor, x: Tensor, rival: int, label: int) -> Tensor:
    """Return the direction in which votes move from a class to a rival, from votes alone.

    By Stein's identity the gradient of E[v(x + e)] is E[v(x + e) e] / sigma^2; v is 1 for the
    rival, -1 for the class and 0 for others, less its mean. The factor 1 / sigma^2 is left out.

    Args:
        copies: Noisy copies, shape (M, C, H, W).
        votes: Their classes, shape (M,).
        x: The image, shape (C, H, W).
        rival, label: The two classes.
    """
    signs = (votes == rival).to(x.dtype) - (votes == label).to(x.dtype)
    return torch.tensordot(signs - signs.mean(), copies - x, dims=1)
