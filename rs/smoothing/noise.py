"""Keyed random streams, and noise that depends on its key alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

BLOCK = 100
"""Draws in a block of certification noise: the unit that is generated at once and never split by a batch."""


class Stream(IntEnum):
    """What a random stream is for; the first word of its key, so that no two purposes share numbers."""

    INITIAL = 0  # initial weights
    ORDER = 1  # order of the training images, keyed by epoch
    AUGMENT = 2  # crops and flips, keyed by epoch and step
    STEP = 3  # noise and attack of a training step, keyed by epoch, step and chunk
    SELECT = 4  # the n0 draws that select the class, keyed by image and block
    ESTIMATE = 5  # the n draws that bound its probability, keyed by image and block
    PREDICT = 6  # the draws of PREDICT, keyed by image and block
    WEIGHTS = 7  # fitting ensemble weights


def stream(seed: int, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the generator named by ``(seed, *key)``.

    Streams of different keys are independent: image 17 gets the same noise in any order and any subset. The key
    goes into ``spawn_key``, because ``SeedSequence([0])`` and ``SeedSequence([0, 0])`` are one stream.

    Args:
        seed: Non-negative integer, the user's.
        key: Integers in [0, 2^32), ours; by convention a :class:`Stream` first. A larger one would be two words.
        device: Where the generator draws; CPU and CUDA generators give different numbers for one key. A CPU generator
            keeps 32 bits of the word: good for training, too few for certificates (see :func:`block`).

    >>> a, b = stream(0, 17), stream(0, 17)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    True
    """
    word = _sequence(seed, *key).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(word))


def _sequence(seed: int, *key: int) -> np.random.SeedSequence:
    if not all(0 <= word < 2**32 for word in key):
        raise ValueError(f"words of a key must lie in [0, 2^32), got {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


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
        rng = np.random.Generator(np.random.Philox(_sequence(seed, *key, index)))
        return sigma * torch.from_numpy(rng.standard_normal((BLOCK, *shape), dtype=np.float32))
    return sigma * torch.randn((BLOCK, *shape), generator=stream(seed, *key, index, device=device), device=device)
