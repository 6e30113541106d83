"""Choosing the device, once, at the edge."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import torch

from rs.errors import InputError

SMALL_IMAGE = 1024
"""Numbers in an image below which one thread is fastest."""


def device_named(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is CUDA where there is one, else the CPU.

    Under torchrun ``auto`` and ``cuda`` are the GPU with the number of the process on its machine. On a GPU float32
    becomes what rows and cards call it: by default convolutions there round their inputs to 10 bits (TF32).

    Raises:
        InputError: If the device is unknown or not here.
    """
    local = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if name == "auto":
        name = local if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(local if name == "cuda" else name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be auto, cpu or a CUDA device that is here, got {name!r}: {error}") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
        for kind in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            kind.fp32_precision = "ieee"
    return device


def suit_threads(shape: Sequence[int]) -> None:
    """Compute with one CPU thread if images are smaller than 32x32 in one channel.

    The networks for such images are so small that threads cost more than they bring; and one thread gives the same
    bytes on machines with different numbers of cores. Larger images use what torch, or ``OMP_NUM_THREADS``, says.

    Args:
        shape: (C, H, W) of an image.
    """
    if math.prod(shape) < SMALL_IMAGE:
        torch.set_num_threads(1)
