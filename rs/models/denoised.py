"""Denoised smoothing: a denoiser before a frozen classifier (Salman et al. 2020)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from rs.errors import InputError
from rs.params import check_sigma, validated
from rs.runtime.streams import seeded

Denoiser = Callable[[Tensor, float], Tensor]
"""From noisy images (N, C, H, W), not clipped, and the std of their noise to denoised images."""

DENOISER_METHODS = ("denoiser-mse", "denoiser-stability")
"""Training methods that train only a :class:`DnCNN` before the classifier."""


class Denoised(nn.Module):
    """A denoiser before a classifier, f(x) = network(denoise(x, sigma)) (arXiv:2003.01908).

    It is a base classifier like any other: smooth and certify it with noise of this ``sigma``.

    Args:
        network: Images (N, C, H, W) -> logits (N, K); any normalization is inside it. Without
            parameters to train it stays in eval mode.
        denoise: A function or module of (images, sigma), such as a denoiser of deepinv or
            :class:`DiffusionDenoiser`.
        sigma: Standard deviation of the noise that it removes, in pixels of [0, 1].
    Raises:
        InputError: As :func:`rs.params.check_sigma`.
    """

    def __init__(self, network: nn.Module, denoise: Denoiser, sigma: float) -> None:
        super().__init__()
        check_sigma(sigma)
        self.network, self.denoise, self.sigma = network, denoise, sigma

    def train(self, mode: bool = True) -> Denoised:
        """Set the mode of the denoiser, and of the classifier unless it is frozen."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            self.network.eval()
        return self

    def forward(self, x: Tensor) -> Any:
        """Return the classifier's logits of the denoised images."""
        return self.network(self.denoise(x, self.sigma))


def check_denoisers(module: nn.Module, sigma: float) -> None:
    """Check that each :class:`Denoised` in a classifier removes the noise that is added.

    Raises:
        InputError: If one is made for another ``sigma``: its certificates would hold, and be poor.
    """
    for part in module.modules():
        if isinstance(part, Denoised) and part.sigma != sigma:
            raise InputError(
                f"a denoiser must remove the noise that is added, of sigma {sigma:g}, but it is "
                f"made for sigma {part.sigma:g}; make it for {sigma:g}, or smooth with its sigma"
            )


@validated
class DenoiserSize:
    """Size of a :class:`DnCNN`; hyperparameters of the methods that train one."""

    depth: Annotated[int, Field(ge=2, le=100)]  # convolutions
    width: Annotated[int, Field(ge=1, le=512)]  # channels of each


class DnCNN(nn.Module):
    """Convolutional denoiser for one noise level, D(x) = x - residual(x) (arXiv:1608.03981).

    Denoised smoothing takes 17 convolutions of 64 channels, 558,400 parameters for three colors.
    The weights are orthogonal and the last ones zero, so it begins as the identity.

    Args:
        channels: Channels of the images.
        depth: Number of convolutions.
        width: Channels of each convolution.
    """

    def __init__(self, channels: int, depth: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width, eps=1e-4),
                nn.ReLU(),
            ]
        last = nn.Conv2d(width, channels, 3, padding=1, bias=False)
        self.residual = nn.Sequential(*layers, last)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(last.weight)

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        """Denoise images (N, C, H, W), whose noise must be that of the training, not ``sigma``."""
        return x - self.residual(x)


def with_denoiser(
    network: nn.Module, channels: int, size: DenoiserSize, sigma: float, seed: int | None
) -> Denoised:
    """Return a classifier, frozen, with an untrained denoiser before it.

    Args:
        network: The classifier; its parameters become constants.
        channels: Channels of the images.
        size: Size of the denoiser.
        sigma: Noise standard deviation, in pixels of [0, 1].
        seed: Of the denoiser's weights; ``None`` uses torch's global generator.
    """
    with seeded(seed):
        return Denoised(
            network.requires_grad_(False), DnCNN(channels, size.depth, size.width), sigma
        )


class DiffusionDenoiser(nn.Module):
    """Denoising in one step of a diffusion model (Carlini et al. 2023, arXiv:2206.10550).

    With a_t the cumulative product of 1 - beta, images u = 2x - 1 in [-1, 1] and a network that
    predicts noise,

        u_t = sqrt(a_t) u,    x_0 = clip((u_t - sqrt(1 - a_t) network(u_t, t)) / sqrt(a_t), -1, 1),

    at the first step t >= 1 whose noise sqrt((1 - a_t) / a_t) is at least 2 sigma: noise of std
    sigma on [0, 1] has std 2 sigma on [-1, 1]. That step removes slightly more noise than there is,
    which costs accuracy only: a certificate holds for any denoiser.

    Args:
        network: (images (N, C, H, W), steps (N,)) -> noise, or an output with the attribute
            ``sample``, as a ``UNet2DModel`` of diffusers returns; of 2C channels, the last C (a
            variance) are ignored.
        alphas_cumprod: a_t for t = 0, 1, ..., falling, as a scheduler of diffusers has it.
    Raises:
        InputError: If the values of a_t do not fall, or lie outside (0, 1].
    """

    def __init__(self, network: nn.Module, alphas_cumprod: Iterable[float]) -> None:
        super().__init__()
        self.network = network
        self.alphas = [float(value) for value in alphas_cumprod]
        falls = all(later < earlier for earlier, later in pairwise(self.alphas))
        if not (len(self.alphas) > 1 and falls and self.alphas[0] <= 1 and self.alphas[-1] > 0):
            raise InputError(
                "alphas_cumprod must hold two values or more that fall from at most 1 to above 0, "
                f"got {len(self.alphas)} values; give scheduler.alphas_cumprod"
            )
        self.levels = [math.sqrt((1 - value) / value) / 2 for value in self.alphas]

    def step(self, sigma: float) -> int:
        """Return the first step, 1 or later, whose noise is at least ``sigma`` in [0, 1].

        Raises:
            InputError: If the noise of every step is smaller.
        """
        step = max(1, bisect_left(self.levels, sigma))
        if step == len(self.levels):
            raise InputError(
                f"sigma must be at most {self.levels[-1]:.4g}, the noise of the last step, got "
                f"{sigma}"
            )
        return step

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        """Denoise images: noisy (N, C, H, W), not clipped -> (N, C, H, W) in [0, 1]."""
        step = self.step(sigma)
        signal = math.sqrt(self.alphas[step])
        noise = math.sqrt(1 - self.alphas[step])
        u = signal * (2 * x - 1)
        output = self.network(u, torch.full((len(x),), step, device=x.device))
        predicted = getattr(output, "sample", output)[:, : x.shape[1]]
        return (((u - noise * predicted) / signal).clamp(-1, 1) + 1) / 2
