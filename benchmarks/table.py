"""What a table of certified accuracies costs on one core: the standard loop, and each step of this
project after it.

``python -m benchmarks.table --logs LOGS --rows ROWS``. Seconds of a draw are measured side by side,
on networks of random weights. The draws of an image are replayed by :mod:`benchmarks.sequential`:
of ResNet-110 on published logs, of ``resnet8`` on rows of this project, each with at most 100,000
draws. The cost is the product of the two. A cascade evaluates the share of its members that its
rows say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.apart import apart
from benchmarks.common import (
    N0,
    ROUNDS,
    Architecture,
    machine,
    markdown_line,
    network,
    side_by_side,
)
from benchmarks.forwards import REFERENCE, certification, field_loops, optimized
from benchmarks.sequential import (
    FIRST,
    GRID,
    N,
    Source,
    answered,
    cells_differ,
    kept,
    logged,
)
from rs.command_line.shell import run
from rs.storage import certificate_rows

SIZE = 100
"""Noisy images at once, and draws that are timed besides n0."""
ENGINES = {"engine compiled, float32": ("compiled", "float32"), "int8": ("quantized", "int8")}


class Step(NamedTuple):
    """One way to make the table."""

    name: str
    way: str  # whose seconds of a draw count
    draws: float  # of an image, n0 included
    differ: str  # cells that print differently, of how many


def main(
    logs: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Folder of published logs.")
    ],
    rows: Annotated[
        list[Path],
        typer.Option(exists=True, dir_okay=False, help="Rows of one resnet8 at each sigma."),
    ],
    cascades: Annotated[
        list[Path],
        typer.Option(exists=True, dir_okay=False, help="Rows of a cascade of three members."),
    ],
    method: Annotated[str, typer.Option(help="Part of the names of the logs.")] = "smoothadv",
    n: Annotated[int, typer.Option(min=100, help=f"Draws that are timed, after {N0}.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = ROUNDS,
) -> None:
    """Print a Markdown table for each network: CPU seconds of the tables of all noise levels, step
    by step.
    """
    import torch

    torch.set_num_threads(1)
    share = float(np.mean([share_of_evaluations(path) for path in cascades]))
    sources_of = {
        Architecture.resnet110: [logged(logs, method, sigma, FIRST) for sigma in GRID],
        Architecture.resnet8: [kept(path)._replace(n=N) for path in rows],
    }
    for architecture, sources in sources_of.items():
        seconds = seconds_of_draws(architecture, n, rounds)
        print("\n".join(table(architecture, steps(sources), seconds, share)))
        names = ", ".join(f"{source.name} at {source.sigma}" for source in sources)
        images = sum(len(source.p) for source in sources)
        print(f"\n{names}; {images:,} images\n")
    print(machine())


def seconds_of_draws(architecture: Architecture, n: int, rounds: int) -> dict[str, float]:
    """Return the seconds of one draw of each way, side by side in one thread; the standard loop in
    its own process.
    """
    import torch

    model, x = network(architecture, torch.device("cpu"))
    with apart(torch.device("cpu"), field_loops, architecture, n, [SIZE]) as loops:
        ways = {REFERENCE: loops[SIZE]}
        for name, (engine, precision) in ENGINES.items():
            ways[name] = certification(optimized(model, x, engine, precision, SIZE), x, n, SIZE)
        for way in ways.values():
            way()
        seconds = side_by_side(ways, rounds)
    return {name: spent / (N0 + n) for name, spent in seconds.items()}


def share_of_evaluations(path: Path) -> float:
    """Return the share of its members that a cascade of three evaluates on a draw."""
    rows = certificate_rows.read_rows(path)
    return float(rows["evaluations"].sum() / (3 * (rows["n0"] + rows["n"]).sum()))


def steps(sources: list[Source]) -> Iterator[Step]:
    """Yield the ways to make the tables of these images, each with what the one before it has."""
    engine, int8 = ENGINES
    drawn_with_shortcut = []
    drawn_at_radii = []
    differ = []
    for source in sources:
        replay = answered(source, 0)
        drawn_with_shortcut.append(np.where(source.skipped, 0, N))
        drawn_at_radii.append(np.where(source.skipped, 0, replay.draws))
        differ.append(cells_differ(replay.yes, replay.by_all))
    draws_with_shortcut = N0 + float(np.concatenate(drawn_with_shortcut).mean())
    draws_at_radii = N0 + float(np.concatenate(drawn_at_radii).mean())
    cells = np.concatenate(differ)
    changed = f"{cells.sum()} of {len(cells)}"
    yield Step("the standard loop", REFERENCE, N0 + N, "")
    yield Step(engine, engine, N0 + N, "")
    yield Step("+ --shortcut", engine, draws_with_shortcut, "none, by its construction")
    yield Step("+ --at-radius, all radii of the table", engine, draws_at_radii, changed)
    yield Step("+ int8", int8, draws_at_radii, "those of another network")


def table(
    architecture: Architecture, ways: Iterator[Step], seconds: dict[str, float], share: float
) -> Iterator[str]:
    """Yield the lines of the table of one network, and of three members."""
    titles = "samples per image | seconds per image | times cheaper | cells that print differently"
    yield f"| {architecture.value} | {titles} |"
    yield "|---|---:|---:|---:|---|"
    whole = (N0 + N) * seconds[REFERENCE]
    for step in ways:
        spent = step.draws * seconds[step.way]
        costs = [f"{step.draws:,.0f}", f"{spent:,.2f}", f"{whole / spent:.1f}"]
        yield markdown_line([step.name, *costs, step.differ])
    cascade = 3 * share * spent
    yield f"| three members: the standard loop | {N0 + N:,} | {3 * whole:,.2f} | 1.0 | |"
    costs = [f"{step.draws:,.0f}", f"{cascade:,.2f}", f"{3 * whole / cascade:.1f}"]
    name = "three members: all of the above, as a cascade"
    yield markdown_line([name, *costs, "at most 0.1% of samples"])


if __name__ == "__main__":
    run(main)
