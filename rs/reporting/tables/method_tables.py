"""The tables of a study, in the paper's layout: ACR, certified accuracy, cost, differences, ours
beside the paper's.

Every function takes groups of ``rs.reporting.results.grouped``, so what stands in one table can be
compared, and returns a ``rs.reporting.tables.formatting.Table``: the cells as they are printed, and
the same numbers unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from rs.reporting.results import Groups, best, methods_of, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import (
    EMPTY,
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
METRICS = {
    "acr": "ACR",
    "clean_accuracy": "clean accuracy",
    "certified_accuracy": "certified accuracy",
}


def main_table(groups: Groups) -> Table:
    """Return ACR and clean accuracy of every method at every noise level (the paper's main table).

    The best ACR of a noise level is bold, and so is every ACR that ties with it.
    """
    bests = {sigma: best(methods) for sigma, methods in groups.items()}

    def headline(sigma: float) -> Column:
        def cell(row: Row) -> str:
            group = groups[sigma].get(row["method"])
            if group is None:
                return EMPTY
            return bold(
                f"{with_errors(group.acr)} ({group.accuracy(0.0):.1%})",
                row["method"] in bests[sigma],
            )

        return cell

    columns = {"Method": plain("method")} | {f"σ = {sigma}": headline(sigma) for sigma in groups}
    caption = (
        f"Average certified radius (ACR), with clean accuracy in brackets. {notes.about(groups)}"
    )
    data = [
        {"method": method, "sigma": sigma, "sound": group.sound}
        | group.numbers
        | {"best": method in bests[sigma]}
        for sigma, methods in groups.items()
        for method, group in methods.items()
    ]
    rows = [{"method": name} for name in methods_of(groups)]
    text = [notes.ERRORS, *notes.of_results(results_of(groups))]
    return build_table(caption, columns, rows, text, pd.DataFrame(data))


def certified_table(groups: Groups, sigma: float, radii: Sequence[float]) -> Table:
    """Return certified accuracy at each of ``radii``, and the ACR, at one noise level (the paper's
    appendix).
    """
    methods = groups[sigma]
    rows: list[Row] = [
        {"method": method, "acr": group.acr.value}
        | {radius: group.accuracy(radius) for radius in radii}
        for method, group in methods.items()
    ]
    columns = {f"Method (σ = {sigma})": plain("method")}
    columns |= {_title(radius): plain(radius, ".3f") for radius in radii}
    columns["ACR"] = plain("acr", ".4f")
    caption = (
        "Certified accuracy: the share of images correct with at least this radius, mean over "
        "training seeds; at 0.00 "
        f"the clean accuracy, abstentions being errors. {notes.about(groups)}"
    )
    data = [
        {"sigma": sigma, "method": row["method"], "radius": radius, "accuracy": row[radius]}
        for row in rows
        for radius in radii
    ]
    text = notes.of_results(results_of({sigma: methods}))
    return build_table(caption, columns, rows, text, pd.DataFrame(data))


def _title(radius: float) -> str:
    """Write a radius with two decimals, or with all that it has."""
    return f"{radius:.2f}" if round(radius, 2) == radius else str(radius)


def differences_table(groups: Groups, references: Sequence[str]) -> Table:
    """Return the difference of every method's ACR to each reference's, paired over images."""
    pairs = [(sigma, name) for sigma in groups for name in references if name in groups[sigma]]
    estimates = {
        (sigma, method, name): group.difference_to(groups[sigma][name])
        for sigma, name in pairs
        for method, group in groups[sigma].items()
        if method != name
    }
    rows: list[Row] = [{"method": name} for name in methods_of(groups)]
    for row in rows:
        row |= {
            (sigma, name): value
            for (sigma, method, name), value in estimates.items()
            if method == row["method"]
        }
    columns = {"Method": plain("method")}
    columns |= {f"to {name}, σ = {sigma}": difference((sigma, name)) for sigma, name in pairs}
    caption = (
        "Difference of ACR to a reference method, paired over the same images, and whether it is a "
        "tie. "
        f"{notes.about(groups)}"
    )
    absent = [name for name in references if name not in methods_of(groups)]
    text = [f"{name} is not among the methods: no differences to it." for name in absent]
    text += [notes.ERRORS, *notes.of_results(results_of(groups))]
    keys = ("sigma", "method", "reference")
    data = [
        dict(zip(keys, pair, strict=True)) | numbers(value) for pair, value in estimates.items()
    ]
    return build_table(caption, columns, rows, text, pd.DataFrame(data))


def cost_table(
    groups: Groups, configuration: Callable[[str, float], Row], times: str = notes.WALL
) -> Table:
    """Return hyper-parameters, ACR and training time of every trained method (the paper's table of
    cost).

    ``configuration`` returns the hyper-parameters of a method at a noise level; ``times`` says in
    words what the times are.
    """
    rows: list[Row] = [
        {
            "method": method,
            "sigma": sigma,
            "acr": group.acr.value,
            "training_seconds": group.training_seconds,
        }
        | configuration(method, sigma)
        for sigma, methods in groups.items()
        for method, group in methods.items()
        if group.training_seconds is not None
    ]
    measured = {
        "acr": plain("acr", ".4f"),
        "training_seconds": lambda row: duration(row["training_seconds"]),
    }
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {COST_TITLES.get(name, name): measured.get(name, plain(name)) for name in names}
    caption = f"Main hyper-parameters and training time: {times}. It depends on the machine. {notes.about(groups)}"
    text = notes.of_results(
        [result for result in results_of(groups) if result.training_seconds is not None]
    )
    return build_table(caption, columns, rows, text)


def published_table(groups: Groups, figures: pd.DataFrame) -> Table | None:
    """Return every published figure that the study has too, ours beside it; ``None`` if there is
    none.

    ``figures`` are published figures on the same data set (``rs.reporting.results``).
    """
    kinds = {  # of several groups of a kind, the first one
        (sigma, group.first.kind): group
        for sigma, methods in groups.items()
        for group in reversed(methods.values())
    }
    rows: list[Row] = []
    shown: Groups = {}
    for figure in figures[figures["metric"].isin(METRICS)].to_dict("records"):
        sigma, kind = figure["sigma"], figure["method"]
        if (sigma, kind) in kinds:
            group = shown.setdefault(sigma, {})[kind] = kinds[sigma, kind]
            clean = figure["metric"] == "clean_accuracy"
            value = (
                group.acr.value
                if figure["metric"] == "acr"
                else group.accuracy(0.0 if clean else figure["radius"])
            )
            keys = {name: figure[name] for name in ("table", "method", "sigma", "metric", "radius")}
            rows.append(
                keys
                | {"ours": value, "paper": figure["value"], "difference": value - figure["value"]}
            )
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
    caption = f"Our figures beside the paper's. {notes.about(groups)}"
    text = [notes.PAPER, *notes.of_results(results_of(shown))]
    return build_table(caption, columns, rows, text)


def _metric(row: Row) -> str:
    """Print a metric with its radius."""
    return METRICS[row["metric"]] + (
        "" if pd.isna(row["radius"]) else f" at {_title(row['radius'])}"
    )
