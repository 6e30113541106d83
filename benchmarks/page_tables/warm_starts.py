"""Tables and the picture of training runs that start without noise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.page_tables.cells import Lines, acr_cell, estimated_gain_cell, gain_cell
from benchmarks.page_tables.committed import EQUAL_SECONDS, LEVELS, STUDY, WARM, Committed
from rs.reporting.figures import COLORS
from rs.reporting.tables.formatting import EMPTY
from rs.statistics.comparison import Estimate, estimate, holm

START_EPOCHS = 5
"""Epochs of the warm starts of the committed rows."""


def warm_result(committed: Committed) -> Lines:
    """Return the ACRs with and without a start, the differences, and p-values corrected for six."""
    lines = []
    p_values = []
    for method, level in product(("advmacer", "smoothadv"), LEVELS):
        random = committed.sample(method, level)
        warm = committed.sample(method, level, WARM)
        gain = estimate(warm, random)
        lines.append([method, level, acr_cell(random), acr_cell(warm), estimated_gain_cell(gain)])
        p_values.append(gain.p_value)
    for line, p_value in zip(lines, holm(p_values), strict=True):
        line.append(f"{p_value:.3f}")
    return [["method", "σ", "random weights", "start without noise", "difference", "p"], *lines]


def warm_lengths(committed: Committed) -> Lines:
    """Return the ACRs of other lengths and methods, with seed 0."""
    studies = {
        "426": (f"{WARM}/426-random", f"{WARM}/426-warm"),
        "852": (STUDY, WARM),
        "1,704": (f"{WARM}/1704-random", f"{WARM}/1704-warm"),
    }
    trained = []
    for level in ("0.25", "0.5"):
        for seconds, pair in studies.items():
            trained.append((seconds, pair, "advmacer", level))
    for method in ("gaussian", "macer", "consistency"):
        trained.append(("852", (EQUAL_SECONDS, WARM), method, "0.25"))
    lines = [["seconds", "method", "σ", "random weights", "start without noise", "difference"]]
    for seconds, (random_study, warm_study), method, level in trained:
        random = committed.first_training(method, level, random_study)
        warm = committed.first_training(method, level, warm_study)
        acrs = [acr_cell(random), acr_cell(warm)]
        lines.append([seconds, method, level, *acrs, gain_cell(warm, random)])
    return lines


def warm_controls(committed: Committed) -> Lines:
    """Return the ACRs of AdvMacer after other starts, and the differences from the first."""
    starts = [
        ("without noise", "0.2", WARM),
        ("random weights", "0.4", STUDY),
        ("random weights", "0.2", f"{WARM}/random-half-rate"),
        ("with noise of 0.25", "0.2", f"{WARM}/noisy-start"),
        ("without noise, last layer drawn again", "0.2", f"{WARM}/new-head"),
        ("without noise, 10 epochs on half of the images", "0.2", f"{WARM}/half-start"),
    ]
    first = committed.first_training("advmacer", "0.25", WARM)
    lines = [["start", "learning rate", "ACR", "minus the first line"]]
    for start, rate, study in starts:
        scores = committed.first_training("advmacer", "0.25", study)
        gain = EMPTY if study == WARM else gain_cell(scores, first)
        lines.append([start, rate, acr_cell(scores), gain])
    return lines


def warm_ensembles(committed: Committed) -> Lines:
    """Return time, ACR and evaluations of three AdvMacers from random weights, three starts, and
    one.
    """
    seconds_per_epoch = committed.seconds()
    epoch = seconds_per_epoch["advmacer"]
    start = START_EPOCHS * seconds_per_epoch["gaussian"]
    trained = {
        "random weights": (STUDY, 18 * epoch),
        "three starts": (f"{WARM}/three-starts", 15 * epoch + 3 * start),
        "one start": (f"{WARM}/one-start", 15 * epoch + start),
    }
    lines = [["trained from", "seconds", "ACR", "of the cascade", "its evaluations"]]
    for name, (study, seconds) in trained.items():
        average = committed.sample("advmacer x3, average", "0.25", study)
        cascade = committed.sample("advmacer x3, cascade", "0.25", study)
        (rows,), _ = committed.trainings("advmacer x3, cascade", "0.25", study)
        evaluations = rows["evaluations"].sum() / (rows["n0"] + rows["n"]).sum()
        acrs = [acr_cell(average), acr_cell(cascade)]
        lines.append([name, f"{seconds:,.0f}", *acrs, f"{evaluations:.2f}"])
    return lines


def warm_tuning(committed: Committed) -> Lines:
    """Return the ACRs on validation images of the settings that were tried."""
    tuning = committed.root / "docs/tuning"
    advmacer = pd.read_csv(tuning / "cifar10-cpu-warm-advmacer.csv")
    smoothadv = pd.read_csv(tuning / "cifar10-cpu-warm-smoothadv.csv")
    lines = [["start", "epochs", "learning rate", "AdvMacer", "SmoothAdv"]]
    for both in zip(advmacer.itertuples(), smoothadv.itertuples(), strict=True):
        start, rate = both[0].setting.split("; learning_rate ")
        acrs = [f"{trial.acr:.3f} ± {trial.error:.3f}" for trial in both]
        lines.append([start, str(both[0].epochs), rate, *acrs])
    return lines


class Training(NamedTuple):
    """A way to train a method at a noise level, with all its seeds."""

    method: str
    is_warm: bool
    level: str
    seconds: float  # start included
    acr: Estimate

    @property
    def error(self) -> float:
        """The larger one of the errors over images, and over images and seeds."""
        return max(self.acr.error_images, self.acr.error or 0)


def trainings(committed: Committed) -> Iterator[Training]:
    """Yield the training runs, with and without a start, of every method that has three starts."""
    seconds_per_epoch = committed.seconds()
    is_warm_of = {STUDY: False, WARM: True}
    for folder in sorted((committed.rows / WARM).glob("[0-9]*-*")):
        is_warm_of[f"{WARM}/{folder.name}"] = folder.name.endswith("-warm")
    for level in LEVELS:
        for path in sorted(committed.study(WARM, level).glob("*-2.tsv")):
            method = path.stem.removesuffix("-2")
            for study, is_warm in is_warm_of.items():
                if not (committed.study(study, level) / f"{method}-0.tsv").exists():
                    continue
                seconds = committed.epochs(study, level, method) * seconds_per_epoch[method]
                if is_warm:
                    seconds += START_EPOCHS * seconds_per_epoch["gaussian"]
                acr = estimate(committed.sample(method, level, study))
                yield Training(method, is_warm, level, seconds, acr)


def draw(committed: Committed) -> Figure:
    """Draw the ACR against the seconds of a training, start included: a panel per noise level."""
    points = list(trainings(committed))
    figure = Figure(figsize=(3.6 * len(LEVELS), 3.6), layout="constrained")
    panels = figure.subplots(1, len(LEVELS))
    for axes, level in zip(panels, LEVELS, strict=True):
        draw_panel(axes, [point for point in points if point.level == level])
        axes.set_title(f"σ = {level}")
    panels[0].set_ylabel("ACR")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=len(labels)
    )
    return figure


def draw_panel(axes: Axes, points: list[Training]) -> None:
    """Draw the training runs of one noise level: a line per method, with and without a start."""
    lines: dict[tuple[str, bool], list[Training]] = {}
    for point in sorted(points):
        lines.setdefault((point.method, point.is_warm), []).append(point)
    for (method, is_warm), line in lines.items():
        color = COLORS[method]
        axes.errorbar(
            [point.seconds for point in line],
            [point.acr.value for point in line],
            [point.error for point in line],
            color=color,
            linestyle="-" if is_warm else ":",
            marker="o",
            mfc=color if is_warm else "white",
            capsize=2,
            label=f"{method}, {'start without noise' if is_warm else 'random weights'}",
        )
    axes.set_xlabel("seconds, start included")
    axes.set_xlim(0, 1.1 * max(point.seconds for point in points))
