"""Devices and threads, chosen once where a command starts."""

from __future__ import annotations

import ctypes
import math
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rs.errors import InputError
from rs.runtime import Precision, PrecisionChoice, arithmetic

SMALL_IMAGE = 1024
"""Values in an image (C * H * W) below which one thread is fastest."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt`` (malloc.h)."""


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is a CUDA device if there is one, else the CPU.

    Under torchrun ``auto`` and ``cuda`` are the GPU with the local rank of the process; otherwise
    ``auto`` is the one that the process id chooses. On a GPU TF32 is disabled, so that float32 is
    float32: by default convolutions there round their inputs to 10 bits. It is enabled where a
    network runs in the precision tf32 (:func:`products`). On the CPU the process keeps its memory
    (:func:`keep_memory`). With portable arithmetic (``rs.runtime.arithmetic``), which only a CPU
    has, ``auto`` is the CPU.

    Raises:
        InputError: If the device is unknown or missing, or does not support the arithmetic that was
            chosen.
    """
    local = os.environ.get("LOCAL_RANK")
    is_portable = arithmetic.current() == "portable"
    if name == "auto":
        has_gpu = torch.cuda.is_available() and not is_portable
        name = "cuda" if has_gpu else "cpu"
        if has_gpu and local is None:
            local = str(os.getpid() % torch.cuda.device_count())
    full_name = name
    if name == "cuda":
        full_name = f"cuda:{local or 0}"
    try:
        device = torch.device(full_name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{device.type} is not supported")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device must be auto, cpu or a CUDA device of this machine, got {name!r}: {error}"
        ) from error
    if is_portable and (device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX2"):
        raise InputError(
            f"portable arithmetic must run on an x86-64 CPU with AVX2, got {device} and "
            f"{torch.backends.cpu.get_cpu_capability()}; set the recipe's arithmetic to native"
        )
    if device.type == "cuda":
        torch.cuda.set_device(device)
        for kind in _kinds_of_products():
            kind.fp32_precision = "ieee"
    if device.type == "cpu":
        keep_memory()
    return device


def _kinds_of_products() -> tuple[Any, ...]:
    """Return torch's settings of how CUDA multiplies float32."""
    backends: Any = torch.backends  # its types have gaps
    return backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn


def precision_on(device: torch.device, choice: PrecisionChoice) -> Precision:
    """Return the precision that runs: for ``auto``, tf32 on a CUDA device and float32 on a CPU."""
    if choice != "auto":
        return choice
    return "tf32" if device.type == "cuda" else "float32"


def check_precision(device: torch.device, precision: str) -> None:
    """Refuse TF32 where it is not computed.

    Raises:
        InputError: If the precision is tf32 and the device is not a CUDA device.
    """
    if precision == "tf32" and device.type != "cuda":
        raise InputError(
            f"precision tf32 must run on a CUDA device, got {device}; use precision float32 "
            "there, or a CUDA device"
        )


@contextmanager
def products(device: torch.device, precision: str) -> Iterator[None]:
    """Have a CUDA device round the inputs of float32 products to TF32 if the precision is ``tf32``.

    The settings of torch, which hold for the whole process, are restored at the end. On a CPU
    nothing is set.

    Raises:
        InputError: As :func:`check_precision` does.
    """
    check_precision(device, precision)
    if device.type != "cuda":
        yield
        return
    kinds = _kinds_of_products()
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        yield
    finally:
        for kind, setting in zip(kinds, before, strict=True):
            kind.fp32_precision = setting


def keep_memory() -> bool:
    """Keep the memory of freed tensors for the next ones, until this process ends.

    By default glibc returns the memory of large tensors to the system, and the pages of each
    layer's output are mapped and cleared again: a certificate of ResNet-110 takes 1.5 times as long
    (``benchmarks/results/memory.md``). With it, the process holds its peak memory, and some more
    because of fragmentation. Nothing is changed with another C library, or if the environment tunes
    glibc (``MALLOC_*``, ``GLIBC_TUNABLES``).

    Returns:
        Whether glibc accepted the setting.
    """
    is_tuned = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if is_tuned or platform.libc_ver()[0] != "glibc":
        return False
    # Take memory from the heap, and never trim it.
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def limit_threads(shape: Sequence[int]) -> None:
    """Use one CPU thread if images are smaller than 32x32 in one channel.

    Networks for such images are so small that more threads are slower, and one thread gives the
    same bytes on machines with different numbers of cores. Larger images use the number of threads
    of torch, or of ``OMP_NUM_THREADS``.

    Args:
        shape: (C, H, W) of an image.
    """
    if math.prod(shape) < SMALL_IMAGE:
        torch.set_num_threads(1)
