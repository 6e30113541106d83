"""The chart of README: the average certified radius (ACR) of methods and ensembles on CIFAR-10."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.page_tables.cells import acr_of
from benchmarks.page_tables.committed import HEADLINE, LEVELS, Committed
from rs.statistics.comparison import Estimate, estimate

COLORS = {"advmacer": "#d55e00", "ensemble": "#0072b2", "other": "#666666"}


def draw(committed: Committed) -> Figure:
    """Draw one panel per noise level: the ACR of each method with its standard error."""
    acr_at_middle_level = {}
    for name in (*committed.methods(), *HEADLINE):
        acr_at_middle_level[name] = acr_of(committed.sample(name, "0.5"))
    names = sorted(acr_at_middle_level, key=acr_at_middle_level.__getitem__)
    figure = Figure(figsize=(10, 4.2), facecolor="white", layout="constrained")
    panels = figure.subplots(1, len(LEVELS), sharey=True)
    for axes, level in zip(panels, LEVELS, strict=True):
        draw_panel(axes, {name: estimate(committed.sample(name, level)) for name in names})
        axes.set_title(f"σ = {level}")
    panels[0].set_yticks(range(len(names)), names)
    for label in panels[0].get_yticklabels():
        label.set_color(color_of(label.get_text()))
    figure.supxlabel("average certified radius (± standard error)", fontsize=10)
    return figure


def draw_panel(axes: Axes, acrs: dict[str, Estimate]) -> None:
    """Draw the dots of one noise level, each with its value to the right."""
    left_ends = []
    right_ends = []
    for acr in acrs.values():
        error = standard_error(acr)
        left_ends.append(acr.value - error)
        right_ends.append(acr.value + error)
    width = max(right_ends) - min(left_ends)
    for position, (name, acr) in enumerate(acrs.items()):
        color = color_of(name)
        error = standard_error(acr)
        axes.errorbar(acr.value, position, xerr=error, fmt="o", color=color, markersize=5)
        end = right_ends[position] + 0.03 * width
        axes.text(end, position, f"{acr.value:.3f}", color=color, va="center", fontsize=9)
    axes.set_xlim(min(left_ends) - 0.05 * width, max(right_ends) + 0.3 * width)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def color_of(name: str) -> str:
    """Return the color of AdvMacer, of ensembles, or of all other methods."""
    if name == "advmacer":
        return COLORS["advmacer"]
    return COLORS["ensemble"] if name in HEADLINE else COLORS["other"]


def standard_error(value: Estimate) -> float:
    """Return the error over images and training seeds where it is known, else over images."""
    return value.error_images if value.error is None else value.error
