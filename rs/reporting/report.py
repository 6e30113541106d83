"""Everything that a study reports, as file names and their bytes: made whole before the first file is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from rs import params
from rs.errors import InputError
from rs.params import NonNegative, section, validated
from rs.reporting import ensemble_tables, figures, load, method_tables, variance_tables
from rs.reporting.external_logs import read_outside
from rs.reporting.published import published
from rs.reporting.render import written
from rs.reporting.results import Groups, Result, grouped, only
from rs.statistics import metrics
from rs.statistics.certificate import UNSOUND
from rs.storage import files
from rs.study import grid as study
from rs.study.ensembles import Declared, declared

STEPS = 200
"""Points of a curve between radius 0 and the largest certified radius at its noise level."""

PARTS = ("arithmetic", "model", "training", "certify", "weights", "pool")
"""Sections of a recipe that are no methods."""


@validated
class Settings:
    """Section ``tables`` of params.yaml."""

    radii: Annotated[list[NonNegative], Field(min_length=1)]  # of the tables of certified accuracy, pixels of [0, 1]
    reference: str  # the method to which all are compared, beside advmacer
    combination: str  # of the ensembles that stand beside the methods; it goes without saying in their names


def report(
    values: dict[str, Any],
    dataset: str,
    results: Path,
    logs: Path,
    weights: Path,
    outside: Sequence[Mapping[str, Any]] = (),
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Read the study's cells and make its tables and pictures.

    Args:
        values: The parameters: the grid, ``combinations``, ``ensembles``, ``tables``.
        dataset: Name of the recipe.
        results: Folder of certificate rows.
        logs: Folder of training logs.
        weights: Folder of ensemble weights.
        outside: Arguments of ``rs.reporting.external_logs.read_outside`` for every log from elsewhere.
    Returns:
        Files without any wall time, whose bytes depend on the rows and parameters alone; and those with.
    Raises:
        InputError: If a cell is missing or damaged, or cannot be compared with the others.
    """
    settings = params.load(values, "tables", Settings)
    cells, printed = study.cells(values, dataset), published(study.base_dataset(values, dataset))
    ensembles = declared(values)
    _check_combination(settings.combination, ensembles)
    labels = {one.label(settings.combination) for one in ensembles}
    _check_reference(settings.reference, values, dataset, labels | {log["name"] for log in outside})
    found = [load.read_result(cell, results, logs) for cell in cells]
    for log in outside:
        if log["name"] in {cell.method for cell in cells} | labels:
            raise InputError(f"--outside must give a name that is no method of the study, got {log['name']!r}")
    found += [read_outside(beside=found, **log) for log in outside]
    pairs = [(result.method, result.sigma) for result in found]
    pools = _Pools(ensembles, dataset, section(values, "sigmas"), results, weights, settings.combination)
    together = [*found, *pools.results()]
    everything = grouped(together)
    methods = only(everything, lambda one: one.ensemble is None)
    groups = only(everything, lambda one: one.ensemble is None or one.combination == settings.combination)
    configurations = {pair: study.configuration(values, dataset, *pair) for pair in pairs}
    made = numbers(groups, methods, settings, printed)
    beside = method_tables.beside_paper(everything, printed)
    made |= {} if beside is None else written("published", beside)
    times = written("cost", method_tables.cost(groups, configurations, printed))
    times |= history(load.best_acr_over_time(cells, logs))
    return made | pools.tables(together), times | pools.times(together, printed)


def _check_combination(name: str, ensembles: Sequence[Declared]) -> None:
    known = dict.fromkeys(one.combination for one in ensembles)
    if known and name not in known:
        raise InputError(
            f"params.yaml: tables.combination must be one that ensembles have, {', '.join(known)}; got {name!r}"
        )
    if any(one.combination == name and one.how.scope == UNSOUND for one in ensembles):
        raise InputError(
            f"params.yaml: tables.combination must be one whose certificates are sound, got {name}; its weights depend "
            "on the image"
        )


def _check_reference(name: str, values: dict[str, Any], dataset: str, others: set[str]) -> None:
    """Refuse a name that means nothing; a method that this grid leaves out only makes no differences."""
    sections = {**values.get("defaults", {}), **section(values, f"recipes.{dataset}")}
    known = dict.fromkeys([*(name for name in sections if name not in PARTS), *sorted(others)])
    if name not in known:
        raise InputError(
            f"params.yaml: tables.reference must be a method of recipes.{dataset}, an ensemble or a name of --outside, "
            f"{', '.join(known)}; got {name!r}"
        )


def numbers(groups: Groups, methods: Groups, settings: Settings, printed: pd.DataFrame) -> dict[str, bytes]:
    """Return the tables, metrics and curves that hold no wall time: of all ``groups``, the curves of ``methods``."""
    made = written("main", method_tables.main(groups, printed))
    for sigma in groups:
        made |= written(f"certified-{sigma}", method_tables.certified(groups, sigma, settings.radii, printed))
    references = list(dict.fromkeys([settings.reference, "advmacer"]))
    made |= written("differences", method_tables.differences(groups, references))
    lines = curves(methods)
    figure = figures.certified_accuracy(lines)
    return made | {
        "metrics.json": (json.dumps(headline_numbers(groups), indent=2, allow_nan=False) + "\n").encode(),
        "curves.csv": _csv(lines),
        "curves.png": figures.png(figure),
        "curves.svg": figures.svg(figure),
    }


@dataclass(frozen=True)
class _Pools:
    """The ensembles of a study: what was found, and the tables of it."""

    found: list[Declared]
    dataset: str
    sigmas: list[Any]  # as they stand in the parameters
    results_folder: Path
    weights: Path
    default: str

    def results(self) -> list[Result]:
        """Certificates of every ensemble at every noise level."""
        return [
            load.read_ensemble(one, self.dataset, sigma, self.results_folder, self.default)
            for sigma in self.sigmas
            for one in self.found
        ]

    def tables(self, results: Sequence[Result]) -> dict[str, bytes]:
        """Everything without wall times."""
        if not self.found:
            return {}
        spreads, bounds = (
            load.read_theory(self.weights, self.dataset, self.sigmas, name) for name in ("spreads", "bounds")
        )
        made = written("mixed", variance_tables.mixed(results, self.default, spreads, bounds))
        made |= written("theory", variance_tables.theory(spreads, results))
        made |= written("bounds", variance_tables.bounds_table(bounds, results))
        for sigma in map(float, self.sigmas):
            made |= written(f"ensembles-{sigma}", ensemble_tables.ensembles(results, sigma, self.default))
        points = ensemble_tables.sizes(results, self.default)
        if points.empty:
            return made
        figure = figures.acr_by_members(points)
        return made | {
            "acr-vs-members.csv": _csv(points),
            "acr-vs-members.png": figures.png(figure),
            "acr-vs-members.svg": figures.svg(figure),
        }

    def times(self, results: Sequence[Result], printed: pd.DataFrame) -> dict[str, bytes]:
        """Everything with wall times: the paper's table of weights and the seconds of a certificate."""
        made: dict[str, bytes] = {}
        for sigma in self.sigmas if self.found else ():
            seconds = load.seconds_alone(
                self.found, self.dataset, sigma, self.results_folder, self.weights, self.default
            )
            table = ensemble_tables.weighting(results, float(sigma), seconds, printed)
            made |= written(f"weighting-{float(sigma)}", table)
        return made


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
