from fractions import Fraction

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

SHAPE, SIGMA = torch.Size((3, 8, 8)), 0.25
keys = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple)


def numbers(seed, *key):
    return tuple(torch.randint(2**62, (4,), generator=stream(seed, *key)).tolist())


@given(st.integers(0, 2**64), keys, st.integers(0, 2**64), keys)
def test_streams_are_equal_exactly_where_seed_and_key_are(seed, key, other_seed, other_key):
    assert numbers(seed, *key) == numbers(seed, *key)
    assert (numbers(seed, *key) == numbers(other_seed, *other_key)) == (
        (seed, key) == (other_seed, other_key)
    )


def test_the_first_process_has_the_keys_of_one_alone():
    assert [process_key(rank) for rank in range(3)] == [(), (1,), (2,)]


def test_on_a_cpu_the_numbers_are_those_of_numpys_philox_for_seed_and_key():
    bits = np.random.Philox(np.random.SeedSequence(7, spawn_key=(Stream.ESTIMATE, 17, 3)))
    numbers = np.random.Generator(bits).standard_normal((BLOCK, *SHAPE), dtype=np.float32)
    found = gaussian_block(3, SHAPE, SIGMA, 7, Stream.ESTIMATE, 17, device="cpu")
    assert torch.equal(found, SIGMA * torch.from_numpy(numbers))
    # with 32 bits, of 2^17 blocks two would be equal
    assert bits.state["state"]["key"].nbytes == 16


def test_on_a_gpu_the_numbers_are_sigma_times_those_of_its_stream():
    with simulated_gpu():
        found = gaussian_block(3, SHAPE, SIGMA, 7, Stream.ESTIMATE, 17, device="cuda").cpu()
    expected = SIGMA * torch.randn((BLOCK, *SHAPE), generator=stream(7, Stream.ESTIMATE, 17, 3))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("word", [-1, 2**32])
def test_a_word_that_would_be_two_is_refused(word):
    with pytest.raises(ValueError, match="words of a key"):
        stream(0, word)


# ------------------------------------------------------------------------------------------ on the
# grid

SIGMAS = (0.01, 0.12, 0.25, 0.5, 1.0)


def probabilities(sigma):
    """Exact counts of 64-bit numbers, by level."""
    table = grid_table(sigma)
    steps = [0, *map(int, table.cumulative), 2**64]
    return {table.lowest + k: high - low for k, (low, high) in enumerate(zip(steps, steps[1:]))}  # noqa: B905, RUF007


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_level_has_the_mass_of_the_normal_law_around_it(sigma):
    found = probabilities(sigma)
    assert sum(found.values()) == 2**64
    levels = np.array(list(found))
    # by the upper tail of |k|, where SciPy's numbers keep their relative precision
    edges = stats.norm.sf((np.abs(levels)[:, None] + [-0.5, 0.5]) / (GRAY_LEVELS * sigma))
    expected = np.where(levels == 0, 1 - 2 * edges[:, 1], edges[:, 0] - edges[:, 1])
    mass = np.array([count / 2**64 for count in found.values()])
    np.testing.assert_allclose(mass, expected, rtol=0, atol=4 * np.finfo(float).eps)
    # what lies beyond is of no weight
    assert stats.norm.sf((levels.max() - 0.5) / (GRAY_LEVELS * sigma)) < 2.0**-62


@pytest.mark.parametrize("sigma", SIGMAS)
def test_sixteen_bits_say_the_level_exactly_where_all_numbers_that_begin_with_them_have_it(sigma):
    table, first = grid_table(sigma), np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    low, high = table.levels(first), table.levels(first + np.uint64(2**48 - 1))
    known = ~np.isnan(table.by_prefix)
    assert np.array_equal(known, low == high)  # levels grow with the number
    assert np.array_equal(table.by_prefix[known], low[known])


def test_the_numbers_are_those_of_this_table_on_every_machine():
    """Philox's bits are fixed by its authors (Salmon et al. 2011); the rest is whole numbers."""
    drawn = grid_block(3, torch.Size((1, 2, 2)), SIGMA, 7, Stream.ESTIMATE, 17, device="cpu")
    bits = np.random.Philox(np.random.SeedSequence(7, spawn_key=(Stream.ESTIMATE, 17, 3)))
    words = [
        int(word) >> shift & 0xFFFF for word in bits.random_raw(BLOCK) for shift in (0, 16, 32, 48)
    ]
    rest = iter([int(word) >> 16 for word in bits.random_raw(BLOCK)])
    table = grid_table(SIGMA)
    whole = [word << 48 | (next(rest) if np.isnan(table.by_prefix[word]) else 0) for word in words]
    assert drawn.flatten().tolist() == table.levels(np.array(whole, dtype=np.uint64)).tolist()


def test_torchs_generator_gives_the_same_law(monkeypatch):
    table = grid_table(SIGMA)
    first = torch.arange(2**16).reshape(64, 1024)
    for rest in (0, 2**48 - 1):
        given = iter([first, torch.full_like(first, rest)])
        monkeypatch.setattr(torch, "randint", lambda *_, given=given, **__: next(given))
        made = _levels_on(torch.device("cpu"), table, tuple(first.shape), stream(0))
        v = (np.arange(2**16, dtype=np.uint64) << np.uint64(48)) + np.uint64(rest)
        assert made.flatten().tolist() == table.levels(v).tolist()


@given(level=st.integers(0, 255), units=st.integers(-64, 64))
def test_a_pixel_is_on_the_grid_exactly_where_the_distance_is_that_of_float32s_rounding(
    level, units
):
    """In whole fractions; so what is certified is within sqrt(d) 2^-23 of what is given, 4.6e-5 for
    ImageNet.
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
    x, shown = torch.tensor([[[0, 255], [17, 128]]], dtype=torch.uint8), []
    base = nn.Flatten()
    base.register_forward_hook(lambda _, images, logits: shown.append(*images))
    smoothed = SmoothedClassifier(base, 4, SIGMA, noise="grid", batch=200)
    smoothed.certify(x.numpy(), 100, 250, 0.01, seed=3)
    noise = [
        grid_block(k, x.shape, SIGMA, 3, phase, 0, device="cpu")
        for phase, k in ((4, 0), (5, 0), (5, 1), (5, 2))
    ]
    expected = ((torch.cat(noise)[:350].int() + x.int()).double() / 255).float()
    assert torch.equal(torch.cat(shown), expected)


class LowBits(nn.Module):
    """Class 1 where more than 47 pixels are no multiples of 2^-30: it tells images by how their
    sums were rounded.
    """

    def forward(self, x):
        scaled = x.flatten(1).double() * 2**30
        fine = (scaled != scaled.round()).sum(dim=1)
        return torch.stack([47.5 - fine, fine - 47.5], dim=1)


def test_rounding_makes_a_false_certificate_of_gaussian_noise_and_none_on_the_grid():
    """The black image and one of pixels 2/255 are nearer to each other than the radius that the
    first one gets.

    Numbers of N(0, sigma^2) below 2^-7 are held to 2^-31 and finer; the sum with 2/255 is not.
    """
    black = torch.zeros(1, 64, 63)
    gray = torch.full_like(black, 2 / GRAY_LEVELS)
    distance = (gray - black).norm().item()

    def certificates(noise):
        smoothed = SmoothedClassifier(LowBits(), 2, SIGMA, noise=noise)
        return [smoothed.certify(x, 100, 1_000, 0.001) for x in (black, gray)]

    of_black, of_gray = certificates("gaussian")
    assert (of_black.predict, of_gray.predict) == (1, 0)
    assert of_black.radius > distance  # g is said to be constant between them
    of_black, of_gray = certificates("grid")
    assert of_black.predict == of_gray.predict


@given(st.integers(0, 2**64 - 1))
def test_a_number_has_the_level_whose_cumulative_count_it_is_below(v):
    table = grid_table(SIGMA)
    level = int(table.levels(np.array([v], dtype=np.uint64))[0])
    cumulative = [0, *map(int, table.cumulative), 2**64]
    assert cumulative[level - table.lowest] <= v < cumulative[level - table.lowest + 1]
