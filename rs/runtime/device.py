"""Choosing the device, once, at the edge."""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from rs.errors import InputError
from rs.runtime import arithmetic

SMALL_IMAGE = 1024
"""Numbers in an image below which one thread is fastest."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Names that glibc's ``mallopt`` takes (malloc.h)."""

_locks: list[int] = []  # of the GPUs this process has taken, held until it ends


def device_named(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is CUDA where there is one, else the CPU.

    Under torchrun ``auto`` and ``cuda`` are the GPU with the number of the process on its machine; elsewhere ``auto``
    is one that no other process of this project has taken. On a GPU float32 becomes what rows and cards call it: by
    default convolutions there round their inputs to 10 bits (TF32). On the CPU the process keeps its memory
    (:func:`keep_memory`). Portable arithmetic (``rs.runtime.arithmetic``) is the CPU's, so ``auto`` is the CPU there.

    Raises:
        InputError: If the device is unknown or not here, or does not have the arithmetic that was chosen.
    """
    local, portable = os.environ.get("LOCAL_RANK"), arithmetic.current() == "portable"
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() and not portable else "cpu"
        local = str(free_gpu(_gpus())) if name == "cuda" and local is None else local
    try:
        device = torch.device(f"cuda:{local or 0}" if name == "cuda" else name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be auto, cpu or a CUDA device that is here, got {name!r}: {error}") from error
    if portable and (device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX2"):
        raise InputError(
            f"portable arithmetic must run on an x86-64 CPU with AVX2, got {device} and "
            f"{torch.backends.cpu.get_cpu_capability()}; set the recipe's arithmetic to native"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)
        for kind in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            kind.fp32_precision = "ieee"
    if device.type == "cpu":
        keep_memory()
    return device


def keep_memory() -> bool:
    """Keep the memory of tensors that are freed for the next ones, until this process ends.

    By default glibc gives the memory of large tensors back to the system, and each layer of a network then has the
    pages of its output mapped and cleared anew: 1.5 times as long for a certificate of ResNet-110 (``python -m
    benchmarks.memory``). Kept, the process holds as much as it needed at most, and some more for holes that nothing
    fits. Nothing is changed where the C library is another one, or where the environment tunes it (``MALLOC_*``,
    ``GLIBC_TUNABLES``).

    Returns:
        Whether glibc was told so.
    """
    tuned = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if tuned or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))  # from the heap, which is never trimmed


def free_gpu(names: Sequence[str]) -> int:
    """Take the first GPU that no process of this user has taken, until this process ends; return its number.

    So several cells at once, from ``dvc queue start --jobs 4`` or ``make repro JOBS=4``, get a GPU each. Where all are
    taken, processes are dealt out by their numbers.

    Args:
        names: What each GPU is called on this machine, whichever of them a process may see.
    """
    for number, name in enumerate(names if len(names) > 1 else []):
        lock = os.open(Path(tempfile.gettempdir(), f"rs-{os.getuid()}-{name}.lock"), os.O_CREAT | os.O_WRONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        _locks.append(lock)
        return number
    return os.getpid() % len(names)


def _gpus() -> list[str]:
    return [str(torch.cuda.get_device_properties(k).uuid) for k in range(torch.cuda.device_count())]


def suit_threads(shape: Sequence[int]) -> None:
    """Compute with one CPU thread if images are smaller than 32x32 in one channel.

    The networks for such images are so small that threads cost more than they bring; and one thread gives the same
    bytes on machines with different numbers of cores. Larger images use what torch, or ``OMP_NUM_THREADS``, says.

    Args:
        shape: (C, H, W) of an image.
    """
    if math.prod(shape) < SMALL_IMAGE:
        torch.set_num_threads(1)
