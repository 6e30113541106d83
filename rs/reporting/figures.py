"""The pictures of a study: certified accuracy, and ACR by time, members and cost.

A training method has one colour and one dash in every picture, and a mixture of several is black.
Drawn without pyplot, so nothing depends on a display or on what was drawn before, and saved without
dates, so the same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, product
from textwrap import fill
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from rs.statistics.radius import cap

COLOURS = {
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
"""Of the methods, the same in every picture: those of Okabe and Ito (2008), grey, and two of Paul
Tol's.
"""

MIXED = "#000000"
"""The colour of what is made of several training methods."""

SPARE = ("#999933", "#ddcc77", "#44aa99", "#aa4499", "#117733", "#661100")
Styles = dict[str, dict[str, Any]]
"""Colour, dash and width of lines, by name."""

PATTERNS: tuple[Any, ...] = (
    (0, (1, 1)), (0, (4, 1, 1, 1, 1, 1)), (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1.5)), (0, (10, 2.5)), "-",
    (0, (2, 1, 6, 1)), (0, (1, 2.5)), (0, (8, 1, 3, 1)), (0, (2, 2, 4, 2)),
)  # fmt: skip
"""Dashes of lines: of the methods of :data:`COLOURS` in their order, and further ones."""

DASHES: dict[str, Any] = dict(zip(COLOURS, PATTERNS, strict=False))
WIDTH, WIDTH_ALONE = 3.8, 5.6
"""Inches of a panel, beside others and alone: a legend beside a single panel can be long."""

LABEL_POINTS = 8
LEGEND: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.02, 1.0),
    "frameon": False,
    "handlelength": 3.5,
}
LEGEND_WIDTH = 1.9
"""Inches to the right of the panels for their legends."""

ERROR_BARS = "Bars: ± 1 standard error over images, or over images and training seeds where that is known and larger. "


@dataclass(frozen=True)
class Limit:
    """What bounds every certificate: how many draws vote, and the error probability."""

    n: int
    alpha: float

    def radius(self, sigma: float) -> float:
        """Return the largest radius that there can be at a noise level: all draws vote for one
        class.
        """
        return cap(self.n, self.alpha, sigma)

    @property
    def text(self) -> str:
        """What the dotted line of a picture is."""
        return (
            f"Dotted: where all n = {self.n:,} draws vote for one class; at α = {self.alpha:g} no "
            "larger radius can "
            f"be certified than Φ⁻¹(α^(1/n)) σ = {self.radius(1.0):.2f} σ, however sure a "
            "classifier is. More draws "
            "move it."
        )


def draw_certified_accuracy(
    curves: pd.DataFrame, limit: Limit | None = None, gains: pd.DataFrame | None = None
) -> Figure:
    """Draw certified accuracy against radius of single models, one column per noise level, and what
    ensembles add.

    Args:
        curves: Columns ``sigma method members radius accuracy``.
        limit: Of the draws, where it is known: drawn as a dotted line.
        gains: Columns ``sigma method single radius gain error_images error``, of ensembles less a
            single model.
    """
    sigmas, singles = list(dict.fromkeys(curves["sigma"])), curves[curves["members"] == 1]
    ensembles = gains is not None and not gains.empty
    figure, grid = _grid(1 + ensembles, len(sigmas), height=3.3, sharey="row")
    styles = _styles(singles["method"])
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for name, line in _by(singles, sigma, "method"):
            axis.plot(
                line["radius"], line["accuracy"], drawstyle="steps-pre", label=name, **styles[name]
            )
        _decorate(axis, f"σ = {sigma}", "certified ℓ₂ radius")
    if gains is not None and ensembles:
        _draw_gains(grid[1], sigmas, gains)
        grid[1, 0].set_ylabel(f"best ensembles of {curves['members'].max()}, difference")
    for (row, column), axis in np.ndenumerate(grid):
        axis.set_visible(axis.has_data())
        sigma = sigmas[column]
        last = (
            limit.radius(sigma)
            if limit
            else float(curves[curves["sigma"] == sigma]["radius"].max())
        )
        axis.set_xlim(0, 1.05 * last)
        if limit:
            label = "_" if row else "largest possible"
            axis.axvline(last, color="#444444", linestyle=(0, (1, 2)), linewidth=1.0, label=label)
    grid[0, 0].set_ylabel("single models")
    grid[0, 0].set_ylim(0, min(1.0, 0.05 * np.ceil(20 * float(singles["accuracy"].max()) + 0.2)))
    figure.supylabel("certified accuracy", fontsize=10)
    return _finished(
        figure, grid, (ERROR_BARS if ensembles else "") + (limit.text if limit else "")
    )


def _draw_gains(axes: Iterable[Axes], sigmas: Iterable[float], gains: pd.DataFrame) -> None:
    """Draw the differences of certified accuracy between ensembles and a single model, one panel
    per noise level.
    """
    styles = _styles(gains["method"])
    for axis, sigma in zip(axes, sigmas, strict=True):
        for turn, (name, line) in enumerate(_by(gains, sigma, "method")):
            points = line["radius"], line["gain"], _larger_error(line, "error")
            every = (turn, len(styles))  # bars of two lines take turns, so that none hides another
            axis.errorbar(*points, elinewidth=1.0, errorevery=every, label=name, **styles[name])
        single = "".join(gains[gains["sigma"] == sigma]["single"].unique())
        _decorate(axis, f"σ = {sigma}, less {single}", "certified ℓ₂ radius")
        _mark_zero(axis)


def draw_acr_over_time(history: pd.DataFrame) -> Figure:
    """Draw the best ACR so far against training time, one panel per noise level, one line per
    method.

    Args:
        history: Columns ``method sigma seconds acr error``, in the order of time; ``acr`` is the
            best so far, and ``error`` its standard error over training seeds, NaN of a single one.
    """
    sigmas, styles = list(dict.fromkeys(history["sigma"])), _styles(history["method"])
    figure, grid = _grid(1, len(sigmas), height=4.0)
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for name, line in _by(history, sigma, "method"):
            points = line["seconds"], line["acr"], line["error"]
            axis.errorbar(
                *points,
                drawstyle="steps-post",
                marker="o",
                ms=3.5,
                elinewidth=1.0,
                label=name,
                **styles[name],
            )
        _decorate(axis, f"σ = {sigma}", "training time (seconds)")
        axis.set_xlim(left=0)
    grid[0, 0].set_ylabel("best ACR so far")
    text = "The scale of ACR does not begin at 0, and is another at each noise level. Bars: standard errors over seeds."
    return _finished(figure, grid, text)


def draw_acr_by_members(frame: pd.DataFrame) -> Figure:
    """Draw by the number of members what ensembles add to their best member, and below it to their
    members' mean.

    Every kind of ensemble is a mark with the larger one of its standard errors, and the line runs
    through the mean of those of one size.

    Args:
        frame: Of ``rs.reporting.tables.ensemble_tables.sizes``.
    """
    frame = frame[frame["members"] > 1]
    sigmas, styles = list(dict.fromkeys(frame["sigma"])), _styles(frame["kind"])
    figure, grid = _grid(2, len(sigmas), height=3.0, sharey="row")
    errors = {name: _larger_error(frame, f"{name}_error") for name in ("to_best", "gain")}
    for (row, value), (column, sigma) in product(enumerate(errors), enumerate(sigmas)):
        axis = grid[row, column]
        for kind, points in _by(frame, sigma, "kind"):
            shift = 0.05 * (
                list(styles).index(kind) - (len(styles) - 1) / 2
            )  # keeps error bars of one size apart
            means, look = (
                points.groupby("members")[value].mean(),
                {"color": styles[kind]["color"], "elinewidth": 1.0},
            )
            axis.plot(means.index + shift, means, label=kind, **styles[kind])
            axis.errorbar(
                points["members"] + shift,
                points[value],
                errors[value][points.index],
                fmt="o",
                **look,
            )
        _decorate(axis, f"σ = {sigma}", "number of members")
        axis.set_xticks(sorted(set(frame["members"])))
        _mark_zero(axis)
    grid[0, 0].set_ylabel("ACR less its best member's")
    grid[1, 0].set_ylabel("ACR less its members' mean")
    return _finished(figure, grid, f"{ERROR_BARS}Differences are taken image by image.")


def draw_acr_by_cost(frame: pd.DataFrame) -> Figure:
    """Draw what ensembles add to the ACR of one model that draws more often, at equal evaluations,
    by noise level.

    A line is of the best ensemble of its kind, less the best single model of its methods; a mixture
    is black.

    Args:
        frame: Of ``rs.reporting.tables.ensemble_tables.equal_cost``.
    """
    sigmas, compared = list(dict.fromkeys(frame["sigma"])), frame[frame["gain"].notna()]
    figure, grid = _grid(1, len(sigmas), height=3.3, sharey=True)
    styles = _styles(compared["kind"])
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        for kind, line in _by(compared.sort_values(["kind", "evaluations"]), sigma, "kind"):
            points = line["evaluations"], line["gain"], _larger_error(line, "gain_error")
            axis.errorbar(*points, label=kind, marker="o", ms=3.2, elinewidth=1.0, **styles[kind])
        _decorate(axis, f"σ = {sigma}", "evaluations of members for an image")
        if axis.has_data():  # without a point there is nothing to scale
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        _mark_zero(axis)
    grid[0, 0].set_ylabel("ACR less a single model's")
    figure.suptitle(
        "Below 0, one model with more draws has a larger ACR than ensembles of that cost",
        fontsize=11,
    )
    return _finished(
        figure,
        grid,
        f"{ERROR_BARS}The best ensemble of its kind, less the best model of its methods.",
    )


def _by(frame: pd.DataFrame, sigma: float, name: str) -> Iterable[tuple[str, pd.DataFrame]]:
    """Return the rows of a noise level by the values of a column, in the order of these."""
    return cast(
        "Iterable[tuple[str, pd.DataFrame]]",
        frame[frame["sigma"] == sigma].groupby(name, sort=False),
    )


def _grid(rows: int, columns: int, height: float, **share: Any) -> tuple[Figure, Any]:
    """Return a figure of panels ``height`` inches high, and these (rows, columns)."""
    figure = Figure(
        figsize=((WIDTH if columns > 1 else WIDTH_ALONE) * columns, height * rows + 0.5),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def _styles(methods: Iterable[str]) -> Styles:
    """Return colour, dash and width of the line of each method, ensemble or kind of ensembles.

    A method has its own; an ensemble of one method has that method's colour, a mixture is black,
    and what is none of the known methods takes a spare colour.
    """
    spare, dashes = cycle(SPARE), cycle([*PATTERNS[len(DASHES) :], *DASHES.values()])
    styles: Styles = {}
    for name in dict.fromkeys(methods):
        method, *others = {part.split()[0] for part in name.split(" + ")}
        colour = MIXED if others else COLOURS.get(method) or next(spare)
        dash = DASHES[name] if name in DASHES else next(dashes)
        styles[name] = {
            "color": colour,
            "linestyle": dash,
            "linewidth": 2.0 if name == "advmacer" else 1.5,
        }
    return styles


def _finished(figure: Figure, grid: Any, note: str) -> Figure:
    """Return a figure with a legend to the right of each row of panels, and a note below them all."""
    for row in grid:
        panels = [axis.get_legend_handles_labels() for axis in row if axis.get_visible()]
        lines = {name: line for panel in panels for line, name in zip(*panel, strict=True)}
        if lines:
            named = [name.replace(" + ", "\n+ ") for name in lines]
            row[-1].legend(lines.values(), named, fontsize=LABEL_POINTS, **LEGEND)
    figure.set_figwidth(figure.get_figwidth() + LEGEND_WIDTH)
    figure.supxlabel(
        fill(note, int(14.5 * figure.get_figwidth())),
        fontsize=8,
        color="#444444",
        x=0.02,
        ha="left",
    )
    return figure


def _larger_error(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return the larger one of the errors over images and over images and training seeds."""
    return cast("pd.Series[float]", frame[[f"{name}_images", name]].astype(float).max(axis=1))


def _mark_zero(axis: Axes) -> None:
    axis.axhline(0, color="#444444", linewidth=0.8, zorder=0)


def _decorate(axis: Axes, title: str, x_label: str) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_xlabel(x_label)
    axis.grid(color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
