"""Commands that run in a fork of a process with torch: ``rs.command_line.preload``."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.helpers import ROOT, python, wait_until

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
from concurrent.futures import ThreadPoolExecutor
from rs.command_line.preload import run_in_fork

def run_command(what):
    return run_in_fork("command", [what, f"{what}.out"], f"{what}.txt")

if __name__ == "__main__":
    with ThreadPoolExecutor() as executor:
        print(*executor.map(run_command, sys.argv[1:]))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork safely")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder has a module ``command``, and one that runs it in forks by threads."""
    monkeypatch.chdir(tmp_path)
    Path("command.py").write_text(COMMAND)
    Path("caller.py").write_text(CALLER)


def test_a_command_finds_torch_and_has_its_own_output_and_exit_code():
    done = python("-m", "caller", "write", "refuse", "die", cwd=Path.cwd())
    assert done.stdout.split() == ["0", "2", "-6"], done.stderr
    assert Path("write.txt").read_text() == "True\n"
    assert Path("write.out").read_text() == str(Path.cwd())
    assert Path("refuse.txt").read_text() == "True\nerror: this must be refused\n"


def test_a_fork_ends_with_the_process_that_asked_for_it():
    out = Path("wait.out")
    # Ctrl-C is ignored, as by processes that a script starts in the background
    script = 'trap \'\' INT; exec "$0" "$@"'
    words = ["sh", "-c", script, sys.executable, "-m", "caller", "wait"]
    with subprocess.Popen(words, env={"PYTHONPATH": str(ROOT)}) as caller:
        wait_until(lambda: out.exists() and out.read_text())
        caller.kill()
    fork = int(out.read_text())
    assert fork != caller.pid
    wait_until(lambda: not Path(f"/proc/{fork}").exists())
    assert sorted(Path("wait.txt").read_text().split()) == ["True", "interrupted"]
