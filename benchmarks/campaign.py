"""A study in legs: as many cells of the pipeline as fit into the minutes there are, and the rest another time.

``python -m benchmarks.campaign --plan fast --budget-minutes 30 --root PARQUET`` runs commands of dvc.yaml, without DVC,
in the order of ``benchmarks/plans/PLAN.yaml``. When the time is over it stops the command that runs, whose work is kept
in the folder of unfinished work, and the next call continues there. What is finished lies where the pipeline puts it:
``dvc commit`` takes it over, and ``dvc repro`` does not make it again. ``campaign.json`` says what is finished; it,
``.work``, ``models``, ``logs``, ``results`` and the like are what has to travel to another machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.legs import overlap
from benchmarks.plan import Step, read_plan
from rs.command_line.shell import run
from rs.errors import InputError
from rs.runtime import scratch
from rs.storage import files

STATE = Path("campaign.json")
PATIENCE = 20.0
"""Seconds a command has to stop when it is told to."""

SHORTEST = 10.0
"""Seconds for which nothing is begun."""


def main(
    plan: Annotated[str, typer.Option(help="A file *.yaml, or the name of one in benchmarks/plans.")],
    budget_minutes: Annotated[float, typer.Option(min=0, help="Stop after so many minutes; 0 only lists.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder of the raw data, in the parquet layout of the Hugging Face hub.")
    ] = None,
    cells: Annotated[
        bool, typer.Option("--cells", help="Print the names of the pipeline's cells that are finished, and stop.")
    ] = False,
) -> None:
    """Run what fits of a plan; a campaign that is stopped, or killed, continues where it was."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: told to stop; the same command continues"))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((scratch.root() / "inductor").resolve()))
    deadline = time.monotonic() + 60 * budget_minutes
    steps = read_plan(plan, root)
    state = files.read_json(STATE) if STATE.exists() else {}
    if cells:
        print("\n".join(step.name for step in steps if step.name == step.leg.name and finished(step, state)))
        return
    missing: list[Path] = []  # outputs of what failed, and of what needs them
    for number, step in enumerate(steps, 1):
        how = advance(step, state, deadline, missing)
        minutes = sum(state.get(step.name, {}).get("seconds", [])) / 60
        print(f"[{number}/{len(steps)}] {step.name}: {how}, {minutes:.1f} min", flush=True)
    if missing:
        raise InputError("all legs must succeed, but some failed or need one that did; look above, then run again")


def advance(step: Step, state: dict[str, Any], deadline: float, missing: list[Path]) -> str:
    """Take a step, if it is open, there is time, and what it needs is there; say how it stands."""
    if any(overlap(dep, out) for dep in step.leg.deps for out in missing):
        missing += step.leg.outs
        return "waits for one that failed"
    if not finished(step, state) and deadline - time.monotonic() >= SHORTEST:
        try:
            take(step, state, deadline)
        except subprocess.CalledProcessError as error:
            missing += step.leg.outs
            return f"failed with {error.returncode}"
    if not finished(step, state):
        return "open"
    if step.acr is not None:
        check(step)
    return "finished"


def finished(step: Step, state: dict[str, Any]) -> bool:
    """Whether a step was finished, by the command, parameters and code of today, and what it made is there."""
    record = state.get(step.name, {})
    alike = record.get("identity") == step.identity
    return alike and record["finished"] and all(out.exists() for out in step.leg.outs)


def take(step: Step, state: dict[str, Any], deadline: float) -> None:
    """Run a step until it is finished or the time is over, and write down which."""
    for out in step.leg.outs:  # of a command that was killed while it published; DVC removes them as well
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    begun = time.monotonic()
    ended = command(step.words(), deadline - begun)
    record = state.get(step.name, {})
    sittings = record.get("seconds", []) if record.get("identity") == step.identity else []
    sittings = [*sittings, round(time.monotonic() - begun, 3)]
    state[step.name] = {"finished": ended, "seconds": sittings, "identity": step.identity}
    files.write_json(STATE, state)


def command(words: list[str], seconds: float) -> bool:
    """Run a command for so long at most; whether it ended by itself.

    Raises:
        subprocess.CalledProcessError: If it failed; it has said why.
    """
    process = subprocess.Popen(words)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:  # the time is over, or somebody stops this one
            _stop(process)
    if code:
        raise subprocess.CalledProcessError(code, words)
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a command, which torchrun passes on to its own processes; if that takes too long by force."""
    process.terminate()  # not as by Ctrl-C, which what runs in the background may be deaf to
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check(step: Step) -> None:
    """Stop the campaign where the ACR of a step's rows is not what it must be.

    Raises:
        InputError: If it is not.
    """
    from rs.statistics.metrics import acr
    from rs.storage import certificate_rows

    low, high = step.acr
    table = next(out for out in step.leg.outs if out.suffix == ".tsv")
    if not low <= (found := acr(certificate_rows.read(table))) <= high:
        raise InputError(
            f"the ACR of {table} must lie in [{low}, {high}] before anything else is believed, got {found}"
        )


if __name__ == "__main__":
    run(main)
