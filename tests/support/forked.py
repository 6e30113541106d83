"""Processes as torchrun starts them, forked from one that has imported torch.

``python -m tests.support.forked NUMBER MODULE WORDS`` runs the command of a module in so many
processes. Torchrun starts each of them from nothing, and imports torch for itself, which takes
longer than what the tests run.
"""

import os
import socket
import sys
import traceback
from importlib import import_module

from rs.command_line.shell import run


def run_forked(number, work):
    """Call ``work`` in ``number`` processes, and exit with the largest of their exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(shared, TORCHELASTIC_RUN_ID="none")
    started = [_forked(rank, work) for rank in range(number)]
    ends = [os.waitpid(process, 0)[1] for process in started]
    raise SystemExit(max(map(abs, map(os.waitstatus_to_exitcode, ends))))


def _forked(rank, work):
    process = os.fork()
    if process:
        return process
    code = 1
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import torch  # noqa: F401  # before the fork, so once

    count, module, *words = sys.argv[1:]
    command = import_module(module).main
    run_forked(int(count), lambda: run(command, words))
