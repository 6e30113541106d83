"""Noise of training and of certification; that of certification depends on its key alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rs.runtime.streams import seed_sequence, stream

BLOCK = 100
"""Draws in a block of certification noise: the unit that is generated at once and never split by a batch."""


def draw(x: Tensor, draws: int, sigma: float, rng: torch.Generator) -> Tensor:
    """Draw training noise N(0, sigma^2), in the dtype and on the device of the images.

    Args:
        x: Images, shape (B, C, H, W).
        draws: M >= 1, copies of each image.
        sigma: Noise standard deviation, in pixels of [0, 1].
        rng: On the device of ``x``.
    Returns:
        Noise, shape (B, M, C, H, W).
    """
    shape = (x.shape[0], draws, *x.shape[1:])
    return sigma * torch.randn(shape, generator=rng, device=x.device, dtype=x.dtype)


def noisy(x: Tensor, noise: Tensor) -> Tensor:
    """Add noise (B, M, C, H, W) to images (B, C, H, W); image-major, flattened to (B*M, C, H, W).

    Nothing is clipped: the certificate is about ``x + N(0, sigma^2 I)`` itself.
    """
    return (x.unsqueeze(1) + noise).flatten(0, 1)


def block(index: int, shape: torch.Size, sigma: float, seed: int, *key: int, device: torch.device | str) -> Tensor:
    """Draw block ``index`` of the certification noise of one image: :data:`BLOCK` draws of N(0, sigma^2 I).

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
    size, generator = (BLOCK, *shape), stream(seed, *key, index, device=device)
    return sigma * torch.randn(size, generator=generator, device=device, dtype=torch.float32)
