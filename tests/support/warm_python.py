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

    place = tempfile.TemporaryDirectory(prefix="rs-warm-")
    made = Path(place.name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made / "socket"))
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=os.environ | PORTABLE,
        )
    atexit.register(lambda: (server.communicate(), place.cleanup()))
    portable = " ".join(f"{name}='{value}'" for name, value in PORTABLE.items())
    places = {"python": sys.executable, "file": __file__, "socket": made / "socket"}
    write_program(made / "python", SCRIPT.format(portable=portable, **places))
    write_program(made / "dvc", f'#!/bin/sh\nexec "{made / "python"}" -m dvc "$@"\n')
    return made


def write_program(path: Path, text: str) -> None:
    """Write a file that can be run."""
    path.write_text(text)
    path.chmod(0o755)


# ------------------------------------------------------------------------------------------ who asks


def ask(place: str, words: list[str]) -> int:
    """Let a fork be the program of these words, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        asked = pickle.dumps((words, os.getcwd(), dict(os.environ)))
        socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(asked)
        return int(connection.makefile().read())


# ------------------------------------------------------------------------------------------ who forks


def serve(listener: socket.socket) -> None:
    """Fork for each connection, and write the exit code into it, until standard input ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    running: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([0, listener, woken, *running.values()], [], [])
        for pid, connection in running.items():
            if connection in ready:  # closed by who asked, who was told to stop
                os.kill(pid, signal.SIGTERM)
        if woken in ready:
            woken.recv(4096)
            answer(running)
        if listener in ready:
            connection, _ = listener.accept()
            words, place, environment, files = received(connection)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (connection, listener, woken, wake, *running.values()):
                    one.close()
                become(words, place, environment, files)
            running[pid] = connection
            for file in files:
                os.close(file)
        if 0 in ready:
            return


def answer(running: dict[int, socket.socket]) -> None:
    """Write the exit codes of the forks that have ended."""
    for pid in [*running]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as connection, contextlib.suppress(BrokenPipeError):
                connection.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())


def received(connection: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]]:
    """The words, folder, environment and files of a program."""
    length, files, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        return *pickle.loads(stream.read(int.from_bytes(length, "big"))), files


def become(words: list[str], place: str, environment: dict[str, str], files: list[int]) -> NoReturn:
    """Be the program that was asked for."""
    for own, file in enumerate(files):
        os.dup2(file, own)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    sys.path[:0] = [place]
    _, module, *sys.argv[1:] = words
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # the end of a Python, but that it takes the memory of the parent apart, which takes longest
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        raise SystemExit(ask(sys.argv[1], sys.argv[2:]))
