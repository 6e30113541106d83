"""Commands that run in a fork of a process with torch: ``rs.command_line.preload``."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rs.command_line import preload
from tests.support.helpers import ROOT

COMMAND = """
import os, sys, time
from pathlib import Path

from rs.command_line.shell import run
from rs.errors import InputError


def main(what: str, out: Path) -> None:
    print("torch" in sys.modules)
    if what == "refuse":
        raise InputError("this must be refused")
    if what == "wait":
        out.write_text(str(os.getpid()))
        time.sleep(100)
    if what == "die":
        os.abort()
    out.write_text(str(Path.cwd()))


if __name__ == "__main__":
    run(main)
"""

CALLER = """
import sys
from rs.command_line.preload import run_in_fork

run_in_fork(sys.argv[1], "command", ["wait", sys.argv[2]], 1)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork safely")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The socket of a process that has imported torch, in a folder with the module ``command``."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "command.py").write_text(COMMAND)
    address = str(folder / "socket")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", preload.__name__, address]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, cwd=folder) as process:
        assert process.stdout.readline() == b"ready\n"
        yield address
        process.send_signal(signal.SIGINT)  # which is for the forks
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def ended(server, what, out):
    """Exit code of a command, and what it has printed."""
    with tempfile.TemporaryFile("w+") as output:
        code = preload.run_in_fork(server, "command", [what, str(out)], output.fileno())
        output.seek(0)
        return code, output.read()


def written(path):
    """The number in a file, once it is there, within a minute."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


def is_gone(pid):
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


def test_a_command_finds_torch_and_has_its_own_output_and_exit_code(server, tmp_path):
    out = tmp_path / "out"
    assert ended(server, "write", out) == (0, "True\n")
    assert out.read_text() == str(Path(server).parent)
    assert ended(server, "refuse", out) == (2, "True\nerror: this must be refused\n")


def test_a_fork_that_dies_is_a_failure_and_the_next_command_runs(server, tmp_path):
    assert ended(server, "die", tmp_path / "out")[0] == 1
    assert ended(server, "write", tmp_path / "out")[0] == 0


def test_a_fork_ends_with_the_process_that_asked_for_it(server, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-c", CALLER, server, str(out)]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as caller:
        fork = written(out)
        caller.kill()
    assert fork != caller.pid
    assert is_gone(fork)
