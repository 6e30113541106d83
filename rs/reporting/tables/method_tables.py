"""The tables of methods, in the paper's layout: ACR, certified accuracy, cost, and differences.

Every function takes groups of ``rs.reporting.results.grouped``, so everything in one table can be
compared, and returns a ``rs.reporting.tables.formatting.Table``: the cells as they are printed, and
the same numbers unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from rs.reporting.results import Groups, best, methods_of, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import (
    Column,
    Row,
    Table,
    bold,
    build_table,
    difference,
    numbers,
    plain,
    signed,
    with_errors,
)
from rs.runtime.progress import duration

COST_TITLES = {
    "method": "Method",
    "sigma": "σ",
    "steps": "T",
    "draws": "m",
    "acr": "ACR",
    "training_seconds": "Time",
}
COST_COLUMNS: dict[str, Column] = {
    "acr": plain("acr", ".4f"),
    "training_seconds": lambda row: duration(row["training_seconds"]),
}
METRICS = {
    "acr": "ACR",
    "clean_accuracy": "clean accuracy",
    "certified_accuracy": "certified accuracy",
}


def main_table(groups: Groups) -> Table:
    """Return ACR and clean accuracy of every method and noise level (the paper's main table).

    The best ACR of a noise level is bold, and so is every ACR that ties with it.
    """
    rows: dict[str, Row] = {name: {"method": name} for name in methods_of(groups)}
    columns = {"Method": plain("method")}
    data = []
    for sigma, methods in groups.items():
        columns[f"σ = {sigma}"] = plain(sigma)
        bests = best(methods)
        for name, group in methods.items():
            is_best = name in bests
            headline = f"{with_errors(group.acr)} ({group.accuracy(0.0):.1%})"
            rows[name][sigma] = bold(headline, is_best)
            about = {"method": name, "sigma": sigma, "sound": group.sound}
            data.append({**about, **group.numbers, "best": is_best})
    caption = (
        f"Average certified radius (ACR), with clean accuracy in brackets. {notes.about(groups)}"
    )
    text = [notes.ERRORS, *notes.of_results(results_of(groups))]
    return build_table(caption, columns, list(rows.values()), text, data)


def certified_table(groups: Groups, sigma: float, radii: Sequence[float]) -> Table:
    """Return certified accuracies and the ACR at one noise level (the paper's appendix)."""
    rows: list[Row] = []
    data = []
    for name, group in groups[sigma].items():
        row: Row = {"method": name, "acr": group.acr.value}
        for radius in radii:
            row[radius] = group.accuracy(radius)
            about = {"sigma": sigma, "method": name, "radius": radius}
            data.append({**about, "accuracy": row[radius]})
        rows.append(row)
    columns = {f"Method (σ = {sigma})": plain("method")}
    for radius in radii:
        columns[_title(radius)] = plain(radius, ".3f")
    columns["ACR"] = plain("acr", ".4f")
    caption = (
        "Certified accuracy: the share of images that are correct with at least this radius, mean "
        "over training seeds. At 0.00 it is the clean accuracy, and abstentions are errors. "
        f"{notes.about(groups)}"
    )
    text = notes.of_results(results_of({sigma: groups[sigma]}))
    return build_table(caption, columns, rows, text, data)


def _title(radius: float) -> str:
    """Write a radius with two decimals, or with all that it has."""
    return f"{radius:.2f}" if round(radius, 2) == radius else str(radius)


def differences_table(groups: Groups, references: Sequence[str]) -> Table:
    """Return the difference of every method's ACR to each reference's, paired over images."""
    rows: dict[str, Row] = {name: {"method": name} for name in methods_of(groups)}
    columns = {"Method": plain("method")}
    data = []
    for sigma, methods in groups.items():
        for reference in references:
            if reference not in methods:
                continue
            key = (sigma, reference)
            columns[f"minus {reference}, σ = {sigma}"] = difference(key)
            for name, group in methods.items():
                if name != reference:
                    estimate = group.difference_to(methods[reference])
                    rows[name][key] = estimate
                    about = {"sigma": sigma, "method": name, "reference": reference}
                    data.append({**about, **numbers(estimate)})
    caption = (
        "Difference of ACR to a reference method, paired over the same images, and whether it is "
        f"a tie. {notes.about(groups)}"
    )
    text = []
    for reference in references:
        if reference not in rows:
            text.append(
                f"{reference} is not among the methods, so no differences from it are shown."
            )
    text += [notes.ERRORS, *notes.of_results(results_of(groups))]
    return build_table(caption, columns, list(rows.values()), text, data)


def cost_table(
    groups: Groups, configuration: Callable[[str, float], Row], times: str = notes.WALL
) -> Table:
    """Return hyperparameters, ACR and training time by method (the paper's table of cost).

    Args:
        groups: Those whose training time is not known are left out, such as ensembles.
        configuration: Returns the hyperparameters of a method at a noise level.
        times: How the times were measured, in words.
    """
    rows: list[Row] = []
    for sigma, methods in groups.items():
        for name, group in methods.items():
            if group.training_seconds is not None:
                row = {"method": name, "sigma": sigma, "acr": group.acr.value}
                row["training_seconds"] = group.training_seconds
                rows.append(row | configuration(name, sigma))
    columns: dict[str, Column] = {}
    for row in rows:
        for name in row:
            columns[COST_TITLES.get(name, name)] = COST_COLUMNS.get(name) or plain(name)
    caption = (
        f"Main hyperparameters and training time: {times}. It depends on the machine. "
        f"{notes.about(groups)}"
    )
    timed = [result for result in results_of(groups) if result.training_seconds is not None]
    return build_table(caption, columns, rows, notes.of_results(timed))


def published_table(groups: Groups, figures: pd.DataFrame) -> Table | None:
    """Return the published figures that the study also has, and ours; ``None`` if it has none.

    ``figures`` are published figures on the same data set (``rs.reporting.results``).
    """
    rows: list[Row] = []
    shown: Groups = {}
    for figure in figures[figures["metric"].isin(METRICS)].to_dict("records"):
        sigma = figure["sigma"]
        methods = groups.get(sigma, {}).values()
        of_kind = [group for group in methods if group.first.kind == figure["method"]]
        if not of_kind:
            continue
        group = of_kind[0]
        shown.setdefault(sigma, {})[figure["method"]] = group
        if figure["metric"] == "acr":
            measured = group.acr.value
        else:
            measured = group.accuracy(0.0 if pd.isna(figure["radius"]) else figure["radius"])
        row = {name: figure[name] for name in ("table", "method", "sigma", "metric", "radius")}
        row |= {"ours": measured, "paper": figure["value"]}
        rows.append(row | {"difference": measured - figure["value"]})
    if not rows:
        return None
    columns = {
        "Method": plain("method"),
        "σ": plain("sigma"),
        "Metric": _metric,
        "Ours": plain("ours", ".3f"),
        "Paper": plain("paper", ".3f"),
        "Difference": lambda row: signed(row["difference"]),
        "Paper's table": plain("table"),
    }
    caption = f"Our figures next to the paper's. {notes.about(groups)}"
    text = [notes.PAPER, *notes.of_results(results_of(shown))]
    return build_table(caption, columns, rows, text)


def _metric(row: Row) -> str:
    """Print a metric with its radius."""
    name = METRICS[row["metric"]]
    return name if pd.isna(row["radius"]) else f"{name} at {_title(row['radius'])}"
