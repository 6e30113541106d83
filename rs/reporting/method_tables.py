"""The tables of a study, in the paper's layout: ACR, certified accuracy, cost, differences, ours beside the paper's.

Every function takes the groups of ``rs.reporting.results.grouped``, so what stands in one table can be compared, and
returns a ``rs.reporting.render.Table``: the cells as they are printed, and the same numbers unrounded. ``figures`` are
published figures on the same data set (``rs.reporting.published``); there may be none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rs.reporting import columns, formatting
from rs.reporting.formatting import about, best, label, methods_of, paper_value
from rs.reporting.render import EMPTY, Cell, Table
from rs.reporting.results import Group, Groups

Configurations = Mapping[tuple[str, float], Mapping[str, Any]]
"""Hyper-parameters by method and noise level."""

COST_NAMES = {"steps": "T", "draws": "m"}
KINDS = {"acr": "ACR", "clean_accuracy": "clean accuracy", "certified_accuracy": "certified accuracy"}


def main(groups: Groups, figures: pd.DataFrame) -> Table:
    """Return ACR and clean accuracy of every method at every noise level (the paper's main table).

    The best ACR of a noise level is bold, and so is every ACR that ties with it.
    """
    printed = [sigma for sigma in groups if formatting.in_paper(figures, list(groups[sigma]), sigma)]
    bests = {sigma: best(methods) for sigma, methods in groups.items()}

    def ours(method: str, sigma: float) -> Cell:
        if method not in groups[sigma]:
            return EMPTY
        return Cell(formatting.headline(groups[sigma][method]), method in bests[sigma])

    body = [
        [
            label(groups, method),
            *(ours(method, sigma) for sigma in groups),
            *(formatting.paper_headline(figures, method, sigma) for sigma in printed),
        ]
        for method in methods_of(groups)
    ]
    data = [
        _numbers(group, figures) | {"best": method in bests[sigma]}
        for sigma, methods in groups.items()
        for method, group in methods.items()
    ]
    header = ["Method", *(f"σ = {sigma}" for sigma in groups), *(f"σ = {sigma}, paper" for sigma in printed)]
    caption = f"Average certified radius (ACR), with clean accuracy in brackets. {about(groups)}"
    return Table("tab:main", caption, header, body, pd.DataFrame(data), formatting.notes(groups, bool(printed)))


def certified(groups: Groups, sigma: float, radii: Sequence[float], figures: pd.DataFrame) -> Table:
    """Return certified accuracy at each of ``radii``, and the ACR, at one noise level (the paper's appendix).

    Bold are the largest printed share of a column, and the ACR as in :func:`main`. A column of two-sided ACRs
    follows where the rows of all methods allow it.
    """
    methods = groups[sigma]
    shares = pd.DataFrame({m: [round(group.accuracy(r), 3) for r in radii] for m, group in methods.items()})
    top = shares[[method for method, group in methods.items() if group.sound]].max(axis=1)
    of_acr = _acr_columns(methods, sigma, figures)
    body = [
        [
            label({sigma: methods}, method),
            *(Cell(f"{v:.3f}", group.sound and v == t > 0) for v, t in zip(shares[method], top, strict=True)),
            *(cells[method] for cells in of_acr.values()),
        ]
        for method, group in methods.items()
    ]
    header = [f"Method (σ = {sigma})", *(f"{r:.2f}" for r in radii), *of_acr]
    caption = (
        "Certified accuracy: the share of images correct with at least this radius; at 0.00 the clean accuracy, "
        f"abstentions being errors. {about(groups)}"
    )
    notes = formatting.notes({sigma: methods}, "ACR, paper" in of_acr, errors=False)
    data = _accuracies(methods, sigma, radii, figures)
    return Table(f"tab:certified-{sigma}", caption, header, body, data, notes)


def differences(groups: Groups, references: Sequence[str]) -> Table:
    """Return the difference of every method's ACR to each reference's, paired over images."""
    pairs = [(sigma, name) for sigma in groups for name in references if name in groups[sigma]]
    facts = {
        (method, sigma, name): group.less(groups[sigma][name])
        for sigma, name in pairs
        for method, group in groups[sigma].items()
        if method != name
    }

    def cell(method: str, sigma: float, name: str) -> Cell:
        made = facts.get((method, sigma, name))
        return EMPTY if made is None else Cell(formatting.difference(made))

    body = [
        [label(groups, method), *(cell(method, sigma, name) for sigma, name in pairs)] for method in methods_of(groups)
    ]
    keys = ["sigma", "method", "reference"]
    data = [dict(zip(keys, (s, m, r), strict=True)) | columns.numbers(made) for (m, s, r), made in facts.items()]
    caption = (
        "Difference of ACR to a reference method ± its paired standard error over the same images; square brackets "
        f"give the standard error over images and training seeds. {about(groups)}"
    )
    absent = [name for name in references if name not in methods_of(groups)]
    notes = [f"{name} is not among the methods: no differences to it." for name in absent]
    notes += [formatting.TIES, *formatting.unlike(formatting.results_of(groups))]
    frame = pd.DataFrame(data)
    header = ["Method", *(f"to {name}, σ = {sigma}" for sigma, name in pairs)]
    return Table("tab:differences", caption, header, body, frame, notes)


def cost(groups: Groups, configurations: Configurations, figures: pd.DataFrame) -> Table:
    """Return hyper-parameters, ACR and training time of every trained method (the paper's table of cost)."""
    data = [
        {"method": method, "sigma": sigma}
        | dict(configurations.get((method, sigma), {}))
        | {"acr": group.acr.value, "training_seconds": group.training_seconds}
        | {"paper_training_hours": paper_value(figures, method, sigma, "training_hours")}
        for sigma, methods in groups.items()
        for method, group in methods.items()
        if group.training_seconds is not None
    ]
    numbers = ("acr", "training_seconds", "paper_training_hours")
    names = list(dict.fromkeys(name for row in data for name in row if name not in numbers))
    body = [
        [
            *(Cell(str(row[name])) if name in row else EMPTY for name in names),
            Cell(f"{row['acr']:.3f}"),
            Cell(formatting.duration(row["training_seconds"])),
            EMPTY if row["paper_training_hours"] is None else Cell(f"{row['paper_training_hours']:g} h"),
        ]
        for row in data
    ]
    titles = {"method": "Method", "sigma": "σ"} | COST_NAMES
    header = [*(titles.get(name, name) for name in names), "ACR", "Time", "Time, paper"]
    caption = (
        "Main hyper-parameters and training time: wall time, mean over seeds, evaluation excluded. It depends on the "
        f"machine; the paper's is of one V100. {about(groups)}"
    )
    shown = [result for result in formatting.results_of(groups) if result.training_seconds is not None]
    notes = formatting.unlike(shown)
    return Table("tab:cost", caption, header, body, pd.DataFrame(data, columns=[*names, *numbers]), notes)


def beside_paper(groups: Groups, figures: pd.DataFrame) -> Table | None:
    """Return every published figure that the study has too, ours beside it; ``None`` if there is none."""
    data, shown = [], {}
    kinds = {
        sigma: {group.results[0].kind: group for group in reversed(methods.values())}
        for sigma, methods in groups.items()
    }
    for figure in figures[figures["metric"].isin(KINDS)].to_dict("records"):
        group = kinds.get(figure["sigma"], {}).get(figure["method"])
        if group is not None:
            shown.setdefault(figure["sigma"], {})[figure["method"]] = group
            ours = _value(group, figure["metric"], figure["radius"])
            keys = {name: figure[name] for name in ("table", "method", "sigma", "metric", "radius")}
            data.append(keys | {"ours": ours, "paper": figure["value"], "difference": ours - figure["value"]})
    if not data:
        return None
    body = [[Cell(text) for text in _beside_texts(row)] for row in data]
    header = ["Method", "σ", "Metric", "Ours", "Paper", "Difference", "Paper's table"]
    caption = f"Our figures beside the paper's. {about(groups)}"
    notes = [formatting.PAPER, formatting.CLEAN, *formatting.unlike(formatting.results_of(shown))]
    return Table("tab:published", caption, header, body, pd.DataFrame(data), notes)


def _beside_texts(row: Mapping[str, Any]) -> list[str]:
    at = "" if pd.isna(row["radius"]) else f" at {row['radius']:.2f}"
    numbers = [f"{row['ours']:.3f}", f"{row['paper']:.3f}", formatting.signed(row["difference"])]
    return [row["method"], str(row["sigma"]), KINDS[row["metric"]] + at, *numbers, row["table"]]


def _value(group: Group, metric: str, radius: float) -> float:
    if metric == "acr":
        return group.acr.value
    return group.accuracy(0.0 if metric == "clean_accuracy" else radius)


def _numbers(group: Group, figures: pd.DataFrame) -> dict[str, Any]:
    """Return one line of the main table's data."""
    result = group.results[0]
    paper = {
        f"paper_{name}": paper_value(figures, result.method, result.sigma, name) for name in ("acr", "clean_accuracy")
    }
    return {"method": result.method, "sigma": result.sigma, "sound": group.sound} | group.numbers() | paper


def _acr_columns(methods: Mapping[str, Group], sigma: float, figures: pd.DataFrame) -> dict[str, dict[str, Cell]]:
    """Return the ACR columns of a table of certified accuracies: title, then cell by method."""
    numbers, bests = {method: group.numbers() for method, group in methods.items()}, best(methods)
    found = {"ACR": {m: Cell(f"{of['acr']:.3f}", m in bests) for m, of in numbers.items()}}
    if all("acr_two_sided" in of for of in numbers.values()):
        found["ACR, two-sided"] = {m: Cell(f"{of['acr_two_sided']:.3f}") for m, of in numbers.items()}
    if formatting.in_paper(figures, list(methods), sigma):
        known = {method: paper_value(figures, method, sigma, "acr") for method in methods}
        found["ACR, paper"] = {m: EMPTY if v is None else Cell(f"{v:.3f}") for m, v in known.items()}
    return found


def _accuracies(
    methods: Mapping[str, Group], sigma: float, radii: Sequence[float], figures: pd.DataFrame
) -> pd.DataFrame:
    """Return certified accuracy by method and radius, with the published one."""
    data = []
    for method, group in methods.items():
        for r in radii:
            paper = paper_value(figures, method, sigma, "certified_accuracy", r)
            data.append({"sigma": sigma, "method": method, "radius": r, "accuracy": group.accuracy(r), "paper": paper})
    return pd.DataFrame(data)
