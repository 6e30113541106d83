"""Start commands quickly, in forks of a process that has imported torch already.

Importing torch takes two to four seconds, which is most of the time of a small cell of the pipeline. So ``make repro``
starts one process that imports what the stages need (:func:`serve`), and names its socket in the environment variable
:data:`SOCKET`. A command that finds this variable sends its arguments, its environment and its standard streams to that
process, which forks; the fork runs the command. Without the variable, a command runs as usual.
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
from pathlib import Path
from typing import NoReturn

SOCKET = "RS_PRELOADED"
"""Environment variable that names the socket of a process with preloaded modules."""

MODULES = (
    "rs.training.run",
    "rs.certification.certify_model",
    "rs.certification.certify_pool",
    "rs.ensemble.fit_weights",
)
"""Modules that the stages import, and with them torch."""

STREAMS = (0, 1, 2)
"""File descriptors of stdin, stdout and stderr."""

LENGTH = 8
"""Bytes of the length of a request."""


def serve(address: str) -> None:
    """Run each command that is sent to the socket ``address`` in a fork of this process, until stdin closes.

    Prints a line once commands may be sent. All commands have the arithmetic of this process, which importing NumPy and
    torch fixes.
    """
    for module in MODULES:
        import_module(module)
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


def run_in_fork(module: str, arguments: Sequence[str]) -> int:
    """Run ``python -m module arguments`` in a fork of the process at :data:`SOCKET`, and return its exit code.

    Ctrl-C interrupts the fork, and so does the end of this process. A fork that is killed has exit code 1.
    """
    request = {
        "module": module,
        "arguments": [*arguments],
        "folder": str(Path.cwd()),
        "environment": {name: value for name, value in os.environ.items() if name != SOCKET},
    }
    content = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        socket.send_fds(connection, [len(content).to_bytes(LENGTH, "big")], STREAMS)
        connection.sendall(content)
        try:
            answer = connection.recv(1)
        except KeyboardInterrupt:
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1)
    return answer[0] if answer else 1


def _run_command(connection: socket.socket) -> NoReturn:
    """Run the command that a connection asks for, send its exit code, and end this process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        length, streams, _, _ = socket.recv_fds(connection, LENGTH, len(STREAMS))
        with connection.makefile("rb") as content:
            request = json.loads(content.read(int.from_bytes(length, "big")))
        for target, stream in zip(STREAMS, streams, strict=True):
            os.dup2(stream, target)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.argv[1:] = request["arguments"]
        threading.Thread(target=_interrupt_when_closed, args=[connection], daemon=True).start()
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(BrokenPipeError):  # the command that asked for it has ended
            connection.sendall(bytes([code % 256]))
        os._exit(code)


def _interrupt_when_closed(connection: socket.socket) -> None:
    """Interrupt this process, as Ctrl-C does, when the command that asked for it is interrupted or has ended."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    serve(sys.argv[1])
