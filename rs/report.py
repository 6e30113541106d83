"""Everything that a study reports, as file names and their bytes: made whole before the first file is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from rs import figures, files, metrics, study, tables
from rs.errors import InputError
from rs.params import NonNegative, check, section, validated
from rs.published import published
from rs.results import Groups, grouped
from rs.typeset import written

STEPS = 200
"""Points of a curve between radius 0 and the largest certified radius at its noise level."""


@validated
class Settings:
    """Section ``tables`` of params.yaml."""

    radii: Annotated[list[NonNegative], Field(min_length=1)]  # of the tables of certified accuracy, pixels of [0, 1]
    reference: str  # the method to which all are compared, beside advmacer


def report(
    values: dict[str, Any], dataset: str, results: Path, logs: Path, outside: Sequence[Mapping[str, Any]] = ()
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Read the study's cells and make its tables and pictures.

    Args:
        values: The parameters: ``sigmas``, ``methods``, ``seeds``, ``members``, ``member_seeds``, ``tables``.
        dataset: Name of the recipe.
        results: Folder of certificate rows.
        logs: Folder of training logs.
        outside: Arguments of ``rs.study.read_outside`` for every log from elsewhere.
    Returns:
        Files without any wall time, whose bytes depend on the rows and parameters alone; and those with.
    Raises:
        InputError: If a cell is missing or damaged, or cannot be compared with the others.
    """
    settings = check(Settings, section(values, "tables"), "tables")
    cells = study.cells(values, dataset)
    found = [study.read_result(cell, results, logs) for cell in cells]
    for log in outside:
        if log["name"] in {cell.method for cell in cells}:
            raise InputError(f"--outside must give a name that is no method of the study, got {log['name']!r}")
    found += [study.read_outside(beside=found, **log) for log in outside]
    groups, printed = grouped(found), published(study.base_dataset(values, dataset))
    pairs = [(result.method, result.sigma) for result in found]
    configurations = {pair: study.configuration(values, dataset, *pair) for pair in pairs}
    times = written("cost", tables.cost(groups, configurations, printed))
    return numbers(groups, settings, printed), times | history(study.best_acr_over_time(cells, logs))


def numbers(groups: Groups, settings: Settings, printed: pd.DataFrame) -> dict[str, bytes]:
    """Return the tables, metrics and curves that hold no wall time."""
    made = written("main", tables.main(groups, printed))
    for sigma in groups:
        made |= written(f"certified-{sigma}", tables.certified(groups, sigma, settings.radii, printed))
    references = list(dict.fromkeys([settings.reference, "advmacer"]))
    made |= written("differences", tables.differences(groups, references))
    beside = tables.beside_paper(groups, printed)
    made |= {} if beside is None else written("published", beside)
    lines = curves(groups)
    figure = figures.certified_accuracy(lines)
    return made | {
        "metrics.json": (json.dumps(headline_numbers(groups), indent=2, allow_nan=False) + "\n").encode(),
        "curves.csv": _csv(lines),
        "curves.png": figures.png(figure),
        "curves.svg": figures.svg(figure),
    }


def history(best: pd.DataFrame) -> dict[str, bytes]:
    """Return the best ACR so far by training time, and its picture where any run was evaluated."""
    made = {"acr-vs-time.csv": _csv(best)}
    if best.empty:
        return made
    figure = figures.acr_over_time(best)
    return made | {"acr-vs-time.png": figures.png(figure), "acr-vs-time.svg": figures.svg(figure)}


def headline_numbers(groups: Groups) -> dict[str, dict[str, dict[str, float]]]:
    """Return the headline numbers by method, then by noise level."""
    nested: dict[str, dict[str, dict[str, float]]] = {}
    for sigma, methods in groups.items():
        for method, group in methods.items():
            nested.setdefault(method, {})[str(sigma)] = group.numbers()
    return nested


def curves(groups: Groups) -> pd.DataFrame:
    """Return certified accuracy by radius: columns ``sigma method radius accuracy``, mean over the seeds."""
    frames = []
    for sigma, methods in groups.items():
        longest = max(rows["radius"].max() for group in methods.values() for rows in group.rows)
        grid = np.linspace(0, 1.02 * longest or sigma, STEPS + 1)
        for method, group in methods.items():
            shares = np.mean([metrics.certified_accuracy(rows, grid) for rows in group.rows], axis=0)
            line = {"sigma": sigma, "method": method, "radius": grid, "accuracy": shares}
            frames.append(pd.DataFrame(line))
    return pd.concat(frames, ignore_index=True)


def write(folder: Path, made: Mapping[str, bytes]) -> None:
    """Write files into ``folder``, each whole or not at all; others that lie there stay."""
    for name, content in made.items():
        with files.replacing(folder / name) as temporary:
            temporary.write_bytes(content)


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()
