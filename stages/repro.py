"""Run the pipeline, several cells at once, and report its progress: what `make repro` does.

DVC says which cells have changed, and restores those that are in its run cache. The others run, and
their outputs are committed to DVC. Cells run in waves: a cell needs only cells of earlier waves.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rs.command_line import preload
from rs.command_line.shell import INTERRUPTED, ParamsFile, run
from rs.errors import InputError
from rs.runtime.progress import duration

if TYPE_CHECKING:  # half a second to import
    from dvc.repo import Repo
    from dvc.stage import Stage


class Progress:
    """The number of cells that are done, printed as a line per cell."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self.done = 0
        self.start = time.monotonic()

    def finish(self, cell: str, how: str = "") -> None:
        """Print that a cell is done, and how long the remaining cells may take."""
        self.done += 1
        line = f"cell {self.done} of {self.cells}: {cell}{how}"
        if self.cells / 10 <= self.done < self.cells:
            seconds = (time.monotonic() - self.start) / self.done * (self.cells - self.done)
            line += f", about {duration(seconds)} left"
        print(line, flush=True)


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Cells that run at the same time.")] = 2,
    dry: Annotated[bool, typer.Option("--dry", help="Only list the cells that would run.")] = False,
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Run all cells of the pipeline that have changed; `dvc repro` does the same, one by one.

    With --dry only the stage fingerprint_first runs, which notes the present parameters and code.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    from rs.params import read_params
    from rs.recipes import load_section
    from rs.runtime import arithmetic
    from rs.study.grid import cells

    values = read_params(params)
    dataset = load_section(values, "dataset", str)
    cells(values, dataset)  # reports a wrong grid more clearly than DVC does
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    os.environ["PATH"] = os.pathsep.join(path)
    first = ["fingerprint_first"] if dry else ["fingerprint_first", "prepare"]
    try:
        with Repo() as repo:
            repo.reproduce(first)
            if dry:
                list_cells(repo)
                return
            waves = waves_of_changed_cells(repo)
            progress = Progress(sum(map(len, waves)))
            os.environ.update(arithmetic.environment_of(values, dataset))
            # not all systems fork safely, and a launcher replaces the process of a command, which
            # must not happen to a fork
            may_fork = sys.platform == "linux" and not values.get("launcher")
            for wave in waves:
                run_wave(repo, wave, jobs, may_fork, progress)
    except DvcException as error:
        reason = error.__cause__ or error
        raise InputError(f"{reason}; fix this and run the same command again") from error
    print(f"Everything is up to date. Open reports/{dataset}/index.html in a browser.")


def list_cells(repo: Repo) -> None:
    """Print the cells that have changed, and the cells that depend on them."""
    changed = changed_cells(repo)
    later = []
    for wave in waves_of_changed_cells(repo):
        later += [cell for cell in wave if cell not in changed]
    if not changed:
        print("Everything is up to date: no cell would run.")
        return
    print(f"Cells that have changed: {len(changed)}")
    for cell in sorted(changed):
        print(f"  {cell}")
    if later:
        print(f"Cells that follow, and run if their inputs change: {len(later)}")
    for cell in later:
        print(f"  {cell}")


def waves_of_changed_cells(repo: Repo) -> list[list[str]]:
    """Return the names of the cells that have changed or depend on changed cells, in waves."""
    from networkx import descendants, topological_generations

    changed = changed_cells(repo)
    needed_by = repo.index.graph.reverse()
    to_run = set()
    for stage in needed_by:
        if stage.addressing in changed:
            to_run |= {stage, *descendants(needed_by, stage)}
    waves = []
    for generation in topological_generations(needed_by):
        names = [stage.addressing for stage in generation if stage in to_run]
        if names:
            waves.append(sorted(names))
    return waves


def changed_cells(repo: Repo) -> set[str]:
    """Return the names of the cells whose dependencies or outputs have changed since they ran."""
    always_changed = {"fingerprint_first"}
    return repo.status().keys() - always_changed


def run_wave(
    repo: Repo, wave: Sequence[str], jobs: int, may_fork: bool, progress: Progress
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
                futures[executor.submit(run_cell, stages[name], may_fork)] = name
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
            f"the cell {name} failed: see above; run the same command again to continue"
        )


def restored(repo: Repo, stage: Stage) -> bool:
    """Delete the outputs of a cell, and restore those of an earlier run from the same inputs.

    Returns:
        Whether there was such a run.
    """
    from dvc.stage.cache import RunCacheNotFoundError

    with repo.lock:
        stage.remove_outs()
        try:
            repo.stage_cache.restore(stage)
        except RunCacheNotFoundError:
            return False
    return True


def run_cell(stage: Stage, may_fork: bool) -> tuple[int, str]:
    """Run the command of a cell; return its exit code and its output."""
    words = shlex.split(stage.cmd)
    with tempfile.NamedTemporaryFile() as output:
        if may_fork:
            _, _, module, *arguments = words  # python -m MODULE ...
            code = preload.run_in_fork(module, arguments, output.name)
        else:
            code = subprocess.run(words, stdout=output, stderr=output, check=False).returncode
        output.seek(0)
        return code, output.read().decode(errors="replace")


def commit(repo: Repo, cells: Sequence[str]) -> None:
    """Commit the outputs of finished cells to DVC.

    A commit writes all of dvc.lock, so the cells of a stage are committed together if all of them
    are finished.
    """
    for stage, group in itertools.groupby(sorted(cells), key=stage_of):
        finished = set(group)
        of_stage = {other.addressing for other in repo.index.stages}
        of_stage = {name for name in of_stage if stage_of(name) == stage}
        targets = [stage] if finished == of_stage else sorted(finished)
        for target in targets:
            repo.commit(target, force=True)


def stage_of(cell: str) -> str:
    """Return the stage of a cell.

    >>> stage_of("certify@digits-macer-0.5-0")
    'certify'
    """
    return cell.partition("@")[0]


if __name__ == "__main__":
    run(main)
