"""A Python that has the large libraries loaded already: ``python -m stages.NAME`` and ``dvc`` as forks of one process.

Most of the time of a small pipeline is the start of its programs: torch takes seconds, and a cell computes for less. A
fork has the words, folder, environment and files of the program that asked for it, imports the project anew from its
folder, and ends as any process does, but that it does not destroy what is left. Its arithmetic is portable, which must
be chosen before libraries are loaded. All forks share one seed of hashes, so a test that compares bytes has one side
made by processes of their own.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import NoReturn

LIBRARIES = (
    "torch", "pandas", "scipy.special", "scipy.stats", "sklearn.datasets", "matplotlib.figure", "safetensors.torch",
    "mpmath", "pydantic", "ruamel.yaml", "tabulate", "typer", "dvc.cli.parser", "dvc.repo.reproduce", "dvc_data.index",
)  # fmt: skip
"""What is loaded; nothing of the project, whose copies differ."""

SCRIPT = """\
#!/bin/sh
case "$1 $2" in
"-m stages."* | "-m dvc") export {portable}; exec "{python}" -IS "{file}" "{socket}" "$@" ;;
*) exec "{python}" "$@" ;;
esac
"""


@functools.cache
def folder() -> Path:
    """The programs ``python`` and ``dvc`` that ask for a fork; the process that forks ends with this one."""
    from rs.runtime.arithmetic import PORTABLE

    temporary = tempfile.TemporaryDirectory(prefix="rs-warm-")
    programs = Path(temporary.name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(programs / "socket"))
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=os.environ | PORTABLE,
        )
    atexit.register(lambda: (server.communicate(), temporary.cleanup()))
    portable = " ".join(f"{name}='{value}'" for name, value in PORTABLE.items())
    paths = {"python": sys.executable, "file": __file__, "socket": programs / "socket"}
    scripts = {
        "python": SCRIPT.format(portable=portable, **paths),
        "dvc": f'#!/bin/sh\nexec "{programs / "python"}" -m dvc "$@"\n',
    }
    for name, text in scripts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def ask(server: str, words: list[str]) -> int:
    """Let a fork be the program of these words, and return its exit code: 1 if it was killed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server)
        request = pickle.dumps((words, os.getcwd(), dict(os.environ)))
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(request)
        return int(connection.makefile().read() or 1)


def serve(listener: socket.socket) -> None:
    """Fork for each connection, until standard input ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while 0 not in select.select([0, listener], [], [])[0]:
        connection, _ = listener.accept()
        length, files, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as stream:
            request = pickle.loads(stream.read(int.from_bytes(length, "big")))
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(connection, files, *request)
        connection.close()
        for file in files:
            os.close(file)


def become(
    connection: socket.socket, files: list[int], words: list[str], cwd: str, environment: dict[str, str]
) -> NoReturn:
    """Be the program that was asked for, and write its exit code into the connection."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path[:0] = [cwd]
    threading.Thread(target=stop_with, args=[connection], daemon=True).start()
    _, module, *sys.argv[1:] = words
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # the end of a Python, but that it takes the memory of the parent apart, which takes longest
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(str((code or 0) & 0xFF).encode())
    os._exit(0)


def stop_with(connection: socket.socket) -> None:
    """Stop this process when the program that asked for it ends."""
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        raise SystemExit(ask(sys.argv[1], sys.argv[2:]))
