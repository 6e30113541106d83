"""The pictures of a study: certified accuracy, differences, probabilities of labels, and ACR by time, members, cost.

A training method has one colour and one dash in every picture, and a mixture of several is black. Each line bears its
name, so nothing depends on telling colours apart. Drawn without pyplot, so nothing depends on a display or on what was
drawn before, and saved without dates, so the same numbers give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle, product
from textwrap import fill
from typing import Any, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from scipy.special import ndtri

from rs.reporting import line_names
from rs.reporting.line_names import Line
from rs.statistics.radius import cap

COLOURS = {
    "gaussian": "#7f7f7f",
    "stability": "#cc79a7",
    "smoothadv": "#e69f00",
    "macer": "#0072b2",
    "consistency": "#009e73",
    "smoothmix": "#56b4e9",
    "advmacer": "#d55e00",
}
"""Of the methods, the same in every picture: those of Okabe and Ito (2008), and grey. Others take the spare ones."""

MIXED = "#000000"
"""The colour of what is made of several training methods."""

SPARE = ("#882255", "#332288", "#999933", "#aa4499", "#117733", "#661100")
Dash = str | tuple[float, tuple[float, ...]]
DASHES: dict[str, Dash] = {
    "gaussian": (0, (1, 1)),
    "stability": (0, (4, 1, 1, 1, 1, 1)),
    "smoothadv": (0, (6, 1.5)),
    "macer": (0, (6, 1.5, 1, 1.5)),
    "consistency": (0, (3, 1.5)),
    "smoothmix": (0, (10, 2.5)),
    "advmacer": "-",
}
"""Of the methods, likewise; what has none takes the further ones of ``PATTERNS``."""

PATTERNS: tuple[Dash, ...] = (*DASHES.values(), (0, (2, 1, 6, 1)), (0, (1, 2.5)), (0, (8, 1, 3, 1)), (0, (2, 2, 4, 2)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
PROBABILITIES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999)
"""Marks on an axis of Phi^-1(p)."""

WIDTHS = {1: 5.6, 2: 4.6}
"""Of a panel in inches, by the number of columns; of three and more 3.4. A page shows about 9 inches."""

ERROR_BARS = "Bars: ± 1 standard error over images, or over images and training seeds where that is known and larger. "
ONE_SAMPLE = (
    "All classifiers see the same images, which are hard for all of them: two that differ beyond doubt may have bars "
    "that overlap. So differences are taken image by image, and have bars of their own"
)


@dataclass(frozen=True)
class Limit:
    """What bounds every certificate: how many draws vote, and the error probability."""

    n: int
    alpha: float

    def radius(self, sigma: float) -> float:
        """Return the largest radius that there can be at a noise level: all draws vote for one class."""
        return cap(self.n, self.alpha, sigma)

    @property
    def text(self) -> str:
        """What the dotted line of a picture is."""
        return (
            f"Dotted: where all n = {self.n:,} draws vote for one class; at α = {self.alpha:g} no larger radius can "
            f"be certified than Φ⁻¹(α^(1/n)) σ = {self.radius(1.0):.2f} σ, however sure a classifier is. More draws "
            "move it."
        )


def certified_accuracy(curves: pd.DataFrame, limit: Limit | None = None) -> Figure:
    """Draw certified accuracy against radius, one column per noise level: single models, and the largest ensembles.

    Args:
        curves: Columns ``sigma method members radius accuracy``.
        limit: Of the draws, where it is known: drawn as a dotted line.
    """
    figure, panels = _by_size(curves)
    named = []
    for axis, sigma, shown in panels:
        styles, lines = _styles(shown["method"]), _lines(shown, "radius", "accuracy")
        for name, line in lines.items():
            axis.plot(*line, drawstyle="steps-pre", **styles[name])
        last = limit.radius(sigma) if limit else float(shown["radius"].max())
        cliff = any(_before(line, 0.98 * last) > 0.05 for line in lines.values())
        _decorate(axis, f"σ = {sigma}", "certified ℓ₂ radius")
        axis.set_xlim(0, last * (1.6 if cliff else 1.15))
        if limit:
            _mark_limit(axis, last, "largest\npossible radius" if cliff else "largest possible radius")
        named.append((axis, lines, styles, last, cliff))
    named[0][0].set_ylim(0, min(1.0, 0.05 * np.ceil(20 * float(curves["accuracy"].max()) + 0.2)))
    figure.supylabel("certified accuracy", fontsize=10)
    _note(figure, limit.text if limit else "")
    for axis, lines, styles, last, cliff in named:
        if cliff:
            ends = {name: (last, _before(line, 0.98 * last)) for name, line in lines.items()}
            line_names.at_right_ends(axis, ends, 1.1 * last, free=2 if limit else 0)
        else:
            line_names.above_falling_lines(axis, lines, _colours(styles))
    return figure


def label_probability(frame: pd.DataFrame, limit: Limit | None = None) -> Figure:
    """Draw how the bound of p_A is distributed over images, one column per noise level; axis in Phi^-1(p).

    A row of single models and, where there are any, one of the ensembles with the most members. The further to the
    right and the lower a line, the better; at p = 1/2 it is the share of images that are wrong or abstain.

    Args:
        frame: Columns ``sigma method members p share``.
        limit: As in :func:`certified_accuracy`.
    """
    figure, panels = _by_size(frame)
    named = []
    for axis, sigma, shown in panels:
        styles, lines = _styles(shown["method"]), _lines(shown.assign(z=ndtri(shown["p"])), "z", "share")
        for name, line in lines.items():
            axis.plot(*line, drawstyle="steps-post", **styles[name])
        _decorate(axis, f"σ = {sigma}", "p, lower bound of the label's probability")
        last = limit.radius(1.0) if limit else float(ndtri(shown["p"].max()))
        marks = [p for p in PROBABILITIES if ndtri(p) <= last]
        axis.set_xticks(ndtri(marks), [f"{p:g}" for p in marks])
        axis.set_xlim(float(ndtri(marks[0])), last + 0.12)
        axis.set_ylim(0, 1)
        if limit:
            _mark_limit(axis, last)
        named.append((axis, lines, styles))
    figure.supylabel("share of images with at most p", fontsize=10)
    _note(figure, limit.text if limit else "")
    for axis, lines, styles in named:
        line_names.above_rising_lines(axis, lines, _colours(styles))
    return figure


def acr_over_time(history: pd.DataFrame) -> Figure:
    """Draw the best ACR so far against training time, one panel per noise level, one line per method.

    Args:
        history: Columns ``method sigma seconds acr error``, in the order of time; ``acr`` is the best so far, and
            ``error`` its standard error over training seeds, NaN of a single one.
    """
    sigmas = list(dict.fromkeys(history["sigma"]))
    figure, grid = _grid(1, len(sigmas), height=4.0)
    styles = _styles(history["method"])
    unit, size = _time_unit(float(history["seconds"].max()))
    named = []
    for axis, sigma in zip(grid[0], sigmas, strict=True):
        shown = history[history["sigma"] == sigma]
        lines = _lines(shown.assign(time=shown["seconds"] / size), "time", "acr")
        for name, line in lines.items():
            axis.plot(*line, drawstyle="steps-post", marker="o", ms=3.5, label=name, **styles[name])
            seeds = shown[(shown["method"] == name) & shown["error"].notna()]
            if len(seeds):
                bars = seeds["seconds"] / size, seeds["acr"], seeds["error"]
                axis.errorbar(*bars, fmt="none", ecolor=styles[name]["color"], elinewidth=1.0)
        _decorate(axis, f"σ = {sigma}", f"training time ({unit})")
        axis.set_xlim(0, 1.18 * float(shown["seconds"].max()) / size)
        axis.margins(y=0.08)
        named.append((axis, {name: _stepped(line) for name, line in lines.items()}))
    grid[0, 0].set_ylabel("best ACR so far")
    _note(
        figure,
        "The scale of ACR does not begin at 0"
        + ", and is another at each noise level" * (len(sigmas) > 1)
        + "."
        + " Bars are standard errors over training seeds, for the same images." * bool(history["error"].notna().any()),
    )
    for axis, lines in named:
        line_names.near_ends(axis, lines)
    return figure


def acr_by_members(frame: pd.DataFrame) -> Figure:
    """Draw ACR against the number of members, and below it what ensembles gain over their members, image by image.

    A solid or dashed line with round marks is of one training method, in its colour; one with diamonds of a mixture.
    Every kind of ensemble is a mark with the larger one of its standard errors, and the line runs through the mean of
    those of one size.

    Args:
        frame: Columns ``sigma kind members acr error_images error gain gain_error_images gain_error`` of
            ``rs.reporting.ensemble_tables.sizes``.
    """
    sigmas, kinds = list(dict.fromkeys(frame["sigma"])), list(dict.fromkeys(frame["kind"]))
    figure, grid = _grid(2, len(sigmas), height=3.0)
    styles, named = _styles(kinds), []
    for (row, value), (column, sigma) in product(enumerate(("acr", "gain")), enumerate(sigmas)):
        axis, shown = grid[row, column], frame[(frame["sigma"] == sigma) & frame[value].notna()]
        ends = {}
        for kind, points in shown.groupby("kind", sort=False):
            shift = 0.05 * (kinds.index(kind) - (len(kinds) - 1) / 2)  # keeps error bars of one size apart
            means = points.groupby("members")[value].mean()
            axis.plot(means.index + shift, means, label=kind, **styles[kind])
            _marks(axis, points, value, shift, styles[kind]["color"], "o" if kind in COLOURS else "D")
            ends[kind] = (float(means.index[-1] + shift), float(means.iloc[-1]))
        _decorate(axis, f"σ = {sigma}", "number of members")
        sizes = sorted(set(frame["members"]))
        axis.set_xticks(sizes)
        axis.set_xlim(sizes[0] - 0.25, sizes[-1] + 0.3 + 0.4 * max(sizes[-1] - sizes[0], 1))
        named.append((axis, ends, sizes[-1] + 0.25))
    grid[0, 0].set_ylabel("ACR")
    grid[1, 0].set_ylabel("ACR less its members' mean")
    for axis in grid[1]:
        axis.axhline(0, color="#444444", linewidth=0.8, zorder=0)
    _alike(grid[1])
    scales = " The scale of ACR is another at each noise level; that of the gain is one." * (len(sigmas) > 1)
    _note(figure, f"{ERROR_BARS}{ONE_SAMPLE} (below).{scales}")
    for axis, ends, x in named:
        line_names.at_right_ends(axis, ends, x)
    return figure


def differences(frame: pd.DataFrame) -> Figure:
    """Draw the difference of every ACR to each reference's, one column per noise level, one row per reference.

    A hollow mark is a tie.

    Args:
        frame: Columns ``sigma method reference difference error_images error tie`` of
            ``rs.reporting.method_tables.differences``.
    """
    sigmas, references = (list(dict.fromkeys(frame[name])) for name in ("sigma", "reference"))
    place = frame.groupby(["sigma", "reference"]).cumcount().groupby(frame["method"], sort=False).max()
    methods = [str(name) for name in place.sort_values(kind="stable").index]  # a reference is not in its own block
    height = 0.75 + 0.19 * len(methods)
    figure, grid = _grid(len(references), len(sigmas), height, share_x="row", share_y=True)
    styles = _styles(methods)
    for (row, reference), (column, sigma) in product(enumerate(references), enumerate(sigmas)):
        axis = grid[row, column]
        shown = frame[(frame["sigma"] == sigma) & (frame["reference"] == reference)]
        for one in shown.to_dict("records"):
            colour, marker = styles[one["method"]]["color"], "D" if " + " in one["method"] else "o"
            errors = _larger_error(pd.DataFrame([one]), "error")
            face = "white" if one["tie"] else colour
            at = (one["difference"], methods.index(one["method"]))
            axis.errorbar(*at, xerr=errors, fmt=marker, color=colour, mfc=face, ms=4.5, elinewidth=1.4)
        axis.axvline(0, color="#444444", linewidth=0.8, zorder=0)
        if reference in methods:
            axis.text(0, methods.index(reference), " the reference", va="center", fontsize=7.5, color="#444444")
        _decorate(axis, f"σ = {sigma}", f"ACR less that of {reference}")
        axis.set_yticks(range(len(methods)), methods, fontsize=line_names.POINTS)
        axis.set_ylim(len(methods) - 0.4, -0.6)
    text = (
        f"{ERROR_BARS}Differences are taken image by image. Hollow: a tie, the difference may be 0 at the level of 5 %."
    )
    _note(figure, text)
    return figure


def acr_by_cost(frame: pd.DataFrame) -> Figure:
    """Draw ACR against evaluations of members for an image, a column per noise level, a row per kind of ensemble.

    A row has the single models that the ensembles of its kind are made of, and these; a mixture is black.

    Args:
        frame: Columns ``sigma kind method members evaluations acr`` of ``rs.reporting.ensemble_tables.equal_cost``.
    """
    sigmas = list(dict.fromkeys(frame["sigma"]))
    kinds = list(dict.fromkeys(frame.loc[frame["members"] > 1, "kind"]))
    figure, grid = _grid(len(kinds), len(sigmas), height=2.3, share_x=True)
    named = []
    for (row, kind), (column, sigma) in product(enumerate(kinds), enumerate(sigmas)):
        axis, trained = grid[row, column], kind.split(" + ")
        inside = (frame["kind"] == kind) | (frame["kind"].isin(trained) & (frame["members"] == 1))
        shown = frame[(frame["sigma"] == sigma) & inside].sort_values("members", kind="stable")
        lines = _lines(shown, "evaluations", "acr")
        others = cycle([dash for dash in PATTERNS if dash not in [DASHES.get(name) for name in trained]])
        for (name, line), marker in zip(lines.items(), cycle(MARKERS)):
            style = _styles([name])[name] | ({} if name in trained else {"linestyle": next(others), "linewidth": 1.3})
            axis.plot(*line, marker=marker, ms=3.2, label=name, **style)
        _decorate(axis, f"{kind}, σ = {sigma}", "")
        axis.set_xscale("log")
        named.append((axis, {_without_methods(name, trained): line for name, line in lines.items()}))
    longest = float(frame["evaluations"].max())
    grid[0, 0].set_xlim(0.85 * float(frame["evaluations"].min()), longest * 1.5)
    _plain_decades(grid[0, 0])
    for column in grid.T:
        _alike(column, above=0.12)
        column[-1].set_xlabel("evaluations of members for an image")
    figure.supylabel("ACR", fontsize=10)
    scales = "The scale of ACR does not begin at 0; it is one for all panels of a noise level. "
    _note(figure, f"{scales}An ensemble of two kinds is named by its numbers of members: 1+2.")
    for axis, lines in named:
        line_names.near_ends(axis, lines)
    return figure


def settle(figure: Figure) -> None:
    """Lay out a finished picture for the last time, which each format would do anew."""
    figure.draw_without_rendering()
    with matplotlib.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)


def png(figure: Figure) -> bytes:
    """Return the picture as PNG, without a time stamp."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """Return the picture as SVG, without a time stamp and with the same element names each time."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "rs"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _grid(rows: int, columns: int, height: float, **share: Any) -> tuple[Figure, Any]:
    """Return a figure of panels ``height`` inches high, and these (rows, columns)."""
    figure = Figure(figsize=(WIDTHS.get(columns, 3.4) * columns, height * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    share = {f"share{name[-1]}": value for name, value in share.items()}
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def _by_size(frame: pd.DataFrame) -> tuple[Figure, list[tuple[Axes, float, pd.DataFrame]]]:
    """Return panels with their noise level and rows: single models, and if there are any the largest ensembles."""
    sigmas, largest = list(dict.fromkeys(frame["sigma"])), int(frame["members"].max())
    sizes = [1, largest] if largest > 1 else [1]
    figure, grid = _grid(len(sizes), len(sigmas), height=3.3, share_y=True)
    panels = []
    for (row, size), (column, sigma) in product(enumerate(sizes), enumerate(sigmas)):
        shown = frame[(frame["sigma"] == sigma) & (frame["members"] == size)]
        grid[row, column].set_visible(not shown.empty)
        panels += [] if shown.empty else [(grid[row, column], sigma, shown)]
    for row, size in zip(grid, sizes, strict=True):
        row[0].set_ylabel("single models" if size == 1 else f"ensembles of {size}")
    return figure, panels


def _lines(frame: pd.DataFrame, x: str, y: str) -> dict[str, Line]:
    """Return the line of each method, in their order."""
    groups = frame.groupby("method", sort=False)
    return {str(name): (line[x].to_numpy(float), line[y].to_numpy(float)) for name, line in groups}


def _styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour, dash and width of the line of each method, ensemble or kind of ensembles.

    An ensemble of one method has that method's; a mixture is black; what is none of the known methods takes a spare
    colour. No two have the same colour and dash.
    """
    names = list(dict.fromkeys(methods))
    trained = {name: {part.split()[0] for part in name.split(" + ")} for name in names}
    dashes = cycle([*PATTERNS[len(DASHES) :], *DASHES.values()])
    spare, styles, taken = cycle(SPARE), {}, set()
    for name in names:
        method = next(iter(trained[name])) if len(trained[name]) == 1 else ""
        colour = COLOURS.get(method) or (next(spare) if method else MIXED)
        dash = DASHES[method] if method in DASHES and (colour, DASHES[method]) not in taken else next(dashes)
        taken.add((colour, dash))
        styles[name] = {"color": colour, "linestyle": dash, "linewidth": 2.0 if method == "advmacer" else 1.5}
    return styles


def _alike(panels: Iterable[Axes], above: float = 0.0) -> None:
    """Give panels one scale of y, with room above the lines."""
    limits = [axis.get_ylim() for axis in panels]
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    for axis in panels:
        axis.set_ylim(low, high + above * (high - low))


def _colours(styles: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: style["color"] for name, style in styles.items()}


def _before(line: Line, x: float) -> float:
    """Return the height of the last point before ``x``."""
    return float(line[1][line[0] < x][-1])


def _stepped(line: Line) -> Line:
    """Return the corners of a line that is drawn in steps."""
    x, y = line
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _mark_limit(axis: Axes, x: float, text: str = "") -> None:
    """Draw the limit of certificates as a dotted line, with a text along it, or, of two lines, to the right of it."""
    axis.axvline(x, color="#444444", linestyle=(0, (1, 2)), linewidth=1.0)
    side = 1 if "\n" in text else -1
    own: dict[str, Any] = {"ha": "left", "linespacing": 1.05} if side > 0 else {"ha": "right", "rotation": 90}
    own |= {"va": "top", "fontsize": 7.5, "color": "#444444", "transform": axis.get_xaxis_transform()}
    axis.text(x + side * 0.008 * axis.get_xlim()[1], 0.98, text, **own)


def _note(figure: Figure, text: str) -> None:
    """Write under the panels what they do not say themselves, and lay all out, so that names find their places."""
    wide = int(14.5 * figure.get_figwidth())
    figure.supxlabel(fill(text, wide), fontsize=8, color="#444444", x=0.02, ha="left")
    figure.draw_without_rendering()


def _without_methods(name: str, trained: list[str]) -> str:
    """Return what a name says beside the training methods; all of a name of another form, as one's own is.

    >>> [_without_methods(name, ["macer"]) for name in ("macer", "macer x3 (mme)")]
    ['x1', 'x3 (mme)']
    >>> [_without_methods(name, ["a", "macer"]) for name in ("macer", "a x1 + macer x2")]
    ['macer', '1+2']
    >>> _without_methods("mine (vote)", ["a", "macer"])
    'mine (vote)'
    """
    if name in trained:
        return "x1" if len(trained) == 1 else name
    parts = name.split(" + ")
    if len(parts) != len(trained) or not all(map(str.startswith, parts, [f"{method} " for method in trained])):
        return name
    rest = " + ".join(part.removeprefix(f"{method} ") for part, method in zip(parts, trained, strict=True))
    return rest.replace(" + x", "+").removeprefix("x") if len(trained) > 1 else rest


def _plain_decades(axis: Axes) -> None:
    """Mark a logarithmic axis at 1, 3, 10, ..., or at 1, 10, ... if it is long, in whole numbers."""
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if high < 100 * low else (1.0,)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _marks(axis: Axes, points: pd.DataFrame, value: str, shift: float, colour: str, marker: str) -> None:
    """Mark each point with its error."""
    x, errors = points["members"] + shift, _larger_error(points, "error" if value == "acr" else f"{value}_error")
    axis.errorbar(x, points[value], errors, fmt="none", ecolor=colour, elinewidth=1.0)
    axis.plot(x, points[value], marker, ms=4.5, color=colour)


def _larger_error(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return the larger one of the errors over images and over images and training seeds."""
    return cast("pd.Series[float]", frame[[f"{name}_images", name]].astype(float).max(axis=1))


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
