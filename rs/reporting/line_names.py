"""Write the name of each line beside it, so that a picture needs neither a legend nor its colours.

Names are 8 points high. Heights and widths on the page are reckoned from that, so a name stands where it stands
whatever the resolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Floats = NDArray[np.float64]
Line = tuple[Floats, Floats]
"""x and y of the points of a line; x rises."""

POINTS = 8
LINE = 1.25 * POINTS / 72
"""Height of a line of text in inches."""
APART = 4
"""Pixels left free between two names on one height, which else are read as one."""
LEADER: dict[str, Any] = {"arrowstyle": "-", "lw": 0.6, "color": "#888888", "shrinkA": 1, "shrinkB": 0}

BESIDE = [(5, 0), (5, 7), (5, -7), (0, 9), (0, -9), (-5, 9), (-5, 0), (-5, -9)]
BESIDE += [(side * along, up) for up in (15, -15, 22, -22, 30, -30) for along in (5, 14) for side in (1, -1)]
"""Where a name may stand beside its point: offsets in points, the most welcome first."""


def wrapped(name: str) -> str:
    r"""Return the name of a mixture on a line for each training method.

    >>> wrapped("advmacer x1 + smoothadv x2")
    'advmacer x1\n+ smoothadv x2'
    """
    return name.replace(" + ", "\n+ ")


def spread(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Return the centres nearest to those wanted, by least squares, at which boxes do not overlap.

    Boxes keep the order of their wanted centres and lie between ``low`` and ``high``, as far as there is room. The
    centres less the heights below them must not fall, which is an isotonic regression.

    >>> spread([0.5, 0.5, 2.0], [1.0, 1.0, 1.0], 0.0, 4.0)
    [0.5, 1.5, 2.5]
    """
    order = np.argsort(wanted, kind="stable")
    tall = np.asarray(heights, dtype=np.float64)[order]
    offsets = np.cumsum(tall) - tall / 2 - tall[0] / 2
    free = isotonic_regression(np.asarray(wanted, dtype=np.float64)[order] - offsets).x
    least = low + tall[0] / 2
    centres = np.empty(len(order))
    centres[order] = np.clip(free, least, max(least, high - tall[-1] / 2 - offsets[-1])) + offsets
    return centres.tolist()


def at_right_ends(axis: Axes, ends: Mapping[str, tuple[float, float]], x: float, free: int = 0) -> None:
    """Write names in a column that begins at ``x``, each led to the end of its line.

    The limits of the axis must be set, and the layout of the figure known; the axis is made longer where names would
    leave it. A name is as near to the height of its end as the others allow, below ``free`` lines of text at the top.
    """
    low, high = axis.get_ylim()
    unit = (high - low) / _size(axis).height
    names = [wrapped(name) for name in ends]
    heights = [unit * LINE * (1 + name.count("\n")) for name in names]
    centres = spread([y for _, y in ends.values()], heights, low, high - unit * LINE * (free + 0.5 * bool(free)))
    places = zip(names, ends.values(), centres, strict=True)
    texts = [_lead(axis, name, end, (x, centre), "left") for name, end, centre in places]
    first, last = axis.get_xlim()
    part = max(_box(text, _renderer(axis)).width for text in texts) / axis.get_window_extent().width
    if x + part * (last - first) > last:
        axis.set_xlim(first, (x - 1.02 * part * first) / (1 - 1.02 * part))


def above_rising_lines(axis: Axes, lines: Mapping[str, Line], colours: Mapping[str, str]) -> None:
    """Write the name of each line to the left of all, where nothing is, and lead it to a dot on the line.

    Dots lie at different heights: above all lines in the middle of the axis, and below where they jump to 1. Where a
    name would leave the panel the long ones come first, above, where there is most room. The layout of the figure must
    be known (``Figure.draw_without_rendering``).
    """
    x = next(iter(lines.values()))[0]
    y = {name: line[1] for name, line in lines.items()}
    middle = x <= 0.55 * x[0] + 0.45 * x[-1]
    least = max(float(line[middle].max()) for line in y.values())
    crowded = 0.96 - 0.85 * LINE * (len(y) - 1) / _size(axis).height  # where names touch each other
    low = min(least + 0.06, max(0.6, crowded))
    jump = min(float(line[line < 1].max(initial=0.0)) for line in y.values())
    heights = np.linspace(min(max(0.97 * jump, low + 0.35), 0.96), low, len(y)).tolist()
    left = [min(float(x[int((line >= height - 0.03).argmax())]) for line in y.values()) - 0.12 for height in heights]
    panel = axis.get_window_extent()
    for names in (list(y), sorted(y, key=len, reverse=True)):
        dots = [_reaching(x, y[name], height) for name, height in zip(names, heights, strict=True)]
        places = zip(names, dots, left, heights, strict=True)
        texts = [_lead(axis, name, dot, (end, height), "right") for name, dot, end, height in places]
        if all(_box(text, _renderer(axis)).x0 >= panel.x0 for text in texts):
            break
        if names == list(y):
            for text in texts:
                text.remove()
    for name, dot in zip(names, dots, strict=True):
        _dot(axis, dot, colours[name])


def _reaching(x: Floats, y: Floats, height: float) -> tuple[float, float]:
    """Return the point at which a line in steps reaches a height; its first point if that is higher."""
    place = int((y >= height).argmax())
    return float(x[place]), height if place else max(height, float(y[0]))


def above_falling_lines(axis: Axes, lines: Mapping[str, Line], colours: Mapping[str, str]) -> None:
    """Write the name of each line to the right of all, and lead it to a dot on the line; long names first, above."""
    x = next(iter(lines.values()))[0]
    y = {name: line[1] for name, line in lines.items()}
    low, high = axis.get_ylim()
    gap = 0.02 * (axis.get_xlim()[1] - x[0])
    heights = np.linspace(min(line[0] for line in y.values()) - 0.05 * high, low + 0.12 * high, len(y))
    for name, height in zip(sorted(y, key=len, reverse=True), heights, strict=True):
        right = max(x[_last(other >= height - 0.03 * high)] for other in y.values())
        at = (float(x[_last(y[name] >= height)]), float(height))
        _dot(axis, at, colours[name])
        _lead(axis, name, at, (right + gap, float(height)), "left")


def near_ends(axis: Axes, lines: Mapping[str, Line]) -> None:
    """Write each name beside the last point of its line, where it hides the least of the other names and lines.

    The layout of the figure must be known (``Figure.draw_without_rendering``).
    """
    renderer = _renderer(axis)
    panel = axis.get_window_extent()
    drawn = [axis.transData.transform(np.column_stack(line)) for line in lines.values()]
    dense = np.concatenate([_between(points) for points in drawn])
    taken: list[Bbox] = []
    ends = {name: (float(x[-1]), float(y[-1])) for name, (x, y) in lines.items()}
    for name in sorted(ends, key=lambda name: -ends[name][1]):
        tries = [_beside(axis, name, ends[name], offset) for offset in BESIDE]
        boxes = [_box(text, renderer) for text in tries]
        points = axis.transData.transform(list(ends.values()))
        own = list(ends).index(name)
        hidden = [_hidden(box, panel, taken, dense) + _astray(box, points, own) for box in boxes]
        chosen = hidden.index(min(hidden))
        for text in tries[:chosen] + tries[chosen + 1 :]:
            text.remove()
        taken.append(boxes[chosen].padded(APART, 0))


def _beside(axis: Axes, name: str, at: tuple[float, float], offset: tuple[int, int]) -> Annotation:
    side = ("center", "left", "right")[int(np.sign(offset[0]))]
    leader = LEADER | {"relpos": (0.5 - 0.5 * np.sign(offset[0]), 0.5)} if abs(offset[1]) > 9 else None
    own: dict[str, Any] = {
        "textcoords": "offset points",
        "ha": side,
        "va": "center",
        "arrowprops": leader,
        "in_layout": False,
    }
    return axis.annotate(name, at, offset, fontsize=POINTS, **own)


def _box(text: Annotation, renderer: RendererBase) -> Bbox:
    """Return the box of a name without its leader, in pixels."""
    text.update_positions(renderer)
    return Text.get_window_extent(text, renderer)


def _hidden(box: Bbox, panel: Bbox, taken: Sequence[Bbox], points: Floats) -> int:
    """Count points of lines below a name; another name, or a border that it crosses, is worth a thousand."""
    inside = (points >= [box.x0 - 2, box.y0 - 2]) & (points <= [box.x1 + 2, box.y1 + 2])
    crossed = box.x0 < panel.x0 or box.x1 > panel.x1 or box.y0 < panel.y0 or box.y1 > panel.y1
    return int(inside.all(axis=1).sum()) + 1000 * (crossed + sum(box.overlaps(other) for other in taken))


def _astray(box: Bbox, ends: Floats, own: int) -> float:
    """Weigh a name that does not stand ten pixels nearer to the end of its own line than to any other's."""
    corners = np.clip(ends, [box.x0, box.y0], [box.x1, box.y1])
    away = np.hypot(*(ends - corners).T)
    others = np.delete(away, own)
    return 0.25 * max(0.0, 10.0 + float(away[own] - others.min(initial=np.inf)))


def _between(points: Floats) -> Floats:
    """Return points of a line, in pixels, at most about two pixels apart."""
    parts = [np.linspace(a, b, 2 + int(np.abs(b - a).max() / 2)) for a, b in pairwise(points)]
    return np.concatenate([points[:1], *parts])


def _last(true: NDArray[np.bool_]) -> int:
    """Return the last place that is true, or the first one of all."""
    return int(np.flatnonzero(true)[-1]) if true.any() else 0


def _dot(axis: Axes, at: tuple[float, float], colour: str) -> None:
    axis.plot(*([value] for value in at), "o", ms=3.5, color=colour)


def _lead(axis: Axes, name: str, at: tuple[float, float], where: tuple[float, float], side: str) -> Annotation:
    leader = LEADER | {"relpos": (float(side == "right"), 0.5)}
    text = axis.annotate(name, at, where, ha=side, va="center", fontsize=POINTS, linespacing=1.05, arrowprops=leader)
    text.set_in_layout(False)
    return text


def _renderer(axis: Axes) -> RendererBase:
    return cast("Any", axis.figure.canvas).get_renderer()


def _size(axis: Axes) -> Bbox:
    """Return the box of a panel in inches."""
    return axis.get_window_extent().transformed(axis.figure.dpi_scale_trans.inverted())
