"""The figures that the paper prints, as data: ``published.csv`` beside this file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

PUBLISHED = Path(__file__).with_name("published.csv")
METRICS = ("acr", "clean_accuracy", "certified_accuracy", "training_hours", "certificate_seconds")


def published(dataset: str | None = None) -> pd.DataFrame:
    """Return the published figures on ``dataset``, or all of them.

    Returns:
        Columns ``source table dataset sigma method metric radius value unit``, with ``metric`` one of
        :data:`METRICS`, accuracies as shares of 1, and ``radius`` NaN where there is none. The figures are of 500 test
        images at n0 = 100, n = 100,000 and alpha = 0.001; "clean accuracy" is certified accuracy at radius 0.

    >>> figures = published("cifar10").query("method == 'advmacer' and metric == 'acr' and table == 'table_main'")
    >>> figures[["sigma", "value"]].values.tolist()
    [[0.25, 0.554], [0.5, 0.742], [1.0, 0.794]]
    """
    figures = pd.read_csv(PUBLISHED)
    return figures if dataset is None else figures[figures["dataset"] == dataset].reset_index(drop=True)


def paper_value(
    figures: pd.DataFrame, kind: str, sigma: float, metric: str, radius: float | None = None
) -> float | None:
    """Return one published figure, from the first table that prints it, or ``None``.

    Args:
        figures: As :func:`published` returns them.
        kind: A training method, or a kind of ensemble (``rs.reporting.results.Result.kind``).
        sigma: Noise level.
        metric: One of :data:`METRICS`.
        radius: Of a certified accuracy.
    """
    hits = figures[(figures["method"] == kind) & (figures["sigma"] == sigma) & (figures["metric"] == metric)]
    hits = hits if radius is None else hits[hits["radius"] == radius]
    return float(hits["value"].iloc[0]) if len(hits) else None
