"""Several processes at one piece of work, as ``torchrun`` starts them.

In certification process ``rank`` of ``world`` takes every ``world``-th image from number ``rank`` on, and they meet
when all are done. In training each has its share of the images of every step (``rs.training.trainer``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

LONGEST = timedelta(days=7)
"""How long the first may wait for the last; a process that dies ends the others at once, by torchrun."""


def place() -> tuple[int, int]:
    """Return (rank, world): this process among those that torchrun started, (0, 1) where it did not."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(backend: str) -> Iterator[None]:
    """Let the processes talk to each other: by "gloo" with tensors on CPUs, by "nccl" with tensors on GPUs."""
    if place()[1] == 1:
        yield
        return
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=LONGEST)
    yield
    dist.destroy_process_group()  # not after an error: it might wait for the others, which wait for this process


@contextmanager
def meeting() -> Iterator[Callable[[], None]]:
    """Yield a function that returns when every process has called it as often."""
    if place()[1] == 1:
        yield lambda: None
        return
    import torch.distributed as dist

    with joined("gloo"):
        yield dist.barrier
