"""Noise of training, calibration, checks and certificates: drawn here alone.

Noise of certificates depends on its key alone. It is Gaussian in float32, or on the grid of 8-bit
pixels, with which the theorem holds in floating-point arithmetic as it stands. A sum x + eps of
floating-point numbers is rounded, in a way that a network can tell x by, so that classifiers exist
whose certificates are false (Voracek & Hein, "Sound Randomized Smoothing in Floating-Point
Arithmetic", ICLR 2023). On the grid the base classifier is h(z) = f(round(z)) for a network f,
round(z) being the nearest multiples of 1/255; h is a function of real numbers, so smoothing it by
N(0, sigma^2 I) has the usual radius. For an image x of multiples of 1/255, round(x + eps) = x +
round(eps): whole numbers are drawn and added exactly, and divided by 255 once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError
from rs.runtime.streams import seed_sequence, stream
from rs.smoothing import Noise

NOISE_OF_8_BIT: Noise = "grid"
"""Default for images of 8-bit pixels, as in all files and prepared data sets."""

BLOCK = 100
"""Samples in a block of certification noise, which is generated at once and never split."""

GRAY_LEVELS = 255
"""A pixel of an 8-bit image is one of 0, 1/GRAY_LEVELS, ..., 1."""

MAX_DEVIATIONS = 9.2
"""Standard deviations beyond which a number is less likely than 2^-64, the step of a GridTable."""

GRID_TOLERANCE = 2.0**-23
"""Largest difference between a pixel and k/255 that counts as rounding.

float32 does not hold most k/255 exactly.

With u = 2^-24, the division k/255 is rounded by u/2 at most. The product of k and 1/255, which is
how torch divides on a GPU, is within u k/255 of it as 1/255 is rounded, and u/2 more: less than 2u.
"""

CHECK_SIGMA = 0.25
"""Noise level of the images that a classifier is tried on."""


def gaussian(
    shape: tuple[int, ...],
    sigma: float,
    rng: torch.Generator,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw N(0, sigma^2 I) from a generator of the device."""
    return sigma * torch.randn(shape, generator=rng, device=device, dtype=dtype)


def training_noise(x: Tensor, draws: int, sigma: float, rng: torch.Generator) -> Tensor:
    """Draw training noise N(0, sigma^2), in the dtype and on the device of the images.

    Args:
        x: Images, shape (B, C, H, W).
        draws: M >= 1, copies of each image.
        sigma: Noise standard deviation, in pixels of [0, 1].
        rng: On the device of ``x``.
    Returns:
        Noise, shape (B, M, C, H, W).
    """
    return gaussian((x.shape[0], draws, *x.shape[1:]), sigma, rng, x.device, x.dtype)


def add_noise(x: Tensor, noise: Tensor) -> Tensor:
    """Add noise (B, M, C, H, W) to images (B, C, H, W), and flatten to (B*M, C, H, W).

    Noise (M, C, H, W) is the same for all images. Nothing is clipped: the certificate is about
    ``x + N(0, sigma^2 I)`` itself.
    """
    return (x.unsqueeze(1) + noise).flatten(0, 1)


def noisy_pair(shape: Sequence[int], device: torch.device) -> Tensor:
    """Return two noisy images of random pixels, ``(2, *shape)``, always the same."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.rand(2, *shape, generator=rng, dtype=torch.float32, device="cpu")
    return (pixels + gaussian(pixels.shape, CHECK_SIGMA, rng)).to(device)


def gaussian_block(
    index: int, shape: torch.Size, sigma: float, seed: int, *key: int, device: torch.device | str
) -> Tensor:
    """Draw block ``index`` of the noise of one image: :data:`BLOCK` samples of N(0, sigma^2 I).

    It depends only on ``(seed, *key, index)``, not on the batch, the other images or the number of
    draws: fewer draws are a prefix of more. On a CPU the numbers are NumPy's, because torch's CPU
    generator keeps 32 bits of a seed: among the thousand blocks of an image, two would be equal
    once in ten thousand images, and the draws of a certificate must be independent.

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
    return gaussian((BLOCK, *shape), sigma, stream(seed, *key, index, device=device), device)


class GridTable(NamedTuple):
    """The distribution of round(255 eps), eps ~ N(0, sigma^2), in steps of 2^-64.

    A uniform v in [0, 2^64) is the level ``lowest + #{j: cumulative[j] <= v}``. Its first 16 bits
    say it alone where all v that begin with them have one level.
    """

    lowest: int
    cumulative: NDArray[np.uint64]  # 2^64 P(level <= lowest + j), without the last, which is 2^64
    by_prefix: NDArray[np.float32]  # level by the first 16 bits, NaN if others decide; (2^16,)

    def levels(self, v: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Return the levels of uniform numbers in [0, 2^64)."""
        return (np.searchsorted(self.cumulative, v, side="right") + self.lowest).astype(np.float32)


@lru_cache
def grid_table(sigma: float) -> GridTable:
    """Return the distribution of round(255 eps), eps ~ N(0, sigma^2).

        P(k) = Phi((k + 1/2) / s) - Phi((k - 1/2) / s),   s = 255 sigma

    Each Phi is computed to 128 bits and rounded to the nearest multiple of 2^-64.
    """
    import mpmath  # needed here alone

    most = math.ceil(MAX_DEVIATIONS * GRAY_LEVELS * sigma)
    with mpmath.workprec(128):
        scale = GRAY_LEVELS * mpmath.mpf(sigma)
        below = [int(mpmath.nint(2**64 * mpmath.ncdf((k + 0.5) / scale))) for k in range(-most, 0)]
    above = [2**64 - count for count in reversed(below)]  # P(level <= k) = 1 - P(level <= -k - 1)
    cumulative = np.array([min(count, 2**64 - 1) for count in below + above], dtype=np.uint64)
    smallest = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    largest = smallest + np.uint64(2**48 - 1)
    low = np.searchsorted(cumulative, smallest, side="right")
    high = np.searchsorted(cumulative, largest, side="right")
    by_prefix = np.where(low == high, low - most, np.nan).astype(np.float32)
    return GridTable(-most, cumulative, by_prefix)


def grid_block(
    index: int, shape: torch.Size, sigma: float, seed: int, *key: int, device: torch.device | str
) -> Tensor:
    """Draw block ``index`` of the noise of one image in levels, which are whole numbers.

    This is :func:`gaussian_block` times 255, rounded. Each number is a level k with its probability
    P(k) to within 2^-63, from 64 independent bits. It depends only on ``(seed, *key, index)``. On a
    CPU the bits are those of Philox, the same with every version of NumPy.

    Args:
        index, shape, sigma, seed, key, device: As for :func:`gaussian_block`.
    Returns:
        float32 whole numbers, shape (BLOCK, C, H, W).
    """
    table = grid_table(sigma)
    size = (BLOCK, *shape)
    if torch.device(device).type != "cpu":
        rng = stream(seed, *key, index, device=device)
        return _levels_on(torch.device(device), table, size, rng)
    bits = np.random.Philox(seed_sequence(seed, *key, index))
    count = math.prod(size)
    words = bits.random_raw(math.ceil(count / 4)).astype("<u8", copy=False).view("<u2")[:count]
    levels = table.by_prefix.take(words, mode="wrap")  # indices are in range: "wrap" is fastest
    undetermined = np.flatnonzero(np.isnan(levels))
    first = words[undetermined].astype(np.uint64) << np.uint64(48)
    rest = bits.random_raw(len(undetermined)) >> np.uint64(16)
    levels[undetermined] = table.levels(first | rest)
    return torch.from_numpy(levels.reshape(size))


def _levels_on(
    device: torch.device, table: GridTable, size: tuple[int, ...], rng: torch.Generator
) -> Tensor:
    """Return levels from torch's generator.

    v - 2^63 represents v, because torch does not search unsigned numbers.
    """
    signed = torch.from_numpy((table.cumulative ^ np.uint64(2**63)).view(np.int64)).to(device)
    first = torch.randint(2**16, size, generator=rng, device=device)
    rest = torch.randint(2**48, size, generator=rng, device=device)
    v = ((first - 2**15) << 48) | rest
    return (torch.searchsorted(signed, v, right=True) + table.lowest).float()


def is_on_grid(x: Tensor) -> bool:
    """Return whether all pixels are multiples of 1/255, to within :data:`GRID_TOLERANCE`."""
    levels = x.double() * GRAY_LEVELS
    return bool(((levels - levels.round()).abs() <= GRAY_LEVELS * GRID_TOLERANCE).all())


def on_grid(x: Tensor) -> Tensor:
    """Return an image in levels: whole numbers 0 to 255.

    The certificate is that of the image of these levels. Its l2 distance to ``x`` of d pixels is at
    most GRID_TOLERANCE sqrt(d).

    Raises:
        InputError: If a pixel is not 0, 1/255, ..., 1 except for float32's rounding
            (:data:`GRID_TOLERANCE`).
    """
    levels = x.double() * GRAY_LEVELS  # exact, if x is float32
    whole = levels.round().clamp(0, GRAY_LEVELS)
    off = float((levels - whole).abs().max())
    if not off <= GRAY_LEVELS * GRID_TOLERANCE:
        raise InputError(
            "pixels must be multiples of 1/255 from 0 to 1 with noise on the grid, as in 8-bit "
            f"images, got one that is {off:.2g}/255 off; give the 8-bit image, or noise: gaussian "
            "(float16 and bfloat16 do not hold multiples of 1/255, nor do resizing and "
            "normalizing keep them)"
        )
    return whole.to(x.dtype)


def certification_noise(
    draw_range: range,
    shape: torch.Size,
    sigma: float,
    seed: int,
    *key: int,
    device: torch.device | str,
    draw_block: Callable[..., Tensor] = gaussian_block,
) -> Tensor:
    """Return the noise of samples of one image, (len(draw_range), C, H, W).

    ``draw_block`` is :func:`gaussian_block` or :func:`grid_block`.
    """
    first = draw_range.start // BLOCK
    end = math.ceil(draw_range.stop / BLOCK)
    blocks = []
    for index in range(first, end):
        blocks.append(draw_block(index, shape, sigma, seed, *key, device=device))
    noise = torch.cat(blocks) if len(blocks) > 1 else blocks[0]  # one may fill the memory
    offset = first * BLOCK
    return noise[draw_range.start - offset : draw_range.stop - offset]


def noisy_batches(
    x: Tensor, noise: Noise, sigma: float, draw_range: range, batch: int, seed: int, *key: int
) -> Iterator[Tensor]:
    """Yield the noisy copies of an image that certify it, in batches.

    Args:
        x: The image, shape (C, H, W).
        noise: Which noise.
        sigma: Noise standard deviation, in pixels of [0, 1].
        draw_range: Numbers of the samples, the first a multiple of :data:`BLOCK`.
        batch: Copies to yield at once; above a block, rounded down to whole blocks.
        seed, key: As for :func:`gaussian_block`.
    Raises:
        InputError: As :func:`on_grid`, for noise on the grid.
    """
    if draw_range.start % BLOCK:
        raise ValueError(
            f"start must be a multiple of {BLOCK}, got {draw_range.start}; blocks of noise are not "
            "split"
        )
    is_gaussian = noise == "gaussian"
    image = x if is_gaussian else on_grid(x)
    draw_block = gaussian_block if is_gaussian else grid_block
    size = max(1, batch // BLOCK) * BLOCK
    for begin in draw_range[::size]:
        part = range(begin, min(begin + size, draw_range.stop))
        drawn = certification_noise(
            part, x.shape, sigma, seed, *key, device=x.device, draw_block=draw_block
        )
        for noise_of_batch in drawn.split(min(batch, size)):
            copies = image + noise_of_batch
            yield copies if is_gaussian else copies / GRAY_LEVELS


def default_batch(x: Tensor) -> int:
    """Return how many noisy images to evaluate at once.

    They are enough to keep a GPU busy, or few enough for a CPU's caches. ``python -m
    benchmarks.forwards --batches 100,300`` shows which batch is the fastest on a CPU. They are
    fewer than a block of noise if an image is so large that the network would need too much memory:
    it holds tens of numbers per number of the image.
    """
    numbers, most, numbers_of_part = (2**19, 500, 2**22)
    if x.device.type == "cuda":
        numbers, most, numbers_of_part = (2**23, 4000, 2**26)
    blocks = numbers // x.numel() // BLOCK
    if blocks:
        return min(most, blocks * BLOCK)
    return max(1, min(BLOCK, numbers_of_part // x.numel()))
