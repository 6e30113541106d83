"""Average certified radius, certified accuracy, and which rows may be compared (NumPy and pandas).

Rows have at least the columns ``radius`` and ``correct``; comparisons also need ``idx``, and use
``label``, ``n0``, ``n``, ``alpha`` and ``sigma`` if they exist. A wrong or abstaining image counts
as radius 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rs.errors import InputError
from rs.statistics.certificate import UNLABELED
from rs.statistics.procedures.early import is_early, parse_mode

BUDGET = ("n0", "n", "alpha", "sigma")
"""Columns that must agree before two average radii may be compared."""


class Terms(NamedTuple):
    """What rows must share before two average radii may be compared."""

    mode: str
    budget: dict[str, float]  # by the names of :data:`BUDGET`
    images: NDArray[np.float64]  # their numbers, increasing
    labels: NDArray[np.float64]


def terms_of(rows: pd.DataFrame) -> Terms:
    """Return what other rows must share with these.

    Raises:
        InputError: If they have several modes (:func:`mode_of`), several values (:func:`budget`),
            or an image twice.
    """
    budgets = {name: budget(rows, name) for name in BUDGET}
    return Terms(mode_of(rows), budgets, *_images(rows))


def acr(rows: pd.DataFrame) -> float:
    """Return the average certified radius: the mean over all images of radius times correct.

    Raises:
        InputError: If rows were certified in several ways (:func:`mode_of`), or have no radii
            (:func:`check_radii`).

    >>> acr(pd.DataFrame({"radius": [1.0, 2.0], "correct": [1, 0]}))
    0.5
    """
    return float(_scores(rows).mean())


def certified_accuracy(rows: pd.DataFrame, radii: ArrayLike) -> NDArray[np.float64]:
    """Return the share of images that are correct with at least each of ``radii`` (...).

    At 0 this is the usual "clean accuracy": abstentions are errors.

    Raises:
        InputError: If rows were certified in several ways (:func:`mode_of`).

    >>> certified_accuracy(pd.DataFrame({"radius": [1.0, 2.0], "correct": [1, 0]}), [0.0, 1.0, 1.5])
    array([0.5, 0.5, 0. ])
    """
    mode_of(rows)
    check_labels(rows)
    certified = np.sort(_column(rows, "radius")[_column(rows, "correct") == 1])
    below = np.searchsorted(certified, np.asarray(radii, dtype=np.float64), side="left")
    beyond = certified.size - below
    return np.asarray(beyond / len(rows))[()]


def image_scores(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Return radius times correct of every image, (N,), in the order of the images' numbers.

    Raises:
        InputError: As :func:`acr`.
    """
    return _scores(rows)[np.argsort(_column(rows, "idx"), kind="stable")]


def certified_at(rows: pd.DataFrame, radius: float) -> NDArray[np.float64]:
    """Return 1 for images that are correct with at least ``radius``, 0 for the others, (N,).

    They are in the order of the images' numbers. The mean is :func:`certified_accuracy`.

    Raises:
        InputError: As :func:`certified_accuracy`.
    """
    mode_of(rows)
    check_labels(rows)
    certified = (_column(rows, "correct") == 1) & (_column(rows, "radius") >= radius)
    return certified[np.argsort(_column(rows, "idx"), kind="stable")].astype(np.float64)


def check_comparable(terms: Sequence[Terms]) -> None:
    """Refuse terms of rows of different images or budgets, whose radii are not comparable.

    Raises:
        InputError: Names the difference.
    """
    first = terms[0]
    for other in terms[1:]:
        if other.mode != first.mode:
            raise InputError(
                f"rows to compare must be certified in the same mode, got {first.mode} and "
                f"{other.mode}, whose radii mean different things"
            )
    for name in BUDGET:
        common_budget(terms, name)
    for other in terms[1:]:
        if not np.array_equal(first.images, other.images):
            shared = np.intersect1d(first.images, other.images).size
            raise InputError(
                f"rows to compare must be of the same images, got {len(first.images)} and "
                f"{len(other.images)}, {shared} of them shared; select the same subset of both"
            )
        if not np.array_equal(first.labels, other.labels, equal_nan=True):
            raise InputError(
                "rows to compare must have the same labels; these are of different data sets"
            )


def mode_of(rows: pd.DataFrame) -> str:
    """Return how rows were certified: ``certify``, or the mode of rows that stopped early.

    Raises:
        InputError: If there are several modes; a shortcut fits each.
    """
    stated = rows["mode"].unique() if "mode" in rows else []
    modes = sorted({*stated} - {"shortcut"}) or ["certify"]
    if len(modes) > 1:
        raise InputError(f"rows must all be certified in the same way, got {' and '.join(modes)}")
    return modes[0]


def check_radii(rows: pd.DataFrame, what: str = "rows") -> None:
    """Refuse rows that only say which of some radii are certified, and so have no average radius.

    ``what`` is their name in the message.

    Raises:
        InputError: If they only say this, or there are several modes.
    """
    mode = mode_of(rows)
    if is_early(mode):
        raise InputError(
            f"{what} must hold radii, got only whether given ones are certified ({mode}); certify "
            "without --at-radius"
        )


def has_labels(rows: pd.DataFrame) -> bool:
    """Return whether the classes of the images are known."""
    return "label" not in rows or not bool((rows["label"].to_numpy() == UNLABELED).any())


def check_labels(rows: pd.DataFrame, what: str = "rows") -> None:
    """Refuse rows of images without labels, which have no accuracy and no average radius.

    ``what`` is their name in the message.

    Raises:
        InputError: If the images have no labels.
    """
    if not has_labels(rows):
        raise InputError(
            f"{what} must have labels, but their images have none; put images into one folder per "
            "class"
        )


def budget(rows: pd.DataFrame, name: str) -> float:
    """Return the single value of ``n0``, ``n``, ``alpha`` or ``sigma``; NaN if it is not stated.

    Rows without samples are ignored for n0 and n, which are 0 if there are no others. For rows that
    stopped early, n is the maximum number of samples.

    Raises:
        InputError: If there are several values.
    """
    if name not in rows:
        return float("nan")
    stop = parse_mode(mode_of(rows)) if name == "n" else None
    if stop is not None:
        return float(stop.budget)
    values = _column(rows, name)
    stated = np.unique(values[~np.isnan(values)])
    if name in ("n0", "n") and stated.max(initial=0) > 0:
        stated = stated[stated > 0]
    if stated.size > 1:
        texts = [f"{value:g}" for value in stated]
        raise InputError(f"rows must all have the same {name}, got {', '.join(texts)}")
    return float(stated[0]) if stated.size else float("nan")


def common_budget(terms: Sequence[Terms], name: str) -> float:
    """Return the single value of several sets of rows (:func:`budget`).

    Rows that skipped all of their n samples agree with any n; n is 0 if there are no others.

    Raises:
        InputError: If two of them differ.
    """
    values = [entry.budget[name] for entry in terms]
    first, *others = [value for value in values if value != 0] or values
    for other in others:
        if not (first == other or (np.isnan(first) and np.isnan(other))):
            raise InputError(
                f"rows to compare must have the same {name}, got {_stated(first)} and "
                f"{_stated(other)}{_WHY.get(name, '')}; certify both in the same way, or pass the "
                "missing values of a log as options"
            )
    return first


_WHY = dict.fromkeys(
    ("n", "alpha"), ": the largest radius that votes can give depends on it, and with it every ACR"
)
_WHY["sigma"] = ", which only have certified accuracies in common (rs compare --radii)"


def _stated(value: float) -> str:
    return "an unknown one" if np.isnan(value) else f"{value:,.15g}"


def _images(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the images in their order, and their labels."""
    idx = _column(rows, "idx")
    order = np.argsort(idx, kind="stable")
    images = idx[order]
    repeated = images[1:][images[1:] == images[:-1]]
    if repeated.size:
        raise InputError(f"rows must have unique idx, got {repeated[0]:g} more than once")
    labels = _column(rows, "label") if "label" in rows else np.zeros(len(rows))
    return images, labels[order]


def _scores(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Return radius times correct, shape (N,)."""
    check_radii(rows)
    check_labels(rows)
    scores = _column(rows, "radius") * _column(rows, "correct")
    if not np.isfinite(scores).all():
        raise InputError(
            "radius and correct must be finite numbers in every row, got NaN or infinity"
        )
    return scores


def _column(rows: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if not len(rows):
        raise InputError("rows must hold at least one image, got none")
    if name not in rows:
        raise InputError(
            f"rows must have the column {name}, got {', '.join(map(str, rows.columns))}"
        )
    return rows[name].to_numpy(dtype=np.float64)
