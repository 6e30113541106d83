"""The charts of the report page, by Altair (Vega-Lite), in colors that light and dark pages show.

Vega draws them as SVG, where a color may be a variable of the page's style: the style sheet
``web/page.css`` decides what it is on a light and on a dark page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from rs.reporting.figures import COLORS
from rs.reporting.results import Group, best
from rs.statistics.comparison import Estimate

STEPS = 100
"""Points of a curve between radius 0 and the largest certified radius at its noise level."""

ENOUGH_ROOM = 0.1
"""Certified accuracy between curves where a name has enough room."""

HOVER_STEPS = 4
"""Points of a curve between those that answer to the pointer."""

ORDER = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colors of names that are no training methods: those of Okabe and Ito (2008), in this order."""

SERIES = tuple(COLORS.values())
"""Colors of the variables ``--series-0``, ``--series-1``, ... of the style sheet.

There a color is mixed with black or white where its contrast to the page is below 3 (WCAG 2.1,
graphical objects).
"""

INK = "var(--ink)"
"""The color of ensembles of several training methods."""

PATTERNS: tuple[list[int], ...] = (
    [],
    [6, 3],
    [2, 3],
    [10, 3, 2, 3],
    [1, 5],
    [14, 4],
    [6, 2, 2, 2, 2, 2],
)
"""Dashes of lines of one color, in this order."""

CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--line)",
        "gridColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 230,
    },
    "legend": {"labelColor": INK, "labelFontSize": 12, "labelLimit": 260, "unselectedOpacity": 0.6},
}
"""What all charts share, in the names of Vega-Lite."""

Json = dict[str, Any]
"""Values by name, as in JSON."""

Methods = Mapping[str, Group]
"""The groups of a noise level by name."""


# --------------------------------------------------------------------------------------------------
# colors


def looks(methods: Methods) -> dict[str, tuple[str, list[int]]]:
    """Return color and dash of the line of each name; no two of them are the same.

    A training method has its own color, and so have ensembles of that method alone; ensembles of
    several methods are drawn in ink. Any other name takes that color of :data:`ORDER` which the
    fewest lines have.
    """
    used: Counter[str] = Counter()
    by_name = {}
    for name in sorted(methods, key=lambda name: name not in COLORS):
        method, *others = methods[name].first.training_methods or [name]
        color = COLORS.get(method) or min(ORDER, key=used.__getitem__)
        shown = INK if others else f"var(--series-{SERIES.index(color)})"
        key = INK if others else color
        by_name[name] = (shown, PATTERNS[used[key] % len(PATTERNS)])
        used[key] += 1
    return by_name


def single_models(methods: Methods) -> Methods:
    """Return the groups that are not ensembles."""
    return {name: group for name, group in methods.items() if group.first.ensemble is None}


def highlighted(methods: Methods, reference: str) -> list[str]:
    """Return the names that are shown first: the best, the best single model, and the reference."""
    if len(methods) <= 4:
        return list(methods)
    names = [*best(methods)[:1], *best(single_models(methods))[:1], reference]
    return [name for name in dict.fromkeys(names) if name in methods]


# --------------------------------------------------------------------------------------------------
# charts


def curves_chart(methods: Methods, reference: str) -> Json:
    """Return certified accuracy by radius, one line per name.

    A click on a name in the legend shows or hides its line. The pointer shows the nearest point.
    """
    longest = 0.0
    for group in methods.values():
        for rows in group.rows:  # an attack that finds nothing has an infinite radius
            finite = rows["radius"][np.isfinite(rows["radius"])]
            longest = max(longest, float(finite.max()))
    radii = np.linspace(0, 1.02 * longest or 1.0, STEPS + 1)
    curves = {name: group.accuracies(radii) for name, group in methods.items()}
    first = highlighted(methods, reference)
    every_point: list[Json] = []
    labels: list[Json] = []
    for name, accuracies in curves.items():
        curve: list[Json] = []
        for radius, accuracy in zip(radii.round(4), accuracies.round(4), strict=True):
            curve.append({"name": name, "radius": radius, "accuracy": accuracy})
        for point in curve[::HOVER_STEPS]:
            point["near"] = 1
        every_point += curve
        others = [curves[other] for other in first if other != name]
        step, above = _place_of_label(accuracies, others)
        labels.append(curve[step] | {"above": above})

    start = [{"name": name} for name in first]
    selected = alt.selection_point(
        name="chosen", fields=["name"], bind="legend", toggle="true", value=start
    )
    near = alt.selection_point(
        name="near", on="pointerover", nearest=True, clear="pointerout", empty=False
    )
    color, dash = _color_and_dash(methods)
    radius_axis = alt.Axis(tickCount=8, labelFlush=False, title="certified ℓ₂ radius r")
    share_axis = alt.Axis(tickCount=6, title="certified accuracy", format="%")
    base = alt.Chart().transform_filter(selected)
    base = base.encode(
        x=alt.X("radius:Q", scale=alt.Scale(nice=False), axis=radius_axis),
        y=alt.Y("accuracy:Q", axis=share_axis),
        color=color,
    )
    lines = base.mark_line(interpolate="step-before", strokeWidth=2).encode(strokeDash=dash)
    dots = base.transform_filter("datum.near").mark_point(filled=True, size=70)
    dots = dots.encode(
        opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0)),
        tooltip=["name:N", "radius:Q", "accuracy:Q"],
    )
    # Names begin at their curves, or further left to end within the chart; 7 pixels per letter.
    overhang = "scale('x', datum.radius) + 7 * length(datum.name) - width"
    texts = base.properties(data=alt.InlineData(values=labels)).mark_text(
        align=alt.ExprRef("datum.above ? 'left' : 'right'"),
        dx=alt.ExprRef(f"datum.above ? -max(0, {overhang}) : 0"),
        dy=alt.ExprRef("datum.above ? -9 : 12"),
        fontWeight=600,
    )
    layers = alt.layer(
        lines.add_params(selected).properties(name="lines"),
        dots.add_params(near).properties(name="dots"),
        texts.encode(text="name:N"),
        data=alt.InlineData(values=every_point),
    )
    return _sized(layers, height=380)


def differences_chart(methods: Methods, reference: str) -> Json | None:
    """Return the paired differences of ACR to the reference with 95% intervals, largest first."""
    rows = []
    for name, group in methods.items():
        if name != reference:
            difference = group.difference_to(methods[reference])
            verdict = "may be 0 (tie)" if difference.tie else "is not 0"
            row = {"name": name, "verdict": verdict}
            rows.append(row | _interval(difference, difference.half_width))
    if not rows:
        return None
    axis = alt.Axis(tickCount=6, title=f"ACR minus ACR of {reference}")
    names = alt.Y("name:N", title=None, sort=alt.EncodingSortField("value", order="descending"))
    color, _ = _color_and_dash(methods, legend=False)
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=names, color=color)
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", axis=axis), x2="high:Q")
    tooltip = ["name:N", "value:Q", "low:Q", "high:Q", "verdict:N"]
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(x="value:Q", tooltip=tooltip)
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(
        strokeDash=[4, 3], color="var(--soft)"
    )
    layers = alt.layer(zero.encode(x="zero:Q"), bars, dots)
    return _sized(layers, height=24 + 20 * len(rows))


def cost_chart(methods: Methods) -> Json | None:
    """Return ACR by the number of members that are evaluated per sample; ``None`` if all have one.

    The best of each cost is named. Bars are standard errors over images.
    """
    rows: list[Json] = []
    best_at: dict[float, Json] = {}
    for name, group in methods.items():
        cost = round(group.members_per_draw, 3)
        row = {"name": name, "label": "", "cost": cost}
        row |= _interval(group.acr, group.acr.error_images)
        best_at[cost] = max(best_at.get(cost, row), row, key=lambda other: other["value"])
        rows.append(row)
    if len(best_at) == 1:
        return None
    for row in best_at.values():
        row["label"] = row["name"]
    color, _ = _color_and_dash(methods, legend=False)
    fitted = alt.Scale(zero=False, padding=16)
    cost_axis = alt.Axis(tickMinStep=1, title="members evaluated per sample")
    x = alt.X("cost:Q", scale=fitted, axis=cost_axis)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=x, y=alt.Y("value:Q", scale=fitted), color=color
    )
    bars = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title="ACR"), y2="high:Q")
    dots = base.mark_point(filled=True, size=70, opacity=1)
    side = alt.ExprRef("datum.cost > 2 ? 'right' : 'left'")
    texts = base.mark_text(dy=-10, align=side, fontWeight=600).encode(text="label:N")
    layers = alt.layer(bars, dots.encode(tooltip=["name:N", "value:Q", "cost:Q"]), texts)
    return _sized(layers, height=300)


def _interval(difference: Estimate, half_width: float) -> Json:
    """Return a value between the ends of its interval."""
    ends = {
        "low": difference.value - half_width,
        "value": difference.value,
        "high": difference.value + half_width,
    }
    return {name: round(end, 5) for name, end in ends.items()}


def _place_of_label(
    curve: NDArray[np.float64], others: Sequence[NDArray[np.float64]]
) -> tuple[int, bool]:
    """Return the step at which a curve has the most room for its name, and whether above it."""
    steps = slice(STEPS // 5, STEPS * 7 // 10)  # not at an axis, nor where all curves fall to 0
    above = np.full(len(curve[steps]), ENOUGH_ROOM)
    below = np.minimum(curve[steps], ENOUGH_ROOM)
    for other in others:
        distance = (other - curve)[steps]
        above = np.where(distance >= 0, np.minimum(above, distance), above)
        below = np.where(distance <= 0, np.minimum(below, -distance), below)
    is_above = bool(above.max() >= below.max())
    room = above if is_above else below
    last = len(room) - 1 - int(room[::-1].argmax())  # further right, curves differ more
    return STEPS // 5 + last, is_above


def _color_and_dash(methods: Methods, legend: bool = True) -> tuple[alt.Color, alt.StrokeDash]:
    """Return the encodings of names by :func:`looks`."""
    by_name = looks(methods)
    shown = alt.Legend(title=None, orient="bottom", symbolType="stroke") if legend else None
    colors, dashes = zip(*by_name.values(), strict=True)
    names = list(by_name)
    color_scale = alt.Scale(domain=names, range=list(colors))
    dash_scale = alt.Scale(domain=names, range=list(dashes))
    return (
        alt.Color("name:N", scale=color_scale, legend=shown),
        alt.StrokeDash("name:N", scale=dash_scale, legend=shown),
    )


def _sized(chart: alt.LayerChart | alt.FacetChart, height: int) -> Json:
    """Return the specification of a chart that is as wide as its place on the page."""
    fitted = alt.AutoSizeParams(type="fit-x", contains="padding")
    return chart.properties(width="container", height=height, autosize=fitted).to_dict()
