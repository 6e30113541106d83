"""Keyed random streams, and noise that depends on its key alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rs.runtime.streams import seed_sequence, stream

BLOCK = 100
"""Draws in a block of certification noise: the unit that is generated at once and never split by a batch."""


@dataclass(frozen=True)
class Shared:
    """The random numbers of a training step that several processes share, as one of them sees them.

    Every process draws the numbers of the whole step and keeps those of its own images, so an image meets the same
    noise however many processes there are.
    """

    generator: torch.Generator  # of the step, alike in all processes
    images: int  # in the step
    first: int  # number in the step of this process's first image

    def part(self, draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int]) -> Tensor:
        """Draw for all images, and return the numbers of as many as ``shape`` begins with."""
        return draw((self.images, *shape[1:]))[self.first : self.first + shape[0]]


Rng = torch.Generator | Shared
"""Where the random numbers of a training step come from."""


def normal(shape: Sequence[int], rng: Rng, like: Tensor) -> Tensor:
    """Draw N(0, 1), on the device and in the dtype of ``like``; the first number of the shape is that of images."""
    return _drawn(torch.randn, shape, rng, like)


def uniform(shape: Sequence[int], rng: Rng, like: Tensor) -> Tensor:
    """Draw U(0, 1) as :func:`normal` does."""
    return _drawn(torch.rand, shape, rng, like)


def _drawn(kind: Callable[..., Tensor], shape: Sequence[int], rng: Rng, like: Tensor) -> Tensor:
    if isinstance(rng, Shared):
        return rng.part(lambda whole: _drawn(kind, whole, rng.generator, like), shape)
    return kind(tuple(shape), generator=rng, device=like.device, dtype=like.dtype)


def draw(x: Tensor, draws: int, sigma: float, rng: Rng) -> Tensor:
    """Draw training noise: N(0, sigma^2) of shape (B, M, C, H, W) for images ``x`` (B, C, H, W)."""
    return sigma * normal((x.shape[0], draws, *x.shape[1:]), rng, x)


def noisy(x: Tensor, noise: Tensor) -> Tensor:
    """Add noise (B, M, C, H, W) to images (B, C, H, W); image-major, flattened to (B*M, C, H, W).

    Nothing is clipped: the certificate is about ``x + N(0, sigma^2 I)`` itself.
    """
    return (x.unsqueeze(1) + noise).flatten(0, 1)


def block(index: int, shape: torch.Size, sigma: float, seed: int, *key: int, device: torch.device | str) -> Tensor:
    """Block ``index`` of the certification noise of one image: :data:`BLOCK` draws of N(0, sigma^2 I).

    It depends only on ``(seed, *key, index)``: not on how many blocks are evaluated together, on the other images, or
    on the number of draws, of which fewer are a prefix of more. On a CPU the numbers are NumPy's, because torch's CPU
    generator keeps 32 bits of a seed: of the thousand blocks of an image two would be the same once in ten thousand
    images, and the draws of a certificate must be independent.

    Args:
        index: Number of the block, from 0.
        shape: Shape of the image, (C, H, W).
        sigma: Noise standard deviation, in pixels of [0, 1].
        seed, key: Name of the stream; by convention ``(seed, phase, image)``.
        device: Where the numbers are drawn.
    Returns:
        float32 noise, shape (BLOCK, C, H, W).
    """
    if torch.device(device).type == "cpu":
        rng = np.random.Generator(np.random.Philox(seed_sequence(seed, *key, index)))
        return sigma * torch.from_numpy(rng.standard_normal((BLOCK, *shape), dtype=np.float32))
    return sigma * torch.randn((BLOCK, *shape), generator=stream(seed, *key, index, device=device), device=device)
