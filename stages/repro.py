"""Run the pipeline, several cells at once, and say how far it is: what `make repro` does."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Annotated

import typer

from rs.command_line import preload
from rs.command_line.shell import ParamsFile, run

DVC = [sys.executable, "-m", "dvc"]
SHARES_PER_JOB = 2
"""Parts that the cells of a wave are divided into for each job: more parts balance better, and start DVC more often."""

STARTS = re.compile(r"^(?:Running stage|Stage) '([^']+)'")
"""What DVC prints when it runs a cell, or finds that nothing has changed for it."""

TAIL = 30
"""Lines of the output of a failed command that are shown."""


class Progress:
    """How many cells are done, printed as a line per cell."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self.number = 0
        self.start = time.monotonic()
        self.lock = Lock()

    def begin(self, cell: str) -> None:
        """Print that a cell begins, and how long the cells that are left may take."""
        with self.lock:
            done = self.number
            self.number += 1
            line = f"cell {self.number} of {self.cells}: {cell}"
            if done >= self.cells / 10:
                seconds = (time.monotonic() - self.start) / done * (self.cells - done)
                line += f", {time_left(seconds)}"
            print(line, flush=True)


def time_left(seconds: float) -> str:
    """Describe the time that is left.

    >>> time_left(250)
    'about 4 minutes left'
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute left"
    return f"about {minutes} minute{'s' if minutes > 1 else ''} left"


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Cells that run at once.")] = 2,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Run all cells of the pipeline that have changed; `dvc repro` does the same, one cell after the other."""
    from rs.params import load_section, read_params
    from rs.runtime import arithmetic
    from rs.study.grid import cells

    values = read_params(params)
    dataset = load_section(values, "dataset", str)
    cells(values, dataset)  # refuses what DVC would refuse in words of its own
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ.update(arithmetic.environment_of(values, dataset))
    waves = waves_of_changed_cells()
    progress = Progress(sum(map(len, waves)))
    with preloaded() if progress.cells > jobs else nullcontext():
        for wave in waves:
            run_wave(wave, jobs, progress)
    print(f"Everything is up to date. Open reports/{dataset}/index.html in a browser.")


def waves_of_changed_cells() -> list[list[str]]:
    """Return the cells that have changed or depend on those, in waves: a cell needs only cells of earlier waves.

    What cells depend on is written down first.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from networkx import descendants, topological_generations

    from rs.errors import InputError

    with Repo() as repo:
        try:
            repo.reproduce(["fingerprint_first", "prepare"])
        except DvcException as error:
            raise InputError(f"{error}; see above, and run the same command again") from error
        changed = repo.status().keys() - {"fingerprint_first"}  # which is always said to have changed
        needed_by = repo.index.graph.reverse()
    waves = [list(wave) for wave in topological_generations(needed_by)]
    to_run = set()
    for stage in itertools.chain(*waves):
        if stage.addressing in changed:
            to_run |= {stage, *descendants(needed_by, stage)}
    cells = [sorted(stage.addressing for stage in wave if stage in to_run) for wave in waves]
    return [wave for wave in cells if wave]


@contextmanager
def preloaded() -> Iterator[None]:
    """Let commands run in forks of a process that has imported torch, where the operating system forks safely."""
    if sys.platform != "linux":
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder, "socket"))
        server = [sys.executable, "-m", preload.__name__, address]
        pipe = subprocess.PIPE
        with subprocess.Popen(server, stdin=pipe, stdout=pipe, start_new_session=True) as process:
            assert process.stdin
            assert process.stdout
            if process.stdout.readline():  # else it has failed, and commands run as usual
                os.environ[preload.SOCKET] = address
            try:
                yield
            finally:
                os.environ.pop(preload.SOCKET, None)
                process.stdin.close()


def run_wave(cells: Sequence[str], jobs: int, progress: Progress) -> None:
    """Run cells that do not need each other, in several processes of DVC.

    With ``--single-item``, DVC does not look at the cells that these depend on.
    """
    size = -(-len(cells) // (SHARES_PER_JOB * jobs))
    shares = [cells[start : start + size] for start in range(0, len(cells), size)]
    with ThreadPoolExecutor(jobs) as executor:
        words = ["--wait-for-lock", "repro", "--single-item"]
        futures = [executor.submit(run_dvc, [*words, *share], progress) for share in shares]
        try:
            for future in futures:
                future.result()
        finally:
            executor.shutdown(cancel_futures=True)


def run_dvc(words: Sequence[str], progress: Progress) -> None:
    """Run a command of DVC, and print which cells begin; its output is shown only if it fails.

    Raises:
        InputError: If it fails.
    """
    from rs.errors import InputError

    lines = []
    with subprocess.Popen(
        [*DVC, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            begun = STARTS.match(line)
            if begun:
                progress.begin(begun[1])
    if process.returncode:
        sys.stderr.writelines(lines[-TAIL:])
        raise InputError(f"dvc {' '.join(words)} failed: see above; the same command continues from what is finished")


if __name__ == "__main__":
    run(main)
