"""Several processes that share one piece of work, as ``torchrun`` starts them.

In certification process ``rank`` of ``world_size`` certifies every ``world_size``-th image from
number ``rank`` on, and the processes wait for each other at the end. In training each has a part of
the images of every step.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rs.errors import InputError

if TYPE_CHECKING:  # seconds to import
    import torch

TIMEOUT = timedelta(days=7)
"""How long processes may wait for each other; if one dies, torchrun ends the others at once."""

LAUNCHERS = ("torchrun", "srun", "mpirun")
"""Programs that ``launcher`` of the parameters may name first."""

STARTER = "RS_STARTER"
"""Variable of the environment with the process that started a stage of DVC, and its machine."""

ANY_LAUNCHER = "RS_ANY_LAUNCHER"
"""Variable of the environment that allows any other: set it to 1."""


def launcher_words(values: dict[str, Any]) -> list[str]:
    """Return the words of ``launcher`` in the parameters, with environment variables filled in.

    Raises:
        InputError: If it is not a command that begins with one of :data:`LAUNCHERS` and has the
            word torchrun in it.

    >>> launcher_words({"launcher": "srun --ntasks 2 torchrun --nnodes 2"})
    ['srun', '--ntasks', '2', 'torchrun', '--nnodes', '2']
    """
    launcher = values.get("launcher")
    if launcher is None:
        return []
    try:
        words = shlex.split(os.path.expandvars(launcher)) if isinstance(launcher, str) else []
    except ValueError:  # a quote that is not closed
        words = []
    if "torchrun" not in words:
        raise InputError(
            "params.yaml: launcher must be null or a command with the word torchrun in it, such as "
            f"'torchrun --standalone --nproc-per-node 2', got {launcher!r}"
        )
    if words[0] not in LAUNCHERS and os.environ.get(ANY_LAUNCHER) != "1":
        raise InputError(
            f"params.yaml: launcher must be a command that begins with {', '.join(LAUNCHERS[:-1])} "
            f"or {LAUNCHERS[-1]}, got {launcher!r}; if you trust this file, {ANY_LAUNCHER}=1 in "
            "the environment allows any program"
        )
    return words


def rank_and_world_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; (0, 1) without torchrun.

    Raises:
        InputError: If the environment variables ``RANK`` and ``WORLD_SIZE`` are not such numbers.
    """
    rank = os.environ.get("RANK", "0")
    world_size = os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size)):
        raise InputError(
            "the variables RANK and WORLD_SIZE must be whole numbers with 0 <= RANK < WORLD_SIZE, "
            f"as torchrun sets them, got {rank!r} and {world_size!r}; unset them, or start with "
            "torchrun"
        )
    return int(rank), int(world_size)


def remember_starter() -> None:
    """Note which process started this stage of DVC, for the processes that torchrun starts too."""
    if "DVC_ROOT" in os.environ:
        os.environ.setdefault(STARTER, f"{os.getppid()} {platform.node()}")


def check_starter() -> None:
    """End work whose DVC was killed, before another DVC starts it again.

    Launchers such as srun may run the work on another machine, which cannot look the process up.

    Raises:
        InputError: If the process that started this stage of DVC has died.
    """
    starter, _, machine = os.environ.get(STARTER, "").partition(" ")
    if not starter or machine != platform.node():
        return
    try:
        os.kill(int(starter), 0)  # which sends no signal
    except (ProcessLookupError, PermissionError) as error:
        raise InputError(
            f"process {starter}, which started this stage, must live until its end, but has died; "
            "run the same command to continue from here"
        ) from error


def is_first_process() -> bool:
    """Return whether this process is the only one, or the first of several."""
    return rank_and_world_size()[0] == 0


def from_first_process(value: Any, device: torch.device) -> Any:
    """Return the value that the first process has.

    Args:
        value: Any Python object; of the other processes it does not count.
        device: Where the processes exchange tensors.
    """
    if rank_and_world_size()[1] == 1:
        return value
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, device=device)
    return values[0]


@contextmanager
def process_group(backend: str) -> Iterator[None]:
    """Join the default process group of ``torch.distributed``; do nothing for a single process.

    Args:
        backend: ``gloo`` for tensors on CPUs, ``nccl`` for tensors on GPUs.
    Raises:
        InputError: If there are several processes, and the environment does not say where the first
            one is.
    """
    if rank_and_world_size()[1] == 1:
        yield
        return
    if not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        raise InputError(
            "the variables MASTER_ADDR and MASTER_PORT must be set together with "
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}, as torchrun sets them, but are not; unset "
            "WORLD_SIZE, or start with torchrun"
        )
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=TIMEOUT)
    yield
    # not after an error: it might wait for the others, which wait for this process
    dist.destroy_process_group()


@contextmanager
def barrier() -> Iterator[Callable[[], Any]]:
    """Join the processes, and yield a function that waits until every process has called it."""
    if rank_and_world_size()[1] == 1:
        yield lambda: None
        return
    import torch.distributed as dist

    with process_group("gloo"):
        yield dist.barrier
