import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rs.runtime.streams import Stream, process_key, stream
from rs.smoothing.noise import BLOCK, block, draw, noisy
from tests.support.simulated_gpu import simulated_gpu

SHAPE, SIGMA = torch.Size((3, 8, 8)), 0.25
keys = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple)


def numbers(seed, *key):
    return tuple(torch.randint(2**62, (4,), generator=stream(seed, *key)).tolist())


@given(st.integers(0, 2**64), keys, st.integers(0, 2**64), keys)
def test_streams_are_equal_exactly_where_seed_and_key_are(seed, key, other_seed, other_key):
    assert numbers(seed, *key) == numbers(seed, *key)
    assert (numbers(seed, *key) == numbers(other_seed, *other_key)) == ((seed, key) == (other_seed, other_key))


def test_no_two_keys_of_up_to_three_words_share_a_stream():
    every = [key for length in range(4) for key in itertools.product(range(4), repeat=length)]
    assert len({numbers(0, *key) for key in every}) == len(every)


def test_every_purpose_has_its_own_stream():
    assert len({member.value for member in Stream}) == len(Stream.__members__)  # an alias would be missing on the left
    assert len({numbers(0, member) for member in Stream}) == len(Stream.__members__)


def test_every_process_has_its_own_stream_and_the_first_that_of_one_alone():
    every = [numbers(0, Stream.STEP, epoch, *process_key(rank)) for epoch in range(3) for rank in range(4)]
    assert len(set(every)) == len(every)
    assert numbers(0, Stream.STEP, 2, *process_key(0)) == numbers(0, Stream.STEP, 2)


def test_asking_for_a_stream_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    numbers(0, 1)
    assert torch.equal(torch.get_rng_state(), before)


@given(images=st.integers(1, 3), draws=st.integers(1, 3), seed=st.integers(0, 100))
def test_noisy_copies_are_image_major_and_not_clipped(images, draws, seed):
    x = torch.rand((images, 2, 6, 8), generator=stream(seed, 0))
    noise = draw(x, draws, 2.0, stream(seed, 1))
    assert noise.shape == (images, draws, 2, 6, 8)
    copies = noisy(x, noise)
    assert copies.shape == (images * draws, 2, 6, 8)
    row = 0
    for i in range(images):
        for k in range(draws):
            assert torch.equal(copies[row], x[i] + noise[i, k])
            row += 1
    assert copies.min() < 0
    assert copies.max() > 1


def test_training_noise_is_sigma_times_the_numbers_of_its_stream_in_the_dtype_of_the_images():
    for dtype in (torch.float32, torch.float64):
        x = torch.zeros((2, *SHAPE), dtype=dtype)
        expected = SIGMA * torch.randn((2, 5, *SHAPE), generator=stream(3), dtype=dtype)
        assert torch.equal(draw(x, 5, SIGMA, stream(3)), expected)


def blocks(indices, *key, sigma=SIGMA):
    return {index: block(index, SHAPE, sigma, *key, device="cpu") for index in indices}


def test_a_block_depends_on_its_key_and_index_alone():
    all_in_order = blocks(range(4), 0, Stream.ESTIMATE, 17)
    some_backwards = blocks([3, 1], 0, Stream.ESTIMATE, 17)  # fewer, in another order
    for index, noise in some_backwards.items():
        assert torch.equal(noise, all_in_order[index])
    assert all_in_order[0].shape == (BLOCK, *SHAPE)
    assert all_in_order[0].dtype == torch.float32


def test_on_a_cpu_the_numbers_are_those_of_numpys_philox_for_seed_and_key():
    words = np.random.SeedSequence(7, spawn_key=(Stream.ESTIMATE, 17, 3))
    numbers = np.random.Generator(np.random.Philox(words)).standard_normal((BLOCK, *SHAPE), dtype=np.float32)
    found = block(3, SHAPE, SIGMA, 7, Stream.ESTIMATE, 17, device="cpu")
    assert torch.equal(found, SIGMA * torch.from_numpy(numbers))


def test_on_a_gpu_the_numbers_are_sigma_times_those_of_its_stream():
    with simulated_gpu():
        found = block(3, SHAPE, SIGMA, 7, Stream.ESTIMATE, 17, device="cuda").cpu()
    expected = SIGMA * torch.randn((BLOCK, *SHAPE), generator=stream(7, Stream.ESTIMATE, 17, 3))
    assert torch.equal(found, expected)


def test_blocks_of_other_seeds_phases_images_and_indices_differ_in_every_draw():
    names = [(0, 0, Stream.ESTIMATE, 17), (1, 0, Stream.ESTIMATE, 17), (0, 1, Stream.ESTIMATE, 17)]
    names += [(0, 0, Stream.SELECT, 17), (0, 0, Stream.ESTIMATE, 18)]
    made = [block(index, SHAPE, SIGMA, *key, device="cpu") for index, *key in names]
    for one, other in itertools.combinations(made, 2):
        assert (one != other).flatten(1).any(dim=1).all()
        assert not (one[:, None, 0, 0, :2] == other[None, :, 0, 0, :2]).all(dim=-1).any()  # nor in another place


@pytest.mark.parametrize("make", ["block", "draw"])
def test_noise_has_mean_zero_deviation_sigma_and_the_normal_law(make):
    if make == "block":
        noise = block(2, SHAPE, SIGMA, 0, Stream.ESTIMATE, 3, device="cpu")
    else:
        noise = draw(torch.zeros(20, *SHAPE), 5, SIGMA, stream(0, Stream.STEP))
    z = noise.double().flatten() / SIGMA
    n, tail = len(z), 1e-6 / 2
    assert abs(z.mean()) < stats.norm.isf(tail) / n**0.5
    assert stats.chi2.ppf(tail, n) < z.square().sum() < stats.chi2.isf(tail, n)
    assert stats.kstest(z.numpy(), "norm").pvalue > 1e-6


def test_neighbouring_draws_blocks_and_images_are_not_correlated():
    base = block(0, SHAPE, 1.0, 0, Stream.ESTIMATE, 3, device="cpu")
    others = [base.roll(1, 0), block(1, SHAPE, 1.0, 0, Stream.ESTIMATE, 3, device="cpu")]
    others += [block(0, SHAPE, 1.0, 0, Stream.ESTIMATE, 4, device="cpu")]
    for other in others:  # sum of n products of independent normals: variance n
        z = (base * other).double().sum() / base.numel() ** 0.5
        assert abs(z) < stats.norm.isf(1e-6 / 2 / len(others))


@pytest.mark.parametrize("word", [-1, 2**32])
def test_a_word_that_would_be_two_is_refused(word: int) -> None:
    with pytest.raises(ValueError, match="words of a key"):
        stream(0, word)


def test_no_two_of_many_blocks_are_the_same() -> None:
    """A generator that keeps 32 bits of its seed would repeat one of 2^17 blocks with probability 1 - e^-2."""
    shape, many = torch.Size([1]), 2**17
    first = [
        block(index, shape, 1.0, 0, Stream.ESTIMATE, 3, device="cpu")[:4].numpy().tobytes() for index in range(many)
    ]
    assert len(set(first)) == many
