"""Run commands quickly, in forks of a process that has imported torch already.

Importing torch takes two to four seconds, which is most of the time of a small cell of the
pipeline. So ``make repro`` starts one process that imports what the stages need (:func:`serve`),
and asks it to run the commands of the cells (:func:`run_in_fork`): the process forks, and the fork
runs the command.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

MODULES = (
    "rs.training.run",
    "rs.certification.certify_model",
    "rs.certification.certify_pool",
    "rs.ensemble.fit_weights",
)
"""Modules that the stages import, and with them torch."""

LENGTH = 8
"""Bytes of the length of a request."""


def serve(address: str) -> None:
    """Run each command that is sent to the socket ``address`` in a fork of this process, until
    stdin closes.

    Prints a line once commands may be sent. All commands have the arithmetic of this process, which
    importing NumPy and torch fixes.
    """
    for module in MODULES:
        import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the forks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # finished forks leave no zombies
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run_command(connection)
            connection.close()


def run_in_fork(address: str, module: str, arguments: Sequence[str], output: int) -> int:
    """Run ``python -m module arguments`` in a fork of the process at a socket, in its folder;
    return the exit code.

    A fork that is killed has exit code 1. If the process that called this function ends first, the
    fork is interrupted.

    Args:
        address: Where :func:`serve` listens.
        module: Module of the command.
        arguments: Its arguments.
        output: File descriptor for what the command prints.
    """
    content = json.dumps([module, *arguments]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(content).to_bytes(LENGTH, "big")], [output])
        connection.sendall(content)
        answer = connection.recv(1)
    return answer[0] if answer else 1


def _run_command(connection: socket.socket) -> NoReturn:
    """Run the command that a connection asks for, send its exit code, and end this process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        length, (output,), _, _ = socket.recv_fds(connection, LENGTH, 1)
        with connection.makefile("rb") as content:
            module, *arguments = json.loads(content.read(int.from_bytes(length, "big")))
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.argv[1:] = arguments
        threading.Thread(target=_interrupt_when_closed, args=[connection], daemon=True).start()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(BrokenPipeError):  # the process that asked for it has ended
            connection.sendall(bytes([code % 256]))
        os._exit(code)


def _interrupt_when_closed(connection: socket.socket) -> None:
    """Interrupt this process, as Ctrl-C does, when the process that asked for it has ended."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    serve(sys.argv[1])
