"""The pictures of a study: certified accuracy by radius, best ACR by training time, and ACR by size of an ensemble.

Drawn without pyplot, so nothing depends on a display or on what was drawn before, and saved without dates, so the
same numbers give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
