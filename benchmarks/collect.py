"""Gather what a campaign has made and git should keep: rows, sidecars, histories and times, never weights.

``python -m benchmarks.collect --plan fast --out studies/fast``. Files lie as in the pipeline; rows of more than 200 kB
are compressed (``.gz``, the same bytes for the same rows), and pandas reads them as they are.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.campaign import STATE, finished
from benchmarks.legs import Leg
from benchmarks.plan import read_plan
from rs.command_line.shell import run
from rs.storage import files

LARGEST = 200_000
"""Bytes of a file that is kept as it is."""

KEPT = ("results", "logs", "reports")
"""Folders of the pipeline, of what is kept; models, data and weights of ensembles are not."""


def main(
    plan: Annotated[str, typer.Option(help="A file *.yaml, or the name of one in benchmarks/plans.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the files; what it has of them is replaced.")],
) -> None:
    """Copy what the finished legs of a plan have made."""
    state = files.read_json(STATE) if STATE.exists() else {}
    for step in read_plan(plan, None):
        for path in _kept(step.leg) if finished(step, state) else ():
            print(keep(path, out))


def _kept(leg: Leg) -> Iterator[Path]:
    for made in leg.outs:
        if any(folder in made.parts[:2] for folder in KEPT):
            yield from sorted(path for path in made.rglob("*") if path.is_file()) if made.is_dir() else [made]


def keep(path: Path, out: Path) -> Path:
    """Copy a file to its place below ``out``, compressed if it is large; returns where it is."""
    data = path.read_bytes()
    small = len(data) <= LARGEST
    kept = out / path if small else out / path.with_name(f"{path.name}.gz")
    with files.replacing(kept) as temporary:
        temporary.write_bytes(data if small else gzip.compress(data, mtime=0))
    (out / path.with_name(f"{path.name}.gz") if small else out / path).unlink(missing_ok=True)
    return kept


if __name__ == "__main__":
    run(main)
