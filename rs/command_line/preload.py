"""Run commands quickly, in forks of a process that has imported torch already.

Importing torch takes two to four seconds, which is most of the time of a small cell of the
pipeline. So ``make repro`` lets Python's fork server import what the stages need, and run the
commands of the cells in its forks.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

MODULES = [
    "rs.training.run",
    "rs.certification.certify_model",
    "rs.certification.certify_pool",
    "rs.ensemble.fit_weights",
    "rs.command_line.shell",
]
"""Modules that the stages import, and with them torch."""

_LOCK = threading.Lock()
"""Multiprocessing does not allow two threads to start or join processes at once."""


def run_in_fork(module: str, arguments: Sequence[str], output: str) -> int:
    """Run ``python -m module arguments`` in a fork of a process with torch; return the exit code.

    All commands have the arithmetic of the environment in which the first one starts. If this
    process ends first, the fork is interrupted.

    Args:
        module: Module of the command.
        arguments: Its arguments.
        output: Path of a file for what the command prints.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    process = context.Process(target=_run_command, args=(module, arguments, output))
    with _LOCK:
        process.start()
    wait([process.sentinel])
    with _LOCK:
        process.join()
    return process.exitcode or 0


def _run_command(module: str, arguments: Sequence[str], output: str) -> None:
    """Run a command in this process."""
    with Path(output).open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may have ignored it
    threading.Thread(target=_interrupt_with_parent, daemon=True).start()
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _interrupt_with_parent() -> None:
    """Interrupt this process, as Ctrl-C does, when the process that asked for it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)
