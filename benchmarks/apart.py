"""What others run, measured as they run it: in a process of its own, with the memory that the C
library gives it.

The stages of this project keep the memory of tensors that are freed
(``rs.runtime.device.keep_memory``), which makes any code in their process faster. GPUs have memory
of their own, so for them nothing is apart.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Ways = dict[Any, Callable[[], Any]]


@contextmanager
def apart(device: torch.device, build: Callable[..., Ways], *words: object) -> Iterator[Ways]:
    """Call ``build(device, *words)``, on a CPU in a process of its own; yields functions that call
    its ways there.

    Raises:
        RuntimeError: If that process ends before it is told to; what it had to say is on stderr.
    """
    import torch

    if device.type != "cpu":
        yield build(device, *words)
        return
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    serving = (there, torch.get_num_threads(), build, device, *words)
    process = context.Process(target=_serve, args=serving, daemon=True)
    process.start()
    there.close()
    try:
        yield {name: partial(_ask, process, here, name) for name in _ask(process, here, None)}
    finally:
        process.terminate()
        process.join()
        here.close()


def _ask(process: BaseProcess, here: Connection, name: Hashable) -> Any:
    """What the way of that name returns; the names of all ways for None."""
    try:
        here.send(name)
        return here.recv()
    except (EOFError, ConnectionError) as error:
        process.join()
        raise RuntimeError(
            f"a measuring process must not end, but did, with exit code {process.exitcode}"
        ) from error


def _serve(
    there: Connection,
    threads: int,
    build: Callable[..., Ways],
    device: torch.device,
    *words: object,
) -> None:
    import torch

    torch.set_num_threads(threads)
    ways = build(device, *words)
    while True:
        name = there.recv()
        there.send(list(ways) if name is None else ways[name]())
