"""Keyed random streams: every purpose draws from its own generator, which its key names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, unique

import numpy as np
import torch


@unique
class Stream(IntEnum):
    """What a random stream is for: the first word of its key, so no two purposes share numbers."""

    INITIAL = 0  # initial weights
    ORDER = 1  # order of the training images, keyed by epoch
    AUGMENT = 2  # crops and flips, keyed by epoch and batch, or by epoch and image
    # noise and attack of a training step, keyed by epoch, batch and number of the step in the batch
    STEP = 3
    SELECT = 4  # the n0 draws that select the class, keyed by image and block
    ESTIMATE = 5  # the n draws that bound its probability, keyed by image and block
    PREDICT = 6  # the draws of PREDICT, keyed by image and block
    WEIGHTS = 7  # fitting ensemble weights
    CALIBRATE = 8  # images that calibrate quantized networks, keyed by block
    EVALUATE = 9  # the seed of the quick certificates during training
    VOTES = 10  # noise of the votes on training images, keyed by epoch and call
    LAYERS = 13  # torch's global generator, from which layers such as dropout draw, keyed by epoch
    ITEMS = 14  # random numbers of a user's data set, keyed by reading and item
    ATTACK = 15  # noise of attacks on a certificate, keyed by image and block


def stream(seed: int, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the generator named by ``(seed, *key)``.

    Streams of different keys are independent: image 17 gets the same noise in any order and any
    subset. The key goes into ``spawn_key``, because ``SeedSequence([0])`` and ``SeedSequence([0,
    0])`` are one stream.

    Args:
        seed: Non-negative integer, the user's.
        key: Integers in [0, 2^32), ours; by convention a :class:`Stream` first. A larger one would
            be two words.
        device: Where the generator draws; CPU and CUDA generators give different numbers for one
            key. A CPU generator keeps 32 bits of the word: good for training, too few for
            certificates (see :func:`block`).

    >>> a, b = stream(0, 17), stream(0, 17)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    True
    """
    word = seed_sequence(seed, *key).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(word))


def process_key(rank: int) -> tuple[int, ...]:
    """Return what process ``rank`` adds to the keys of its streams; the first adds nothing."""
    if rank == 0:
        return ()
    return (rank,)


def derived_seed(seed: int, purpose: Stream) -> int:
    """Return a seed of its own for a purpose."""
    return int(seed_sequence(seed, purpose).generate_state(1, np.uint32)[0])


def seed_sequence(seed: int, *key: int) -> np.random.SeedSequence:
    """Return the NumPy seed named by ``(seed, *key)``; every word of the key lies in [0, 2^32)."""
    if not all(0 <= word < 2**32 for word in key):
        raise ValueError(f"words of a key must lie in [0, 2^32), got {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


@contextmanager
def seeded(seed: int | None, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's global generator, used by layers, and restore it afterward.

    Args:
        seed: ``None`` leaves the generator as it is.
        device: A GPU whose generator is seeded too.
    """
    gpus = [device] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=gpus, enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
            for gpu in gpus:
                torch.cuda.set_rng_state(torch.Generator(gpu).manual_seed(seed).get_state(), gpu)
        yield
