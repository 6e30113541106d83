"""The card of one certificate: an image, noisy copies, their votes and the certified radius."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from rs.statistics.certificate import ABSTAIN, Certificate, round_down

BARS_SHOWN = 4
"""Classes with a bar of their own; the votes of all others are added up."""

PANELS = (0.01, 0.23, 0.53, 0.78)
"""Left edges of the four panels, as shares of the width."""

WINNER, OTHER, TEXT = "#0072b2", "#b8b8b8", "#222222"


def draw_card(
    image: NDArray[np.float32],
    copies: NDArray[np.float32],
    copy_classes: Sequence[int],
    certificate: Certificate,
    classes: Sequence[str] = (),
) -> Figure:
    """Draw how one prediction of a smoothed classifier is made, and what it guarantees.

    Args:
        image: Shape (C, H, W), in [0, 1].
        copies: Noisy copies of it, at most six; shape (S, C, H, W).
        copy_classes: The class of each copy.
        certificate: Of the image.
        classes: Names of the classes; if empty, their numbers are shown.
    """

    def name(k: int) -> str:
        return classes[k] if classes else f"class {k}"

    figure = Figure(figsize=(11, 2.9), facecolor="white")
    titles = [
        "1. Take an image",
        f"2. Add noise (σ = {certificate.sigma:g}), classify",
        f"3. Count {certificate.n:,} votes",
        "4. Certify a radius",
    ]
    for left, title in zip(PANELS, titles, strict=True):
        figure.text(left, 0.9, title, fontsize=12, color=TEXT)

    image_panel, copies_panel, votes_panel, radius_panel = PANELS
    _show(figure.add_axes((image_panel, 0.1, 0.19, 0.72)), image)
    for number, (copy, k) in enumerate(zip(copies, copy_classes, strict=True)):
        row, column = divmod(number, 3)
        axes = figure.add_axes((copies_panel + 0.088 * column, 0.5 - 0.41 * row, 0.08, 0.32))
        _show(axes, copy)
        axes.set_xlabel(name(k), fontsize=9, labelpad=2)
    _draw_votes(figure.add_axes((votes_panel + 0.055, 0.1, 0.16, 0.74)), certificate, name)
    _draw_radius(figure.add_axes((radius_panel, 0.02, 0.21, 0.84)), certificate, name)
    return figure


def _show(axes: Axes, image: NDArray[np.float32]) -> None:
    pixels = np.clip(np.moveaxis(image, 0, -1), 0.0, 1.0)
    colors = np.broadcast_to(pixels, (*pixels.shape[:2], 3))  # of a gray image too
    axes.imshow(colors, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_votes(axes: Axes, certificate: Certificate, name: Callable[[int], str]) -> None:
    counts = certificate.counts
    order = np.argsort(-counts, kind="stable")
    shown = [int(k) for k in order[:BARS_SHOWN] if counts[k] > 0]
    rest = int(counts.sum() - counts[shown].sum())
    labels = [name(k) for k in shown]
    votes = counts[shown].tolist()
    if rest > 0:
        labels.append("all others")
        votes.append(rest)
    colors = [WINNER] + [OTHER] * (len(votes) - 1)
    bars = axes.barh(labels, votes, color=colors, height=0.7)
    axes.bar_label(bars, labels=[f"{count:,}" for count in votes], padding=3, fontsize=9)
    axes.set_xlim(0, 1.25 * max(votes))
    axes.set_ylim(BARS_SHOWN - 0.4, -0.6)
    axes.set(xticks=[])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_radius(axes: Axes, certificate: Certificate, name: Callable[[int], str]) -> None:
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.35, 1.15), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if certificate.predict == ABSTAIN:
        axes.text(0, 0, "No class has a clear majority:\nit abstains", ha="center", va="center")
        return
    radius = round_down(certificate.radius)
    axes.add_patch(Circle((0, 0), 1.0, facecolor=WINNER, alpha=0.15, edgecolor="none"))
    axes.add_patch(Circle((0, 0), 1.0, facecolor="none", edgecolor=WINNER, linewidth=2))
    axes.plot([0, 1], [0, 0], color=TEXT, linewidth=1.2)
    axes.plot([0], [0], "o", color=TEXT, markersize=5)
    axes.text(0.5, 0.06, f"{radius}", ha="center", fontsize=10, color=TEXT)
    axes.text(0, 0.5, f"always {name(certificate.predict)}", ha="center", color=WINNER)
    axes.text(0, -0.25, "the image", ha="center", fontsize=9, color=TEXT)
    note = f"wrong with probability at most {certificate.alpha:g}"
    axes.text(0, -1.3, note, ha="center", fontsize=9, color=TEXT)
