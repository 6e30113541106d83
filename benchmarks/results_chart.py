"""The chart of README: the average certified radius (ACR) of methods and ensembles on CIFAR-10."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.page_tables import HEADLINE, LEVELS, Committed
from rs.statistics.comparison import Estimate, estimate

COLORS = {"advmacer": "#d55e00", "ensemble": "#0072b2", "other": "#666666"}


def draw(committed: Committed) -> Figure:
    """Draw one panel per noise level: the ACR of each method with its standard error."""
    names = [*committed.methods(), *HEADLINE]
    at_middle_level = {name: estimate(committed.sample(name, "0.5")).value for name in names}
    names.sort(key=lambda name: at_middle_level[name])
    figure = Figure(figsize=(10, 4.2), facecolor="white", layout="constrained")
    panels = figure.subplots(1, len(LEVELS), sharey=True)
    for axes, level in zip(panels, LEVELS, strict=True):
        estimates = [estimate(committed.sample(name, level)) for name in names]
        draw_panel(axes, names, estimates)
        axes.set_title(f"σ = {level}")
    panels[0].set_yticks(range(len(names)), names)
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set_color(color_of(name))
    figure.supxlabel("average certified radius (± standard error)", fontsize=10)
    return figure


def draw_panel(axes: Axes, names: list[str], estimates: list[Estimate]) -> None:
    """Draw the dots of one noise level, each with its value to the right."""
    rightmost = max(value.value + standard_error(value) for value in estimates)
    leftmost = min(value.value - standard_error(value) for value in estimates)
    width = rightmost - leftmost
    for position, (name, value) in enumerate(zip(names, estimates, strict=True)):
        color = color_of(name)
        axes.errorbar(
            value.value, position, xerr=standard_error(value), fmt="o", color=color, markersize=5
        )
        axes.text(
            value.value + standard_error(value) + 0.03 * width,
            position,
            f"{value.value:.3f}",
            color=color,
            va="center",
            fontsize=9,
        )
    axes.set_xlim(leftmost - 0.05 * width, rightmost + 0.3 * width)
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
