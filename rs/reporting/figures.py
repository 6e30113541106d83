"""The pictures of a study: certified accuracy, probabilities of labels, and ACR by time, by members and by cost.

Drawn without pyplot, so nothing depends on a display or on what was drawn before, and saved without dates, so the
same numbers give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, product
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from scipy.special import ndtri

COLOURS = {
    "gaussian": "#7f7f7f",
    "stability": "#8c564b",
    "smoothadv": "#e69f00",
    "macer": "#0072b2",
    "consistency": "#009e73",
    "smoothmix": "#56b4e9",
    "advmacer": "#d62728",
}
"""Of the methods, the same in every picture; others take the spare ones in their order."""

SPARE = ("#cc79a7", "#000000", "#bcbd22", "#9467bd", "#17becf", "#4d4d4d")
DASHES = ("-", "--", "-.", ":")
PATTERNS = ("-", (0, (6, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1.5)), (0, (9, 2)), (0, (4, 1, 1, 1, 1, 1)))
"""Dashes that tell lines apart without colours."""
PROBABILITIES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999)
"""Marks on an axis of Phi^-1(p)."""


def certified_accuracy(curves: pd.DataFrame) -> Figure:
    """Draw certified accuracy against radius, one panel per noise level, one line per method.

    Args:
        curves: Columns ``sigma method radius accuracy``.
    """
    sigmas = list(dict.fromkeys(curves["sigma"]))
    figure, axes = _panels(len(sigmas), share_y=True)
    styles = _styles(curves["method"])
    for axis, sigma in zip(axes, sigmas, strict=True):
        panel = curves[curves["sigma"] == sigma]
        for method, line in panel.groupby("method", sort=False):
            axis.plot(line["radius"], line["accuracy"], drawstyle="steps-pre", label=method, **styles[method])
        _decorate(axis, f"σ = {sigma}", "certified ℓ₂ radius")
        axis.set_ylim(0, 1)
        axis.set_xlim(0, float(panel["radius"].max()))
    axes[0].set_ylabel("certified accuracy")
    _legend(figure, axes)
    return figure


def acr_over_time(history: pd.DataFrame) -> Figure:
    """Draw the best ACR so far against training time, one panel per noise level, one line per method.

    Args:
        history: Columns ``method sigma seconds acr``, in the order of time; ``acr`` is the best so far.
    """
    sigmas = list(dict.fromkeys(history["sigma"]))
    figure, axes = _panels(len(sigmas), share_y=False)
    styles = _styles(history["method"])
    unit, size = _time_unit(float(history["seconds"].max()))
    for axis, sigma in zip(axes, sigmas, strict=True):
        for method, line in history[history["sigma"] == sigma].groupby("method", sort=False):
            times = line["seconds"] / size
            axis.plot(times, line["acr"], drawstyle="steps-post", marker="o", ms=3.5, label=method, **styles[method])
        _decorate(axis, f"σ = {sigma}", f"training time ({unit})")
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("best ACR so far")
    _legend(figure, axes)
    return figure


def acr_by_members(frame: pd.DataFrame) -> Figure:
    """Draw ACR against the number of members, one panel per noise level.

    A solid line with round marks is of one training method, in its colour; a dashed one with diamonds of a mixture.
    Every kind of ensemble is a mark with the larger one of its standard errors, and the line runs through the mean of
    those of one size.

    Args:
        frame: Columns ``sigma kind members acr error_images error`` of ``rs.reporting.ensemble_tables.sizes``.
    """
    sigmas, kinds = list(dict.fromkeys(frame["sigma"])), list(dict.fromkeys(frame["kind"]))
    figure, axes = _panels(len(sigmas), share_y=False)
    styles = _styles(kinds)
    for axis, sigma in zip(axes, sigmas, strict=True):
        panel = frame[frame["sigma"] == sigma]
        for kind, points in panel.groupby("kind", sort=False):
            shift = 0.05 * (kinds.index(kind) - (len(kinds) - 1) / 2)  # keeps error bars of one size apart
            means = points.groupby("members")["acr"].mean()
            axis.plot(means.index + shift, means, label=kind, **styles[kind])
            _marks(axis, points.assign(members=points["members"] + shift), styles[kind])
        _decorate(axis, f"σ = {sigma}", "number of members")
        axis.set_xticks(sorted(set(panel["members"])))
    axes[0].set_ylabel("ACR")
    _legend(figure, axes)
    return figure


def label_probability(frame: pd.DataFrame) -> Figure:
    """Draw how the bound of p_A is distributed over images, one column per noise level; axis in Phi^-1(p).

    A row of single models and, where there are any, one of the ensembles with the most members. The further to the
    right and the lower a line, the better; at p = 1/2 it is the share of images that are wrong or abstain.

    Args:
        frame: Columns ``sigma method members p share``.
    """
    sigmas = list(dict.fromkeys(frame["sigma"]))
    sizes = [1, *([largest] if (largest := int(frame["members"].max())) > 1 else [])]
    figure = Figure(figsize=(4.6 * len(sigmas) + 0.4, 3.4 * len(sizes) + 0.3), layout="constrained")
    for row, size in zip(figure.subplots(len(sizes), len(sigmas), sharey=True, squeeze=False), sizes, strict=True):
        shown = frame[frame["members"] == size]
        styles = _patterned(shown["method"])
        for axis, sigma in zip(row, sigmas, strict=True):
            lines = dict(list(shown[shown["sigma"] == sigma].groupby("method", sort=False)))
            for method, line in lines.items():
                axis.plot(ndtri(line["p"]), line["share"], drawstyle="steps-post", **styles[method])
            _decorate(axis, f"σ = {sigma}", "p, lower bound of the label's probability")
            marks = [p for p in PROBABILITIES if p <= frame.loc[frame["sigma"] == sigma, "p"].max()]
            axis.set_xticks(ndtri(marks), [f"{p:g}" for p in marks])
            axis.set_xlim(float(ndtri(marks[0])), float(ndtri(frame.loc[frame["sigma"] == sigma, "p"].max())))
            axis.set_ylim(0, 1)
            _name_rising_lines(axis, lines, styles)
        row[0].set_ylabel("single models" if size == 1 else f"ensembles of {size}")
    figure.supylabel("share of images with at most p", fontsize=10)
    return figure


def acr_by_cost(frame: pd.DataFrame) -> Figure:
    """Draw ACR against evaluations of members for an image, a row per noise level, a column per kind of ensemble.

    A column has the single models that the ensembles of its kind are made of, and these; a mixture is black.

    Args:
        frame: Columns ``sigma kind method members evaluations acr`` of ``rs.reporting.ensemble_tables.equal_cost``.
    """
    sigmas = list(dict.fromkeys(frame["sigma"]))
    kinds = list(dict.fromkeys(frame.loc[frame["members"] > 1, "kind"]))
    figure = Figure(figsize=(3.0 * len(kinds) + 0.4, 2.9 * len(sigmas) + 0.3), layout="constrained")
    grid = figure.subplots(len(sigmas), len(kinds), sharex=True, sharey="row", squeeze=False)
    for (row, sigma), (column, kind) in product(enumerate(sigmas), enumerate(kinds)):
        axis, trained = grid[row, column], kind.split(" + ")
        inside = (frame["kind"] == kind) | (frame["kind"].isin(trained) & (frame["members"] == 1))
        shown = frame[(frame["sigma"] == sigma) & inside].sort_values("members", kind="stable")
        lines = dict(list(shown.groupby("method", sort=False)))
        for (name, line), dash in zip(lines.items(), cycle(PATTERNS)):
            colour = COLOURS.get(line["kind"].iloc[0], "#000000")
            axis.plot(line["evaluations"], line["acr"], color=colour, linestyle=dash, label=name)
        _decorate(axis, f"{kind}, σ = {sigma}", "")
        axis.set_xscale("log")
        names = [_without_methods(name, trained) for name in lines]
        axis.legend(axis.get_lines(), names, loc="lower right", frameon=False, fontsize=8, handlelength=3)
    _plain_decades(grid[0, 0])
    for axis in grid[:, 0]:
        low, high = axis.get_ylim()
        axis.set_ylim(low - 0.2 * (high - low), high)  # room for the legends of mixtures
        axis.set_ylabel("ACR")
    figure.supxlabel("evaluations of members for an image", fontsize=10)
    return figure


def png(figure: Figure) -> bytes:
    """Return the picture as PNG, without a time stamp."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """Return the picture as SVG, without a time stamp and with the same element names each time."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "rs"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _panels(count: int, share_y: bool) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(4.2 * max(count, 1) + 0.4, 4.1), layout="constrained")
    axes = figure.subplots(1, max(count, 1), sharey=share_y, squeeze=False)[0]
    return figure, list(axes)


def _styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour, dash and width of each method's line."""
    names = list(dict.fromkeys(methods))
    others = [name for name in names if name not in COLOURS]
    styles = {}
    for name in names:
        spare = others.index(name) if name in others else 0
        colour = COLOURS.get(name, SPARE[spare % len(SPARE)])
        dash = "-" if name in COLOURS else DASHES[(1 + spare // len(SPARE)) % len(DASHES)]
        styles[name] = {"color": colour, "linestyle": dash, "linewidth": 2.2 if name == "advmacer" else 1.5}
    return styles


def _patterned(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return :func:`_styles` with a dash of its own for each line."""
    styles = _styles(methods)
    return {name: style | {"linestyle": dash} for (name, style), dash in zip(styles.items(), cycle(PATTERNS))}


def _name_rising_lines(axis: Axes, lines: Mapping[str, pd.DataFrame], styles: Mapping[str, dict[str, Any]]) -> None:
    """Write the name of each line to the left of all, where nothing is, and lead it to a dot on the line.

    Dots lie at different heights: above all lines in the middle of the axis, and below where they jump to 1.
    """
    x = np.array([ndtri(line["p"]) for line in lines.values()])
    y = np.array([line["share"] for line in lines.values()])
    middle = x[0] <= 0.55 * x[0, 0] + 0.45 * x[0, -1]
    low = min(float(y[:, middle].max()) + 0.06, 0.6)
    jump = min(float(line[line < 1].max(initial=0.0)) for line in y)
    heights = np.linspace(min(max(0.97 * jump, low + 0.35), 0.96), low, len(lines))
    for name, own, height in zip(lines, y, heights, strict=True):
        left = min(x[0, int((other >= height - 0.03).argmax())] for other in y)
        at = x[0, int((own >= height).argmax())]
        axis.plot([at], [height], "o", ms=3.5, color=styles[name]["color"])
        axis.annotate(
            name,
            (at, height),
            (left - 0.12, height),
            ha="right",
            va="center",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "#999999", "shrinkA": 1, "shrinkB": 0},
        )


def _without_methods(name: str, trained: list[str]) -> str:
    """Return what a name says beside the training methods.

    >>> [_without_methods(name, ["macer"]) for name in ("macer", "macer x3 (mme)")]
    ['x1', 'x3 (mme)']
    >>> [_without_methods(name, ["a", "macer"]) for name in ("macer", "a x1 + macer x2")]
    ['macer', '1+2']
    """
    if name in trained:
        return "x1" if len(trained) == 1 else name
    rest = " + ".join(part.removeprefix(f"{method} ") for part, method in zip(name.split(" + "), trained, strict=True))
    return rest.replace(" + x", "+").removeprefix("x") if len(trained) > 1 else rest


def _plain_decades(axis: Axes) -> None:
    """Mark a logarithmic axis at 1, 3, 10, ..., or at 1, 10, ... if it is long, in whole numbers."""
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if high < 100 * low else (1.0,)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _marks(axis: Axes, points: pd.DataFrame, style: dict[str, Any]) -> None:
    """Mark each point with its error: round if its line is solid, else a diamond."""
    members, acr, colour = points["members"], points["acr"], style["color"]
    errors = points[["error_images", "error"]].max(axis=1)
    axis.errorbar(members, acr, errors, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.6)
    axis.plot(members, acr, "o" if style["linestyle"] == "-" else "D", ms=4.5, color=colour)


def _time_unit(longest: float) -> tuple[str, float]:
    """Return the unit that suits the longest time, and its seconds."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if longest >= 2 * size:
            return unit, size
    return "seconds", 1.0


def _decorate(axis: Axes, title: str, x_label: str) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_xlabel(x_label)
    axis.grid(color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend under all panels, each method once."""
    handles: dict[str, Artist] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    entry = 0.75 + 0.08 * max(map(len, handles), default=0)  # inches: line, gap and letters
    columns = max(1, min(len(handles), int(figure.get_figwidth() / entry)))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False)
