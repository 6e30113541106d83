"""The tables of a study, in the paper's layout: ACR, certified accuracy, cost, differences, ours beside the paper's.

Every function takes groups of ``rs.reporting.results.grouped``, so what stands in one table can be compared, and
returns a ``rs.reporting.tables.formatting.Table``: the cells as they are printed, and the same numbers unrounded.
``figures`` are published figures on the same data set (``rs.reporting.results``); there may be none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rs.reporting.results import Group, Groups, best, methods_of, paper_value, results_of, two_sided_name
from rs.reporting.tables import formatting, notes
from rs.reporting.tables.formatting import (
    EMPTY,
    Row,
    Table,
    bold,
    build_table,
    difference,
    formatted,
    marked,
    of_group,
    plain,
)
from rs.runtime.progress import duration
from rs.statistics.resampling import Split

Configurations = Mapping[tuple[str, float], Mapping[str, Any]]
"""Hyper-parameters by method and noise level."""

COST_TITLES = {"method": "Method", "sigma": "σ", "steps": "T", "draws": "m"}
TWO_SIDED: dict[Split, str] = {"even": "ACR, two-sided", "votes": "by n₀ votes"}
METRICS = {"acr": "ACR", "clean_accuracy": "clean accuracy", "certified_accuracy": "certified accuracy"}


def main_table(groups: Groups, figures: pd.DataFrame, everyone: Groups | None = None) -> Table:
    """Return ACR and clean accuracy of every method at every noise level (the paper's main table).

    The best ACR of a noise level is bold, and so is every ACR that ties with it. Where the table does not show
    ``everyone``, a note names the largest ACR of them.
    """
    bests = {sigma: best(methods) for sigma, methods in groups.items()}

    def ours(group: Group) -> str:
        return bold(formatting.headline(group), group.first.name in bests[group.first.sigma])

    def paper(group: Group) -> str:
        acr, clean = (_paper(group, figures, metric) for metric in ("acr", "clean_accuracy"))
        return EMPTY if acr is None else f"{acr:.3f}" if clean is None else f"{acr:.3f} ({100 * clean:.1f}%)"

    columns = {"Method": marked("method")} | {f"σ = {sigma}": of_group(groups[sigma], ours) for sigma in groups}
    printed = [sigma for sigma, methods in groups.items() if _in_paper(methods, figures)]
    columns |= {f"σ = {sigma}, paper": of_group(groups[sigma], paper) for sigma in printed}
    caption = f"Average certified radius (ACR), with clean accuracy in brackets. {notes.about(groups)}"
    data = [
        _row(group, figures) | {"best": method in bests[sigma]}
        for sigma, methods in groups.items()
        for method, group in methods.items()
    ]
    text = notes.of_methods(groups, paper=bool(printed)) + notes.largest(everyone or groups, groups)
    return build_table(caption, columns, _lines(groups), text, pd.DataFrame(data))


def certified_table(groups: Groups, sigma: float, radii: Sequence[float], figures: pd.DataFrame) -> Table:
    """Return certified accuracy at each of ``radii``, and the ACR, at one noise level (the paper's appendix).

    Columns of two-sided ACRs follow where the rows of all methods allow it.
    """
    methods = groups[sigma]
    in_paper = _in_paper(methods, figures)
    rows = [_row(group, figures) | {radius: group.accuracy(radius) for radius in radii} for group in methods.values()]
    columns = {f"Method (σ = {sigma})": marked("method")}
    certified_at = [radius for radius in radii if any(row[radius] > 0 for row in rows)]
    columns |= {_title(radius): plain(radius, ".3f") for radius in certified_at}
    columns["ACR"] = plain("acr", ".4f")
    if two_sided := all(two_sided_name("even") in row for row in rows):
        columns |= {title: plain(two_sided_name(split), ".4f") for split, title in TWO_SIDED.items()}
    if in_paper:
        columns["ACR, paper"] = plain("paper_acr", ".3f")
    caption = (
        "Certified accuracy: the share of images correct with at least this radius; at 0.00 the clean accuracy, "
        f"abstentions being errors. {notes.about(groups)}"
    )
    none = [radius for radius in radii if radius not in certified_at]
    caption += f" At {_title(min(none))} and more every share is 0." if none else ""
    data = [
        {"sigma": sigma, "method": row["method"], "radius": radius, "accuracy": row[radius]}
        | {"paper": _paper(methods[row["method"]], figures, "certified_accuracy", radius)}
        for row in rows
        for radius in radii
    ]
    text = notes.of_methods({sigma: methods}, paper=in_paper, errors=False) + [notes.TWO_SIDED] * two_sided
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
    rows = _lines(groups)
    for row in rows:
        row |= {
            (sigma, name): estimates[sigma, row["method"], name]
            for sigma, name in pairs
            if (sigma, row["method"], name) in estimates
        }
    columns = {"Method": marked("method")}
    columns |= {f"to {name}, σ = {sigma}": difference((sigma, name)) for sigma, name in pairs}
    caption = (
        "Difference of ACR to a reference method ± its paired standard error over the same images; square brackets "
        f"give the error over images and training seeds. {notes.about(groups)}"
    )
    absent = [name for name in references if name not in methods_of(groups)]
    text = [f"{name} is not among the methods: no differences to it." for name in absent]
    text += [notes.TIES, *notes.provenance_notes(results_of(groups))]
    keys = ("sigma", "method", "reference")
    data = [dict(zip(keys, pair, strict=True)) | formatting.numbers(value) for pair, value in estimates.items()]
    return build_table(caption, columns, rows, text, pd.DataFrame(data))


def cost_table(groups: Groups, configurations: Configurations, figures: pd.DataFrame, times: str = notes.WALL) -> Table:
    """Return hyper-parameters, ACR and training time of every trained method (the paper's table of cost).

    ``times`` says in words what the times are.
    """
    rows: list[Row] = [
        {"method": method, "sigma": sigma}
        | dict(configurations.get((method, sigma), {}))
        | {"acr": group.acr.value, "training_seconds": group.training_seconds}
        | {"paper_training_hours": _paper(group, figures, "training_hours")}
        for sigma, methods in groups.items()
        for method, group in methods.items()
        if group.training_seconds is not None
    ]
    measured = {
        "ACR": ("acr", plain("acr", ".4f")),
        "Time": ("training_seconds", formatted("training_seconds", duration)),
        "Time, paper": ("paper_training_hours", plain("paper_training_hours", "g", " h")),
    }
    printed = any(row["paper_training_hours"] is not None for row in rows)
    names = [name for name, _ in measured.values()]
    stated = list(dict.fromkeys(name for row in rows for name in row if name not in names))
    columns = {COST_TITLES.get(name, name): plain(name) for name in stated}
    columns |= {title: column for title, (_, column) in measured.items()}
    v100 = "; the paper's is of one V100" if printed else ""
    caption = (
        f"Main hyper-parameters and training time: {times}. It depends on the machine{v100}. {notes.about(groups)}"
    )
    text = notes.provenance_notes(result for result in results_of(groups) if result.training_seconds is not None)
    data = pd.DataFrame(rows, columns=[*stated, *names])
    return build_table(caption, columns, rows, text, data)


def published_table(groups: Groups, figures: pd.DataFrame) -> Table | None:
    """Return every published figure that the study has too, ours beside it; ``None`` if there is none."""
    kinds = {  # of several groups of a kind, the first one
        (sigma, group.first.kind): group for sigma, methods in groups.items() for group in reversed(methods.values())
    }
    rows: list[Row] = []
    shown: Groups = {}
    for figure in figures[figures["metric"].isin(METRICS)].to_dict("records"):
        sigma, kind = figure["sigma"], figure["method"]
        if (sigma, kind) in kinds:
            group = shown.setdefault(sigma, {})[kind] = kinds[sigma, kind]
            value = _value(group, figure["metric"], figure["radius"])
            keys = {name: figure[name] for name in ("table", "method", "sigma", "metric", "radius")}
            rows.append(keys | {"ours": value, "paper": figure["value"], "difference": value - figure["value"]})
    if not rows:
        return None
    columns = {
        "Method": plain("method"),
        "σ": plain("sigma"),
        "Metric": _metric,
        "Ours": plain("ours", ".3f"),
        "Paper": plain("paper", ".3f"),
        "Difference": formatted("difference", formatting.signed),
        "Paper's table": plain("table"),
    }
    caption = f"Our figures beside the paper's. {notes.about(groups)}"
    text = [notes.PAPER, notes.CLEAN, *notes.provenance_notes(results_of(shown))]
    return build_table(caption, columns, rows, text)


def _metric(row: Row) -> str:
    """Print a metric with its radius."""
    return METRICS[row["metric"]] + ("" if pd.isna(row["radius"]) else f" at {_title(row['radius'])}")


def _value(group: Group, metric: str, radius: float) -> float:
    if metric == "acr":
        return group.acr.value
    return group.accuracy(0.0 if metric == "clean_accuracy" else radius)


def _lines(groups: Groups) -> list[Row]:
    """Return a row for each method, sound if its certificates at all noise levels are."""
    return [
        {"method": name, "sound": all(methods[name].sound for methods in groups.values() if name in methods)}
        for name in methods_of(groups)
    ]


def _row(group: Group, figures: pd.DataFrame) -> Row:
    """Return the numbers of a method at a noise level, and the paper's."""
    keys: Row = {"method": group.first.name, "sigma": group.first.sigma, "sound": group.sound}
    return keys | group.numbers | {f"paper_{name}": _paper(group, figures, name) for name in ("acr", "clean_accuracy")}


def _paper(group: Group, figures: pd.DataFrame, metric: str, radius: float | None = None) -> float | None:
    """Return the paper's figure of the same method or kind of ensemble."""
    return paper_value(figures, group.first.kind, group.first.sigma, metric, radius)


def _in_paper(methods: Mapping[str, Group], figures: pd.DataFrame) -> bool:
    """Whether the paper prints the ACR of one of the methods."""
    return any(_paper(group, figures, "acr") is not None for group in methods.values())
