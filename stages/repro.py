"""Run the pipeline, several cells at once, and say how far it is: what `make repro` does.

DVC says which cells have changed and restores the ones that are in its run cache. The others run,
and their outputs are committed to DVC. Cells run in waves: a cell needs only cells of earlier
waves.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from rs.command_line import preload
from rs.command_line.shell import ParamsFile, run
from rs.errors import InputError

if TYPE_CHECKING:  # half a second to import
    from dvc.repo import Repo
    from dvc.stage import Stage

Runner = Callable[[list[str], IO[bytes]], int]
"""Runs the words of a command, writes what it prints to a file, and returns its exit code."""

INTERRUPTED = 130
"""Exit code of a command after Ctrl-C."""


class Progress:
    """How many cells are done, printed as a line per cell."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self.done = 0
        self.start = time.monotonic()

    def finish(self, cell: str, how: str = "") -> None:
        """Print that a cell is done, and how long the cells that are left may take."""
        self.done += 1
        line = f"cell {self.done} of {self.cells}: {cell}{how}"
        if self.cells / 10 <= self.done < self.cells:
            seconds = (time.monotonic() - self.start) / self.done * (self.cells - self.done)
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
    """Run all cells of the pipeline that have changed; `dvc repro` does the same, one cell after
    the other.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    from rs.params import load_section, read_params
    from rs.runtime import arithmetic
    from rs.study.grid import cells

    values = read_params(params)
    dataset = load_section(values, "dataset", str)
    cells(values, dataset)  # reports a wrong grid more clearly than DVC does
    may_fork = not values.get(
        "launcher"
    )  # a launcher replaces the process of a command, which a fork must not be
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
    with Repo() as repo:
        try:
            repo.reproduce(["fingerprint_first", "prepare"])
        except DvcException as error:
            raise InputError(f"{error}; see above, and run the same command again") from error
        waves = waves_of_changed_cells(repo)
        progress = Progress(sum(map(len, waves)))
        if waves:
            with runner(arithmetic.environment_of(values, dataset), may_fork) as run_command:
                for wave in waves:
                    run_wave(repo, wave, jobs, run_command, progress)
    print(f"Everything is up to date. Open reports/{dataset}/index.html in a browser.")


def waves_of_changed_cells(repo: Repo) -> list[list[str]]:
    """Return the names of the cells that have changed, or depend on those, in waves."""
    from networkx import descendants, topological_generations

    changed = changed_cells(repo)
    needed_by = repo.index.graph.reverse()
    waves = [list(wave) for wave in topological_generations(needed_by)]
    to_run = set()
    for stage in itertools.chain(*waves):
        if stage.addressing in changed:
            to_run |= {stage, *descendants(needed_by, stage)}
    names = [sorted(stage.addressing for stage in wave if stage in to_run) for wave in waves]
    return [wave for wave in names if wave]


def changed_cells(repo: Repo) -> set[str]:
    """Return the names of the cells whose dependencies or outputs have changed since they ran."""
    return repo.status().keys() - {"fingerprint_first"}  # which is always said to have changed


@contextmanager
def runner(environment: dict[str, str], may_fork: bool) -> Iterator[Runner]:
    """Yield a function that runs commands, in forks of a process that has imported torch if the
    system forks safely.
    """
    environment = {**os.environ, **environment}

    def run_as_usual(words: list[str], output: IO[bytes]) -> int:
        return subprocess.run(
            words, env=environment, stdout=output, stderr=output, check=False
        ).returncode

    if sys.platform != "linux" or not may_fork:
        yield run_as_usual
        return
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder, "socket"))
        server = [sys.executable, "-m", preload.__name__, address]
        pipe = subprocess.PIPE

        def run_in_fork(words: list[str], output: IO[bytes]) -> int:
            _, _, module, *arguments = words  # python -m MODULE ...
            return preload.run_in_fork(address, module, arguments, output.fileno())

        with subprocess.Popen(server, stdin=pipe, stdout=pipe, env=environment) as process:
            assert process.stdin
            assert process.stdout
            is_ready = bool(process.stdout.readline())
            try:
                yield run_in_fork if is_ready else run_as_usual
            finally:
                process.stdin.close()


def run_wave(
    repo: Repo, wave: Sequence[str], jobs: int, run_command: Runner, progress: Progress
) -> None:
    """Run the cells of a wave that have changed, and commit their outputs to DVC.

    Raises:
        InputError: If one fails; the outputs of the others are committed.
    """
    changed = changed_cells(repo)
    stages = {stage.addressing: stage for stage in repo.index.stages if stage.addressing in wave}
    finished = []
    failed = []
    with ThreadPoolExecutor(jobs) as executor:
        futures = {}
        for name in wave:
            if name not in changed:
                progress.finish(name, " did not change")
            elif restored(repo, stages[name]):
                finished.append(name)
                progress.finish(name, " was restored from the cache of DVC")
            else:
                futures[executor.submit(run_cell, stages[name], run_command)] = name
        try:
            for future in as_completed(futures):
                name = futures[future]
                code, printed = future.result()
                if code:
                    failed.append((name, code, printed))
                else:
                    finished.append(name)
                    progress.finish(name)
        finally:
            executor.shutdown(cancel_futures=True)
            commit(repo, finished)
    for name, code, printed in failed:
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stderr.write(printed)
        raise InputError(
            f"the cell {name} failed: see above; the same command continues from what is finished"
        )


def restored(repo: Repo, stage: Stage) -> bool:
    """Delete the outputs that are there, and restore those of an earlier run from the same inputs
    if there was one.
    """
    from dvc.stage.cache import RunCacheNotFoundError

    with repo.lock:
        stage.remove_outs()
        try:
            repo.stage_cache.restore(stage)
        except RunCacheNotFoundError:
            return False
    return True


def run_cell(stage: Stage, run_command: Runner) -> tuple[int, str]:
    """Run the command of a cell; return its exit code and what it has printed."""
    with tempfile.TemporaryFile() as output:
        code = run_command(shlex.split(stage.cmd), output)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def commit(repo: Repo, cells: Sequence[str]) -> None:
    """Commit the outputs of finished cells to DVC.

    A commit writes all of dvc.lock, so the cells of a stage are committed together where all of
    them are finished.
    """
    for stage, group in itertools.groupby(sorted(cells), key=lambda cell: cell.partition("@")[0]):
        names = [*group]
        all_of_stage = {
            other.addressing
            for other in repo.index.stages
            if other.addressing.startswith(f"{stage}@")
        }
        for target in [stage] if {*names} == all_of_stage else names:
            repo.commit(target, force=True)


if __name__ == "__main__":
    run(main)
