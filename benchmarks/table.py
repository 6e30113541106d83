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
from benchmarks.common import N0, ROUNDS, Architecture, machine, network, side_by_side
from benchmarks.forwards import REFERENCE, certification, field_loops, optimized
from benchmarks.sequential import FIRST, GRID, N, Source, answered, kept, logged
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
    of_logs = [logged(logs, method, sigma, FIRST) for sigma in GRID]
    of_rows = [kept(path)._replace(n=N) for path in rows]
    for architecture, sources in (
        (Architecture.resnet110, of_logs),
        (Architecture.resnet8, of_rows),
    ):
        seconds = seconds_of_draws(architecture, n, rounds)
        print("\n".join(table(architecture, steps(sources), seconds, share)))
        names = ", ".join(f"{source.name} at {source.sigma}" for source in sources)
        print(f"\n{names}; {sum(len(source.p) for source in sources):,} images\n")
    print(machine())


def seconds_of_draws(architecture: Architecture, n: int, rounds: int) -> dict[str, float]:
    """Return the seconds of one draw of each way, side by side in one thread; the standard loop in
    its own process.
    """
    import torch

    model, x = network(architecture, torch.device("cpu"))
    with apart(torch.device("cpu"), field_loops, architecture, n, [SIZE]) as loops:
        ways = {REFERENCE: loops[SIZE]}
        ways |= {
            name: certification(optimized(model, x, *key, SIZE), x, n, SIZE)
            for name, key in ENGINES.items()
        }
        for way in ways.values():
            way()
        return {name: spent / (N0 + n) for name, spent in side_by_side(ways, rounds).items()}


def share_of_evaluations(path: Path) -> float:
    """Return the share of its members that a cascade of three evaluates on a draw."""
    rows = certificate_rows.read_rows(path)
    return float(rows["evaluations"].sum() / (3 * (rows["n0"] + rows["n"]).sum()))


def steps(sources: list[Source]) -> Iterator[Step]:
    """Yield the ways to make the tables of these images, each with what the one before it has."""
    engine, int8 = ENGINES
    replays = [answered(source, 0) for source in sources]
    printed = [
        [f"{share:.1%}" for part in (replay.yes, replay.by_all) for share in part.mean(axis=0)]
        for replay in replays
    ]
    pairs = [
        pair
        for cells in printed
        for pair in zip(cells[: len(cells) // 2], cells[len(cells) // 2 :], strict=True)
    ]
    differ = f"{sum(first != second for first, second in pairs)} of {len(pairs)}"
    yield Step("the standard loop", REFERENCE, N0 + N, "")
    yield Step(engine, engine, N0 + N, "")
    drawn = [np.where(source.skipped, 0, N) for source in sources]
    yield Step(
        "+ --shortcut",
        engine,
        N0 + float(np.concatenate(drawn).mean()),
        "none, by its construction",
    )
    taken = [
        np.where(source.skipped, 0, replay.draws)
        for source, replay in zip(sources, replays, strict=True)
    ]
    draws = N0 + float(np.concatenate(taken).mean())
    yield Step("+ --at-radius, all radii of the table", engine, draws, differ)
    yield Step("+ int8", int8, draws, "those of another network")


def table(
    architecture: Architecture, ways: Iterator[Step], seconds: dict[str, float], share: float
) -> Iterator[str]:
    """Yield the lines of the table of one network, and of three members."""
    costs = "draws per image | seconds per image | times cheaper | cells that print differently"
    yield f"| {architecture.value} | {costs} |"
    yield "|---|---:|---:|---:|---|"
    whole = (N0 + N) * seconds[REFERENCE]
    for name, way, draws, differ in ways:
        spent = draws * seconds[way]
        yield f"| {name} | {draws:,.0f} | {spent:,.2f} | {whole / spent:.1f} | {differ} |"
    cascade = 3 * share * spent
    yield f"| three members: the standard loop | {N0 + N:,} | {3 * whole:,.2f} | 1.0 | |"
    cells = f"{draws:,.0f} | {cascade:,.2f} | {3 * whole / cascade:.1f} | at most 0.1 % of draws"
    yield f"| three members: all of the above, as a cascade | {cells} |"


if __name__ == "__main__":
    run(main)
