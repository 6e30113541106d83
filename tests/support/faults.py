"""Faults at every change of the disk: ``python -m tests.support.faults MODULE WORDS``.

Runs the command of a module in copies of the current folder, each in a process forked from this
one, which has imported torch. In each copy one fault strikes. The same command must then
end with the files of a run without a fault; otherwise this program fails and names what differs.
"""

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
from contextlib import chdir
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path

from rs.command_line.shell import run
from tests.support.folders import contents
from tests.support.helpers import exit_code

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir"}
"""What Python's audit hooks call the changes of a folder; a replaced file counts as renamed."""

MAY_DIFFER = ("timing", "provenance", "seconds", ".lock")
"""Parts of the names of files with wall times, and of locks, which a killed process leaves open."""


def kill_at(number):
    """Let this process be killed just before its change of the disk with this number."""
    numbers = count()

    def strike(event, arguments):
        if event in CHANGES and next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(strike)


def limit_files(number):
    """Let files have at most so many bytes, as on a full disk: a line may be cut anywhere."""
    size = int(1.4**number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


FAULTS = {kill_at: -signal.SIGKILL, limit_files: 2}
"""Each fault, and the exit code of the process that it strikes."""


def run_in(folder, command, words, prepare=lambda: None):
    """Run a command in a folder by a process of its own; return the exit code."""

    def work():
        os.chdir(folder)
        prepare()
        run(command, words)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def made(folder):
    """Return the files of a folder without those that may differ from run to run."""
    found = contents(folder)
    return {name: found[name] for name in found if not any(word in name for word in MAY_DIFFER)}


def main(module, *words):
    """Strike a command with each fault at every point, until one has nothing left to strike."""
    command = import_module(module).main
    with tempfile.TemporaryDirectory() as temporary:
        unbroken = Path(temporary, "unbroken")
        shutil.copytree(".", unbroken)
        with chdir(unbroken):  # in this process, so that those forked from it need import nothing
            assert exit_code(command, *words) == 0
        expected = made(unbroken)
        for fault, struck in FAULTS.items():
            for number in count():
                trial = Path(temporary, f"{fault.__name__}-{number}")
                shutil.copytree(".", trial)
                code = run_in(trial, command, [*words], partial(fault, number))
                assert code in (0, struck), f"{trial.name} ends with {code}"
                assert run_in(trial, command, [*words]) == 0, f"{trial.name} does not continue"
                found = made(trial)
                names = {*found, *expected}
                different = [name for name in names if found.get(name) != expected.get(name)]
                assert not different, f"{trial.name} leaves other files: {different}"
                shutil.rmtree(trial)
                if code == 0:
                    break
            assert number > 3, f"{fault.__name__} strikes nothing"


if __name__ == "__main__":
    main(*sys.argv[1:])
