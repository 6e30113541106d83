from fractions import Fraction
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from rs.runtime.streams import Stream, process_key, stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import (
    BLOCK,
    GRAY_LEVELS,
    _levels_on,
    gaussian_block,
    grid_block,
    grid_table,
    on_grid,
)
from tests.support.helpers import refuses
from tests.support.simulated_gpu import simulated_gpu

SHAPE = torch.Size((3, 8, 8))
SIGMA = 0.25
SEED = 7
KEY = (Stream.ESTIMATE, 17)
BLOCK_NUMBER = 3
keys = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple)


def numbers(seed, *key):
    return tuple(torch.randint(2**62, (4,), generator=stream(seed, *key)).tolist())


@given(st.integers(0, 2**64), keys, st.integers(0, 2**64), keys)
def test_streams_are_equal_exactly_where_seed_and_key_are(seed, key, other_seed, other_key):
    drawn = numbers(seed, *key)
    are_equal = drawn == numbers(other_seed, *other_key)
    assert numbers(seed, *key) == drawn
    assert are_equal == ((seed, key) == (other_seed, other_key))


def test_the_first_process_has_the_keys_of_one_alone():
    assert [process_key(rank) for rank in range(3)] == [(), (1,), (2,)]


def philox():
    """NumPy's Philox for the seed, the key and the number of a block."""
    sequence = np.random.SeedSequence(SEED, spawn_key=(*KEY, BLOCK_NUMBER))
    return np.random.Philox(sequence)


def test_on_a_cpu_the_numbers_are_those_of_numpys_philox_for_seed_and_key():
    bits = philox()
    normal = np.random.Generator(bits).standard_normal((BLOCK, *SHAPE), dtype=np.float32)
    noise = gaussian_block(BLOCK_NUMBER, SHAPE, SIGMA, SEED, *KEY, device="cpu")
    assert torch.equal(noise, SIGMA * torch.from_numpy(normal))
    # With a key of 32 bits, two of 2^17 blocks would be equal.
    assert bits.state["state"]["key"].nbytes == 16


def test_on_a_gpu_the_numbers_are_sigma_times_those_of_its_stream():
    with simulated_gpu():
        noise = gaussian_block(BLOCK_NUMBER, SHAPE, SIGMA, SEED, *KEY, device="cuda").cpu()
    rng = stream(SEED, *KEY, BLOCK_NUMBER)
    assert torch.equal(noise, SIGMA * torch.randn((BLOCK, *SHAPE), generator=rng))


@pytest.mark.parametrize("word", [-1, 2**32])
def test_a_word_that_would_be_two_is_refused(word):
    with pytest.raises(ValueError, match="words of a key"):
        stream(0, word)


# ---------------------------------------------------------------------------------- on the grid

SIGMAS = (0.01, 0.12, 0.25, 0.5, 1.0)
PREFIXES = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
"""The smallest 64-bit number with each value of the first 16 bits."""


def boundaries(table):
    """Exact counts of the 64-bit numbers below each level of a table, and below no level."""
    return [0, *map(int, table.cumulative), 2**64]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_level_has_the_mass_of_the_normal_law_around_it(sigma):
    table = grid_table(sigma)
    counts = np.diff(np.array(boundaries(table), dtype=object))
    distances = abs(table.lowest + np.arange(len(counts)))
    scale = GRAY_LEVELS * sigma
    # By the upper tail of |k|, where SciPy's numbers keep their relative precision.
    inner = stats.norm.sf((distances - 0.5) / scale)
    outer = stats.norm.sf((distances + 0.5) / scale)
    expected = np.where(distances == 0, 1 - 2 * outer, inner - outer)
    mass = (counts / 2**64).astype(float)
    assert counts.sum() == 2**64
    np.testing.assert_allclose(mass, expected, rtol=0, atol=4 * np.finfo(float).eps)
    # Levels beyond the table have no weight.
    assert inner[-1] < 2.0**-62


@pytest.mark.parametrize("sigma", SIGMAS)
def test_sixteen_bits_say_the_level_exactly_where_all_numbers_that_begin_with_them_have_it(sigma):
    table = grid_table(sigma)
    low = table.levels(PREFIXES)
    high = table.levels(PREFIXES + np.uint64(2**48 - 1))
    is_determined = ~np.isnan(table.by_prefix)
    assert np.array_equal(is_determined, low == high)  # levels grow with the number
    assert np.array_equal(table.by_prefix[is_determined], low[is_determined])


def test_the_numbers_are_those_of_this_table_on_every_machine():
    """Philox's bits are fixed by its authors (Salmon et al. 2011); the rest is whole numbers."""
    noise = grid_block(BLOCK_NUMBER, SHAPE, SIGMA, SEED, *KEY, device="cpu")

    table = grid_table(SIGMA)
    bits = philox()
    words = bits.random_raw(noise.numel() // 4)
    rest = iter(bits.random_raw(noise.numel()))
    numbers = []
    for word, shift in product(words, (0, 16, 32, 48)):
        prefix = int(word) >> shift & 0xFFFF
        number = prefix << 48
        if np.isnan(table.by_prefix[prefix]):
            number |= int(next(rest)) >> 16
        numbers.append(number)
    expected = table.levels(np.array(numbers, dtype=np.uint64))
    assert noise.flatten().tolist() == expected.tolist()


def test_torchs_generator_gives_the_same_law(monkeypatch):
    table = grid_table(SIGMA)
    first = torch.arange(2**16).reshape(64, 1024)
    for rest in (0, 2**48 - 1):
        drawn = [first, torch.full_like(first, rest)]
        monkeypatch.setattr(torch, "randint", Mock(side_effect=drawn))
        levels = _levels_on(torch.device("cpu"), table, tuple(first.shape), stream(0))
        expected = table.levels(PREFIXES + np.uint64(rest))
        assert levels.flatten().tolist() == expected.tolist()


@given(level=st.integers(0, 255), units=st.integers(-64, 64))
def test_a_pixel_is_on_the_grid_exactly_where_the_distance_is_that_of_float32s_rounding(
    level, units
):
    """In whole fractions. So the certified image is within sqrt(d) 2^-23 of the given one: 4.6e-5
    for ImageNet.
    """
    pixel = torch.tensor(level / 255 + units * 2.0**-26, dtype=torch.float64).float()
    distance = abs(Fraction(pixel.item()) - Fraction(level, 255))
    if distance <= Fraction(1, 2**23):
        assert on_grid(pixel.reshape(1, 1, 1)).item() == level
    else:
        with refuses("multiples of 1/255"):
            on_grid(pixel.reshape(1, 1, 1))


@pytest.mark.parametrize("pixel", [0.5, -1 / 255, 256 / 255])
def test_other_images_are_refused(pixel):
    with refuses(r"multiples of 1/255 .*; give the 8-bit image, or noise: gaussian"):
        on_grid(torch.full((1, 2, 2), pixel))


def test_the_network_sees_multiples_of_1_255_rounded_once():
    x = torch.tensor([[[0, 255], [17, 128]]], dtype=torch.uint8)
    seen = []
    base = nn.Flatten()
    base.register_forward_hook(lambda _, images, logits: seen.append(*images))
    smoothed = SmoothedClassifier(base, 4, SIGMA, noise="grid", batch=200)
    smoothed.certify(x.numpy(), 100, 250, 0.01, seed=3)
    noise = []
    for phase, block in ((4, 0), (5, 0), (5, 1), (5, 2)):
        noise.append(grid_block(block, x.shape, SIGMA, 3, phase, 0, device="cpu"))
    levels = torch.cat(noise)[:350].int() + x.int()
    expected = (levels.double() / 255).float()
    assert torch.equal(torch.cat(seen), expected)


class LowBits(nn.Module):
    """Class 1 where more than 47 pixels are not multiples of 2^-30.

    It distinguishes images by how their sums were rounded.
    """

    def forward(self, x):
        scaled = x.flatten(1).double() * 2**30
        fine = (scaled != scaled.round()).sum(dim=1)
        return torch.stack([47.5 - fine, fine - 47.5], dim=1)


def test_rounding_makes_a_false_certificate_of_gaussian_noise_and_none_on_the_grid():
    """A black image and one of pixels 2/255 are nearer to each other than the radius of the first.

    Numbers of N(0, sigma^2) below 2^-7 have bits down to 2^-31 and finer; the sum with 2/255 has
    not.
    """
    black = torch.zeros(1, 64, 63)
    gray = torch.full_like(black, 2 / GRAY_LEVELS)
    distance = (gray - black).norm().item()

    def certificates(noise):
        smoothed = SmoothedClassifier(LowBits(), 2, SIGMA, noise=noise)
        return [smoothed.certify(x, 100, 1_000, 0.001) for x in (black, gray)]

    of_black, of_gray = certificates("gaussian")
    assert (of_black.predict, of_gray.predict) == (1, 0)
    assert of_black.radius > distance  # the claim: g is constant between the two images
    of_black, of_gray = certificates("grid")
    assert of_black.predict == of_gray.predict


@given(st.integers(0, 2**64 - 1))
def test_a_number_has_the_level_whose_cumulative_count_it_is_below(number):
    table = grid_table(SIGMA)
    (level,) = table.levels(np.array([number], dtype=np.uint64)).astype(int)
    position = level - table.lowest
    low, high = boundaries(table)[position : position + 2]
    assert low <= number < high
