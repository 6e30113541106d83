"""Everything that a study reports, as file names and their bytes.

All of it is computed before the first file is written, and depends on rows and parameters alone.
Reports of wall time are separate: :func:`report_times`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rs import recipes
from rs.errors import InputError
from rs.recipes import base_dataset
from rs.reporting import claims, figures
from rs.reporting.load import StudyFiles
from rs.reporting.logs import read_several_alone
from rs.reporting.page import study_page
from rs.reporting.page_data import Pictures
from rs.reporting.results import Group, Groups, budget_of, published, results_of
from rs.reporting.tables import ensemble_tables, method_tables, notes, variance_tables
from rs.reporting.tables.formatting import Table, csv, render
from rs.statistics import metrics
from rs.statistics.procedures.early import is_early
from rs.storage import files
from rs.study import grid

STEPS = 200
"""Points of a curve between radius 0 and the largest certified radius at its noise level."""

STEPS_PER_GAIN = 8
"""Steps of a curve between points at which ensembles are compared with a single model."""

Files = dict[str, bytes]
"""Content by file name."""


def make_report(study: StudyFiles, data: Path | None = None) -> Files:
    """Read a study and make its claims, tables and pictures.

    Args:
        study: What its parameters declare, and its folders.
        data: Prepared data set that was certified; ``index.html`` then shows its classes and
            images.
    Raises:
        InputError: If a cell is missing or damaged, or cannot be compared with the others.
    """
    model, _ = recipes.merge(study.values, f"recipes.{study.dataset}.model", optional=True)
    verdicts = claims.findings(study)
    text = claims.claims_text(study, verdicts, model.get("architecture"))
    content = {"claims.md": text.encode()} | _of_methods(study)
    content |= _of_ensembles(study) if study.ensembles else {}
    pictures = Pictures.read(data) if data else None
    html = study_page(study, pictures, claims.verdict_counts(verdicts))
    return content | {"index.html": html}


def report_times(study: StudyFiles) -> Files:
    """Read the times of a study that were measured here; make claims, tables and a picture of them.

    Args:
        study: With its logs, and perhaps ``epoch_seconds`` for all times of training.
    Raises:
        InputError: As :func:`make_report`, or if no training was timed.
    """
    times = notes.WALL if study.epoch_seconds is None else notes.SIDE_BY_SIDE
    configuration = partial(grid.configuration, study.values, study.dataset)
    tables = {"cost": method_tables.cost_table(study.groups, configuration, times)}
    if study.ensembles:
        for sigma in map(float, study.sigmas):
            table = ensemble_tables.weighting_table(study.groups, sigma, study.read_seconds(sigma))
            tables[f"weighting-{sigma}"] = table
    content = _rendered(tables, study)
    content["claims.md"] = claims.times_text(study).encode()
    return content | _picture("acr-vs-time", study.read_best_acr(), figures.draw_acr_over_time)


def write_report(folder: Path, content: Files) -> None:
    """Replace ``folder`` by the files of a report, all or nothing."""
    with files.replacing(folder) as temporary:
        for name, data in content.items():
            files.write_bytes(temporary / name, data)


def _of_methods(study: StudyFiles) -> Files:
    """Return tables, metrics and curves of methods and ensembles of the default combination."""
    shown = study.main_groups
    references = list(dict.fromkeys([study.settings.reference, "advmacer"]))
    tables: dict[str, Table | None] = {"main": method_tables.main_table(shown)}
    for sigma in shown:
        table = method_tables.certified_table(shown, sigma, study.settings.radii)
        tables[f"certified-{sigma}"] = table
    tables["differences"] = method_tables.differences_table(shown, references)
    figures_of_paper = published(base_dataset(study.values, study.dataset))
    tables["published"] = method_tables.published_table(study.groups, figures_of_paper)
    lines = curves(shown)
    radii = {}
    for sigma, line in lines.groupby("sigma"):
        radii[sigma] = line["radius"].unique()[::STEPS_PER_GAIN]
    gains = ensemble_tables.gains(shown, radii)
    content = _rendered(tables, study)
    content["metrics.json"] = headline_numbers(shown)
    content["gains.csv"] = csv(gains)
    n = int(budget_of(shown, "n"))
    alpha = budget_of(shown, "alpha")
    draw = partial(figures.draw_certified_accuracy, gains=gains, n=n, alpha=alpha)
    return content | _picture("curves", lines, draw)


def _of_ensembles(study: StudyFiles) -> Files:
    """Return the tables of ensembles, and of their theory."""
    tables = {
        "theory": variance_tables.theory_table(study.read_theory("spreads")),
        "bounds": variance_tables.bounds_table(study.read_theory("bounds"), study.groups),
    }
    for sigma in map(float, study.sigmas):
        table = ensemble_tables.ensembles_table(study.groups, sigma, study.combination)
        tables[f"ensembles-{sigma}"] = table
    content = _rendered(tables, study)
    by_size = ensemble_tables.acr_by_size(study.groups, study.combination)
    content |= _picture("acr-vs-members", by_size, figures.draw_acr_by_members)
    by_cost = ensemble_tables.equal_cost(study.groups, study.combination)
    return content | _picture("equal-cost", by_cost, figures.draw_acr_by_cost)


def headline_numbers(groups: Groups) -> bytes:
    """Return the ACR of each method, and of the first ensemble, by noise level, as JSON for DVC.

    Every other number of the report is in its tables: DVC shows each one here as a column.
    """
    acrs: dict[str, dict[str, float]] = {}
    for sigma, methods in groups.items():
        ensembles = [name for name, group in methods.items() if group.first.ensemble is not None]
        for name, group in methods.items():
            if name not in ensembles[1:]:
                acrs.setdefault(name, {})[str(sigma)] = group.acr.value
    return (json.dumps({"acr": acrs}, indent=2, allow_nan=False) + "\n").encode()


def curves(groups: Groups) -> pd.DataFrame:
    """Return certified accuracy by radius, mean over the seeds.

    Returns:
        Columns ``sigma method members radius accuracy``.
    """
    lines = []
    for sigma, methods in groups.items():
        longest = max(result.rows["radius"].max() for result in results_of({sigma: methods}))
        radii = np.linspace(0, 1.02 * longest or sigma, STEPS + 1)
        for group in methods.values():
            first = group.first
            line = {"sigma": first.sigma, "method": first.name}
            line |= {"members": len(first.members) or 1, "radius": radii}
            lines.append(pd.DataFrame(line | {"accuracy": group.accuracies(radii)}))
    return pd.concat(lines, ignore_index=True)


def draw_files(paths: Sequence[Path], out: Path, **stated: float | None) -> None:
    """Draw certified accuracy by radius of row files into a PNG or SVG, by noise level.

    Args:
        paths: Rows of this project, or logs in Cohen's six-column format. A line is named after its
            file and the folders below the one that all share.
        out: A file whose name ends in .png or .svg; it is replaced.
        stated: ``sigma``, ``n0``, ``n`` and ``alpha`` of logs.
    Raises:
        InputError: If the name ends otherwise, or a file has no labels, radii or sigma.
    """
    check_picture(out)
    groups: Groups = {}
    for path, result in zip(paths, read_several_alone(paths, **stated), strict=True):
        has_radii = not is_early(metrics.mode_of(result.rows))
        if not has_radii or not metrics.has_labels(result.rows):
            raise InputError(f"{path} must have labels and radii to be drawn, but has none")
        if np.isnan(result.sigma):
            raise InputError(
                f"{path} must have a noise level to be drawn, but is a log that states none; give "
                "--sigma"
            )
        # legends leave out names that begin with _, and take $ for formulas
        name = re.sub("^_", " _", result.name).replace("$", r"\$")
        groups.setdefault(result.sigma, {})[name] = Group((replace(result, name=name),))
    figure = figures.draw_certified_accuracy(curves(groups))
    figure.axes[0].set_ylabel("")  # files may be of single models or of ensembles
    _freeze_layout(figure)
    write_picture(out, figure)


def check_picture(out: Path) -> None:
    """Check that pictures can be written to a file of this name.

    Raises:
        InputError: If its name ends neither in .png nor in .svg.
    """
    if out.suffix not in (".png", ".svg"):
        raise InputError(f"the picture must be a file *.png or *.svg, got {out}")


def write_picture(out: Path, figure: Figure) -> None:
    """Write a picture as PNG or SVG, as the name of the file says."""
    files.write_bytes(out, drawn(figure, out.suffix[1:]))


def _rendered(tables: Mapping[str, Table | None], study: StudyFiles) -> Files:
    """Return the files of tables, without None, each with the remarks on the data."""
    content: Files = {}
    for name, table in tables.items():
        if table is not None:
            content |= render(name, replace(table, notes=[*table.notes, *study.settings.remarks]))
    return content


def _picture(name: str, data: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure]) -> Files:
    """Return data as CSV and, unless empty, as a picture."""
    table: Files = {f"{name}.csv": csv(data)}
    if data.empty:
        return table
    figure = draw(data)
    _freeze_layout(figure)
    for form in ("png", "svg"):
        table[f"{name}.{form}"] = drawn(figure, form)
    return table


def _freeze_layout(figure: Figure) -> None:
    """Lay out a finished picture for the last time; otherwise each format would do it again."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def drawn(figure: Figure, form: str) -> bytes:
    """Return a picture as ``png`` or ``svg``, whose bytes depend on what it shows alone."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "rs"}):
        if form == "png":
            figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
        else:
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
