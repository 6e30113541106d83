"""The picture of docs/warm-starts.md: ACR against the seconds of a training, with and without a
start without noise.

``python -m benchmarks.warm_starts``: reads the committed rows of both and writes
``docs/warm-starts.svg``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import unpack_rows
from rs.reporting.figures import COLORS
from rs.reporting.report import drawn
from rs.statistics.comparison import Estimate, estimate, sample
from rs.storage import certificate_rows, files

ROWS, PICTURE = Path("reports/rows"), Path("docs/warm-starts.svg")
LEVELS = ("0.25", "0.5", "1.0")
START_EPOCHS = 5
"""Epochs of the warm starts of the committed rows."""


class Training(NamedTuple):
    """A way to train a method at a noise level, with all its seeds."""

    method: str
    is_warm: bool
    level: str
    seconds: float
    acr: Estimate


def trainings(random: Path, warm: Path, epoch_seconds: Path) -> Iterator[Training]:
    """Yield the trainings, with and without a start, of every method that has three seeds of it.

    Args:
        random: Unpacked rows of the study, whose trainings start from random weights.
        warm: Unpacked rows of those with a start; in it ``SECONDS-warm`` and ``SECONDS-random`` are
            of other lengths.
        epoch_seconds: Seconds of an epoch of each method.
    """
    seconds_per_epoch = pd.read_csv(epoch_seconds, index_col="method")["seconds"]
    folders = {random: False, warm: True}
    folders |= {
        folder: not folder.name.endswith("-random") for folder in sorted(warm.glob("[0-9]*-*"))
    }
    for level in LEVELS:
        methods = {
            path.stem.removesuffix("-2")
            for path in (warm / "results/cifar10-cpu" / level).glob("*-2.tsv")
        }
        for method in sorted(methods):
            for folder, is_warm in folders.items():
                results = folder / "results/cifar10-cpu" / level
                paths = {
                    path.stem: path
                    for where in ("pool", ".")
                    for path in (results / where).glob(f"{method}-?.tsv")
                }
                if paths:
                    history = folder / "logs/cifar10-cpu" / level / method / "0/history.csv"
                    seconds = len(pd.read_csv(history)) * seconds_per_epoch[method]
                    rows = [certificate_rows.read_rows(path) for _, path in sorted(paths.items())]
                    acr = estimate(sample(rows, [[seed] for seed in range(len(rows))]))
                    yield Training(
                        method,
                        is_warm,
                        level,
                        seconds + is_warm * START_EPOCHS * seconds_per_epoch["gaussian"],
                        acr,
                    )


def draw(points: list[Training]) -> Figure:
    """Draw the ACR against the seconds of a training, start included: a panel per noise level."""
    figure = Figure(figsize=(3.6 * len(LEVELS), 3.6), layout="constrained")
    for axis, level in zip(figure.subplots(1, len(LEVELS), squeeze=False)[0], LEVELS, strict=True):
        here = [point for point in points if point.level == level]
        for method, is_warm in sorted({(point.method, point.is_warm) for point in here}):
            line = sorted(
                point for point in here if (point.method, point.is_warm) == (method, is_warm)
            )
            errors = [max(point.acr.error_images, point.acr.error or 0) for point in line]
            axis.errorbar(
                [point.seconds for point in line],
                [point.acr.value for point in line],
                errors,
                color=COLORS[method],
                linestyle="-" if is_warm else ":",
                marker="o",
                mfc=COLORS[method] if is_warm else "white",
                capsize=2,
                label=f"{method}, {'start without noise' if is_warm else 'random weights'}",
            )
        axis.set_title(f"σ = {level}")
        axis.set_xlabel("seconds, start included")
        axis.set_xlim(0, 1.1 * max(point.seconds for point in here))
    figure.axes[0].set_ylabel("ACR")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=len(labels)
    )
    return figure


def main() -> None:
    """Draw the committed rows."""
    with TemporaryDirectory() as folder:
        unpack_rows(ROWS, Path(folder))
        studies = [Path(folder, study) for study in ("cifar10-cpu", "cifar10-cpu-warm")]
        points = trainings(*studies, ROWS / "cifar10-cpu/epoch-seconds.csv")
        files.write_bytes(PICTURE, drawn(draw(list(points)), "svg"))


if __name__ == "__main__":
    main()
