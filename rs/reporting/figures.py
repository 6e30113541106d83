"""The pictures of a study: certified accuracy, and ACR by time, members and cost.

A training method has one color and one dash in every picture, and a mixture of several is black.
Figures are drawn without pyplot, so nothing depends on a display or on earlier figures, and saved
without dates, so the same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from rs.statistics.radius import cap

COLORS = {
    "gaussian": "#7f7f7f",
    "stability": "#cc79a7",
    "smoothadv": "#e69f00",
    "macer": "#0072b2",
    "consistency": "#009e73",
    "smoothmix": "#56b4e9",
    "advmacer": "#d55e00",
    "hard-drop": "#882255",
    "cat-rs": "#332288",
}
"""Colors of methods in every picture: Okabe and Ito (2008), gray, and two of Paul Tol's."""

MIXED = "#000000"
"""Color of a mixture of several training methods."""

SPARE = ("#117733", "#aa4499", "#661100", "#999933", "#44aa99", "#ddcc77")
"""Colors of other names, the palest last."""

Styles = dict[str, dict[str, Any]]
"""Color, dash and width of lines, by name."""

PATTERNS: tuple[Any, ...] = (
    (0, (1, 1)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (6, 1.5)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1.5)),
    (0, (10, 2.5)),
    "-",
    (0, (2, 1, 6, 1)),
    (0, (1, 2.5)),
    (0, (8, 1, 3, 1)),
    (0, (2, 2, 4, 2)),
)
"""Dashes of lines: of the methods of :data:`COLORS` in their order, then further ones."""

DASHES: dict[str, Any] = dict(zip(COLORS, PATTERNS, strict=False))
WIDTH = 3.8
"""Inches of one of several panels."""
WIDTH_ALONE = 5.6
"""Inches of a single panel, whose legend can be long."""

LEGEND: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.02, 1.0),
    "frameon": False,
    "handlelength": 3.5,
}
LEGEND_WIDTH = 1.9
"""Inches to the right of the panels for their legends."""

ERROR_BARS = (
    "Bars: ± 1 standard error over images, or over images and training seeds where that is known "
    "and larger. "
)


def draw_certified_accuracy(
    curves: pd.DataFrame, gains: pd.DataFrame | None = None, n: int = 0, alpha: float = 1.0
) -> Figure:
    """Draw certified accuracy of single models by radius, and the gains of ensembles below it.

    Each noise level has a column of panels.

    Args:
        curves: Columns ``sigma method members radius accuracy``.
        gains: Columns ``sigma method single radius gain error_images error``, of ensembles minus a
            single model.
        n, alpha: Of the certificates, where they are known: the largest radius that they permit is
            a dotted line.
    """
    sigmas = curves["sigma"].unique()
    singles = curves[curves["members"] == 1]
    has_gains = gains is not None and not gains.empty
    figure, grid = _grid(1 + has_gains, sigmas, "certified ℓ₂ radius", height=3.3, sharey="row")
    styles = _styles(singles["method"])
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for name, line in _by(singles, sigma, "method"):
            style = {"drawstyle": "steps-pre", **styles[name]}
            axis.plot(line["radius"], line["accuracy"], label=name, **style)
    note = ""
    if gains is not None and has_gains:
        _draw_gains(grid[1], sigmas, gains)
        grid[1, 0].set_ylabel(f"best ensembles of {curves['members'].max()}, difference")
        note += ERROR_BARS
    for (row, column), axis in np.ndenumerate(grid):
        axis.set_visible(axis.has_data())
        sigma = sigmas[column]
        if n == 0:
            largest = float(curves[curves["sigma"] == sigma]["radius"].max())
        else:
            largest = cap(n, alpha, sigma)
            label = "_" if row else "largest possible"
            style = {"color": "#444444", "linestyle": (0, (1, 2)), "linewidth": 1.0}
            axis.axvline(largest, label=label, **style)
        axis.set_xlim(0, 1.05 * largest)
    grid[0, 0].set_ylabel("single models")
    grid[0, 0].set_ylim(0, min(1.0, 0.05 * np.ceil(20 * float(singles["accuracy"].max()) + 0.2)))
    figure.supylabel("certified accuracy", fontsize=10)
    if n > 0:
        note += (
            f"Dotted: where all n = {n:,} samples vote for one class; at α = {alpha:g} no larger "
            f"radius can be certified than Φ⁻¹(α^(1/n)) σ = {cap(n, alpha, 1.0):.2f} σ, however "
            "confident the classifier is. More samples raise it."
        )
    return _finished(figure, grid, note)


def _draw_gains(axes: Iterable[Axes], sigmas: Iterable[float], gains: pd.DataFrame) -> None:
    """Draw certified accuracies of ensembles minus a single model, one panel per noise level."""
    styles = _styles(gains["method"])
    for axis, sigma in zip(axes, sigmas, strict=True):
        for turn, (name, line) in enumerate(_by(gains, sigma, "method")):
            # bars of two lines take turns, so that none hides another
            style = {"label": name, "errorevery": (turn, len(styles)), **styles[name]}
            bars = _larger_error(line, "error")
            axis.errorbar(line["radius"], line["gain"], bars, elinewidth=1.0, **style)
        single = "".join(gains[gains["sigma"] == sigma]["single"].unique())
        axis.set_title(f"σ = {sigma}, minus {single}", fontsize=11)
        _mark_zero(axis)


def draw_acr_over_time(history: pd.DataFrame) -> Figure:
    """Draw the best ACR so far against training time, one panel per noise level.

    Args:
        history: Columns ``method sigma seconds acr error``, in the order of time; ``acr`` is the
            best so far, and ``error`` its standard error over training seeds, NaN of a single one.
    """
    sigmas = history["sigma"].unique()
    styles = _styles(history["method"])
    figure, grid = _grid(1, sigmas, "training time (seconds)", height=4.0)
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for name, line in _by(history, sigma, "method"):
            style = {"drawstyle": "steps-post", "marker": "o", "ms": 3.5, **styles[name]}
            points = line["seconds"], line["acr"], line["error"]
            axis.errorbar(*points, elinewidth=1.0, label=name, **style)
        axis.set_xlim(left=0)
    grid[0, 0].set_ylabel("best ACR so far")
    text = (
        "The scale of ACR does not begin at 0 and differs between noise levels. Bars: standard "
        "errors over seeds."
    )
    return _finished(figure, grid, text)


def draw_acr_by_members(frame: pd.DataFrame) -> Figure:
    """Draw the gains of ensembles by their number of members: over the best one, and the mean.

    Every kind of ensemble is a mark with the larger one of its standard errors, and the line runs
    through the mean of those of one size.

    Args:
        frame: Of ``rs.reporting.tables.ensemble_tables.acr_by_size``.
    """
    frame = frame[frame["members"] > 1]
    sigmas = frame["sigma"].unique()
    styles = _styles(frame["kind"])
    figure, grid = _grid(2, sigmas, "number of members", height=3.0, sharey="row")
    for axes, value in zip(grid, ("to_best", "gain"), strict=True):
        for axis, sigma in zip(axes, sigmas, strict=True):
            for kind, points in _by(frame, sigma, "kind"):
                offset = list(styles).index(kind) - (len(styles) - 1) / 2
                shift = 0.05 * offset  # keeps error bars of one size apart
                means = points.groupby("members")[value].mean()
                axis.plot(means.index + shift, means, label=kind, **styles[kind])
                errors = _larger_error(points, f"{value}_error")
                style = {"color": styles[kind]["color"], "elinewidth": 1.0, "fmt": "o"}
                axis.errorbar(points["members"] + shift, points[value], errors, **style)
            axis.set_xticks(sorted(set(frame["members"])))
            _mark_zero(axis)
    grid[0, 0].set_ylabel("ACR minus its best member's")
    grid[1, 0].set_ylabel("ACR minus its members' mean")
    return _finished(figure, grid, f"{ERROR_BARS}Differences are taken image by image.")


def draw_acr_by_cost(frame: pd.DataFrame) -> Figure:
    """Draw the gains of ensembles over one model with more samples, at equal evaluations.

    A line is the best ensemble of its kind minus the best single model of its methods; a mixture is
    black.

    Args:
        frame: Of ``rs.reporting.tables.ensemble_tables.equal_cost``.
    """
    sigmas = frame["sigma"].unique()
    compared = frame[frame["gain"].notna()]
    styles = _styles(compared["kind"])
    compared = compared.sort_values(["kind", "evaluations"])
    cost = "evaluations of members per image"
    figure, grid = _grid(1, sigmas, cost, height=3.3, sharey=True)
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for kind, line in _by(compared, sigma, "kind"):
            style = {"label": kind, "marker": "o", "ms": 3.2, **styles[kind]}
            bars = _larger_error(line, "gain_error")
            axis.errorbar(line["evaluations"], line["gain"], bars, elinewidth=1.0, **style)
        if axis.has_data():  # without a point there is nothing to scale
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        _mark_zero(axis)
    grid[0, 0].set_ylabel("ACR minus a single model's")
    figure.suptitle(
        "Below 0, one model with more samples has a larger ACR than ensembles of the same cost",
        fontsize=11,
    )
    note = f"{ERROR_BARS}The best ensemble of its kind minus the best model of its methods."
    return _finished(figure, grid, note)


def _by(frame: pd.DataFrame, sigma: float, name: str) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the rows of a noise level by the values of a column, in the order of the rows."""
    return frame[frame["sigma"] == sigma].groupby(name, sort=False)


def _grid(
    rows: int, sigmas: Sequence[float], x_label: str, height: float, **share: Any
) -> tuple[Figure, Any]:
    """Return a figure of panels ``height`` inches high, and the panels (rows, noise levels)."""
    width = (WIDTH if len(sigmas) > 1 else WIDTH_ALONE) * len(sigmas)
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, len(sigmas), squeeze=False, **share)
    for (_, column), axis in np.ndenumerate(panels):
        axis.set_title(f"σ = {sigmas[column]}", fontsize=11)
        axis.set_xlabel(x_label)
        axis.grid(color="#e5e5e5", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _styles(methods: Iterable[str]) -> Styles:
    """Return color, dash and width of the line of each method, ensemble or kind of ensembles.

    An ensemble of one method has that method's color, a mixture is black, and an unknown method
    takes a spare color.
    """
    spare = cycle(SPARE)
    dashes = cycle([*PATTERNS[len(DASHES) :], *DASHES.values()])
    styles: Styles = {}
    for name in dict.fromkeys(methods):
        method, *others = {part.split()[0] for part in name.split(" + ")}
        if others:
            color = MIXED
        elif method in COLORS:
            color = COLORS[method]
        else:
            color = next(spare)
        styles[name] = {
            "color": color,
            "linestyle": DASHES.get(name) or next(dashes),
            "linewidth": 2.0 if name == "advmacer" else 1.5,
        }
    return styles


def _finished(figure: Figure, grid: Any, note: str) -> Figure:
    """Return a figure with a legend to the right of each row of panels, and a note below."""
    for row in grid:
        lines = {}
        for axis in row:
            if axis.get_visible():
                for line, name in zip(*axis.get_legend_handles_labels(), strict=True):
                    lines[name] = line
        if lines:
            names = [name.replace(" + ", "\n+ ") for name in lines]
            row[-1].legend(lines.values(), names, fontsize=8, **LEGEND)
    figure.set_figwidth(figure.get_figwidth() + LEGEND_WIDTH)
    text = fill(note, int(14.5 * figure.get_figwidth()))
    figure.supxlabel(text, fontsize=8, color="#444444", x=0.02, ha="left")
    return figure


def _larger_error(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return the larger one of the errors over images and over images and training seeds."""
    return frame[[f"{name}_images", name]].astype(float).max(axis=1)


def _mark_zero(axis: Axes) -> None:
    axis.axhline(0, color="#444444", linewidth=0.8, zorder=0)
