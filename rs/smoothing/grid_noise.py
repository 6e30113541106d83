"""Noise on the grid of 8-bit pixels, with which the theorem holds in floating-point arithmetic as it stands.

A sum x + eps of floating-point numbers is rounded, in a way that a network can tell x by, so that classifiers exist
whose certificates are false (Voracek & Hein, "Sound Randomized Smoothing in Floating-Point Arithmetic", ICLR 2023).
Here the base classifier is h(z) = f(round(z)) for a network f, round(z) being the nearest multiples of 1/255; h is a
function of real numbers, so smoothing it by N(0, sigma^2 I) has the usual radius. For an image x of multiples of 1/255,
round(x + eps) = x + round(eps): whole numbers are drawn and added exactly, and divided by 255 once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError
from rs.runtime.streams import seed_sequence, stream
from rs.smoothing.noise import BLOCK

LEVELS = 255
"""A pixel of an 8-bit image is one of 0, 1/LEVELS, ..., 1."""

REACH = 9.2
"""Standard deviations beyond which a draw is less likely than 2^-64, the step in which probabilities are held."""

NEAR = 2.0**-23
"""What a pixel may differ from k/255 by, which float32 cannot hold, and be taken for it.

With u = 2^-24, the division k/255 is rounded by u/2 at most. The product of k and 1/255, which is how torch divides on
a GPU, is within u k/255 of it as 1/255 is rounded, and u/2 more: less than 2u.
"""


@dataclass(frozen=True)
class GridTable:
    """The distribution of round(255 eps), eps ~ N(0, sigma^2), in steps of 2^-64.

    A uniform v in [0, 2^64) is the level ``lowest + #{j: cumulative[j] <= v}``. Its first 16 bits say it alone where
    all v that begin with them have one level.
    """

    lowest: int
    cumulative: NDArray[np.uint64]  # 2^64 P(level <= lowest + j), without the last, which is 2^64
    known: NDArray[np.float32]  # level by the first 16 bits, NaN where the others decide; (2^16,)

    def levels(self, v: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Return the levels of uniform numbers in [0, 2^64)."""
        return (np.searchsorted(self.cumulative, v, side="right") + self.lowest).astype(np.float32)


@lru_cache
def grid_table(sigma: float) -> GridTable:
    """Return the distribution of round(255 eps), eps ~ N(0, sigma^2): P(k) = Phi((k + 1/2) / s) - Phi((k - 1/2) / s).

    With s = 255 sigma; each Phi is computed to 128 bits and rounded to the nearest multiple of 2^-64.
    """
    import mpmath  # needed here alone

    most = math.ceil(REACH * LEVELS * sigma)
    with mpmath.workprec(128):
        std = LEVELS * mpmath.mpf(sigma)
        below = [int(mpmath.nint(2**64 * mpmath.ncdf((k + 0.5) / std))) for k in range(-most, 0)]
    above = [2**64 - count for count in reversed(below)]  # P(level <= k) = 1 - P(level <= -k - 1)
    cumulative = np.array([min(count, 2**64 - 1) for count in below + above], dtype=np.uint64)
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    low, high = (np.searchsorted(cumulative, v, side="right") for v in (first, first + np.uint64(2**48 - 1)))
    return GridTable(-most, cumulative, np.where(low == high, low - most, np.nan).astype(np.float32))


def grid_block(index: int, shape: torch.Size, sigma: float, seed: int, *key: int, device: torch.device | str) -> Tensor:
    """Draw block ``index`` of the noise of one image in levels: ``rs.smoothing.noise.block``, times 255 and rounded.

    Each number is a level k with its probability P(k) to within 2^-63, from 64 independent bits. It depends only on
    ``(seed, *key, index)``. On a CPU the bits are those of Philox, the same with every version of NumPy.

    Args:
        index, shape, sigma, seed, key, device: As for ``rs.smoothing.noise.block``.
    Returns:
        float32 whole numbers, shape (BLOCK, C, H, W).
    """
    table, size = grid_table(sigma), (BLOCK, *shape)
    if torch.device(device).type != "cpu":
        return _drawn_on(torch.device(device), table, size, stream(seed, *key, index, device=device))
    bits, count = np.random.Philox(seed_sequence(seed, *key, index)), math.prod(size)
    words = bits.random_raw(-(-count // 4)).astype("<u8", copy=False).view("<u2")[:count]
    levels = table.known.take(words, mode="wrap")  # no index is out of range, and this looks for none
    open_ones = np.flatnonzero(np.isnan(levels))
    rest = bits.random_raw(len(open_ones)) >> np.uint64(16)
    levels[open_ones] = table.levels(words[open_ones].astype(np.uint64) << np.uint64(48) | rest)
    return torch.from_numpy(levels.reshape(size))


def _drawn_on(device: torch.device, table: GridTable, size: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Levels from torch's generator; v - 2^63 stands for v, because torch has no searches of unsigned numbers."""
    signed = torch.from_numpy((table.cumulative ^ np.uint64(2**63)).view(np.int64)).to(device)
    first, rest = (torch.randint(2**bits, size, generator=rng, device=device) for bits in (16, 48))
    return (torch.searchsorted(signed, ((first - 2**15) << 48) | rest, right=True) + table.lowest).float()


def is_on_grid(x: Tensor) -> bool:
    """Return whether all pixels are multiples of 1/255, to within float32's rounding (``NEAR``), as 8-bit ones are."""
    levels = x.double() * LEVELS
    return bool(((levels - levels.round()).abs() <= LEVELS * NEAR).all())


def on_grid(x: Tensor) -> Tensor:
    """Return an image in levels: whole numbers 0 to 255.

    The certificate is that of the image of these levels. Its l2 distance to ``x`` of d pixels is at most NEAR sqrt(d).

    Raises:
        InputError: If a pixel is not 0, 1/255, ..., 1 except for float32's rounding (``NEAR``).
    """
    levels = x.double() * LEVELS  # exact, if x is float32
    whole = levels.round().clamp(0, LEVELS)
    off = float((levels - whole).abs().max())
    if not off <= LEVELS * NEAR:
        raise InputError(
            "pixels must be multiples of 1/255 from 0 to 1 with noise on the grid, as in 8-bit images, got one "
            f"that is {off:.2g}/255 off; give the 8-bit image, or noise: gaussian (float16 and bfloat16 do not hold "
            "multiples of 1/255, nor do resizing and normalising keep them)"
        )
    return whole.to(x.dtype)
