"""Commands that run in a fork of a process with torch: ``rs.command_line.preload``."""

import os
import signal
import subprocess
import sys
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
    print("torch" in sys.modules, os.environ.get("COLOR"), sys.stdin.read())
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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork safely")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The environment of commands that a process with torch runs, among them ``command``."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "command.py").write_text(COMMAND)
    address = str(folder / "socket")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    words = [sys.executable, "-m", preload.__name__, address]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"ready\n"
        yield {**environment, preload.SOCKET: address, "COLOR": "blue"}
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def command(environment, what, out, cwd):
    words = [sys.executable, "-m", "command", what, str(out)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=environment, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ended(environment, what, out, cwd):
    """Exit code, stdout and stderr of a command."""
    process = command(environment, what, out, cwd)
    return *process.communicate("hello", timeout=60), process.returncode


def gone(pid):
    """Whether a process ends within a few seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


def waiting_in_fork(environment, out, cwd):
    """A command that waits, and the process that it has been sent to."""
    process = command(environment, "wait", out, cwd)
    process.stdin.close()
    process.stdin = None
    while not (out.exists() and out.read_text()):
        time.sleep(0.05)
    return process, int(out.read_text())


def test_a_command_has_its_own_folder_environment_streams_and_exit_code(server, tmp_path):
    out = tmp_path / "out"
    assert ended(server, "write", out, tmp_path) == ("True blue hello\n", "", 0)
    assert out.read_text() == str(tmp_path)
    assert ended(server, "refuse", out, tmp_path) == ("True blue hello\n", "error: this must be refused\n", 2)


def test_without_a_server_the_same_command_runs_by_itself(server, tmp_path):
    alone = {name: value for name, value in server.items() if name != preload.SOCKET}
    assert ended(alone, "write", tmp_path / "out", tmp_path) == ("False blue hello\n", "", 0)


def test_a_fork_that_dies_is_a_failure_and_the_next_command_runs(server, tmp_path):
    assert ended(server, "die", tmp_path / "out", tmp_path)[-1] == 1
    assert ended(server, "write", tmp_path / "out", tmp_path)[-1] == 0


def test_ctrl_c_ends_a_fork_as_it_ends_a_command(server, tmp_path):
    process, fork = waiting_in_fork(server, tmp_path / "out", tmp_path)
    assert fork != process.pid
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "interrupted\n"
    assert process.returncode == 130
    assert gone(fork)


def test_a_fork_ends_with_the_command_that_asked_for_it(server, tmp_path):
    process, fork = waiting_in_fork(server, tmp_path / "out", tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert gone(fork)
