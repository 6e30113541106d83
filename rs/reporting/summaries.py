"""Summarize row files without a study: the numbers of one, and the differences of two."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rs.errors import InputError
from rs.reporting.logs import has_smaller_cap, read_alone
from rs.reporting.results import Result
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import numbers
from rs.runtime.progress import say
from rs.statistics import metrics
from rs.statistics.certificate import ABSTAIN, UNLABELED, radius_text
from rs.statistics.comparison import LEVEL, estimate, sample
from rs.statistics.procedures.early import parse_mode
from rs.storage.certificate_rows import FILE, is_field_log

STEP = 0.25
"""Between the radii that are shown, in pixels of [0, 1]; the paper's."""

MAX_RADII = 20
"""Columns of a table; the largest radius of 1,000,000 samples is 4.53 at sigma 1."""

MAX_LISTED = 5
"""Pictures that are listed by name."""

Numbers = dict[str, Any]
"""Values by name, as in JSON; ``None`` where one is not known."""


def summarize_rows(
    path: Path, radii: Sequence[float] | None = None, **log_values: float | None
) -> Numbers:
    """Return what a row file is of, and its numbers.

    Images whose n samples were skipped (the mode ``shortcut``) are counted as ``skipped``;
    abstentions are counted among the others.

    Args:
        path: Rows of this project, or a log in Cohen's six-column format.
        radii: Of certified accuracies; by default 0, :data:`STEP`, ... up to the largest radius of
            a correct image.
        log_values: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Raises:
        InputError: If the rows are damaged, or say only whether other radii are certified.
    """
    result = _read(path, **log_values)
    rows = result.rows
    mode = metrics.mode_of(rows)
    stop = parse_mode(mode)
    shown = radii_shown([rows], radii)
    sampled = rows[rows["mode"] != "shortcut"]
    about: Numbers = {
        "file": str(path),
        "model": result.provenance.model,
        "dataset": result.provenance.dataset,
        "subset": result.subset,
        "images": len(rows),
        **_budget_of([rows]),
        "mode": mode,
        "scope": result.scope,
        "sound": result.sound,
    }
    about |= result.provenance.computation()
    about |= dict.fromkeys(["acr", "standard_error", "clean_accuracy"])
    about |= {"certified_accuracy": {}, "certified_share": {}}
    if metrics.has_labels(rows):
        if stop is None:
            about["acr"] = metrics.acr(rows)
            if len(rows) > 1:
                about["standard_error"] = estimate(sample([rows], [()])).error_images
        if stop is None or 0.0 in stop.radii:
            about["clean_accuracy"] = float(metrics.certified_accuracy(rows, 0.0))
        accuracies = metrics.certified_accuracy(rows, shown).tolist()
        about["certified_accuracy"] = dict(zip(map(radius_text, shown), accuracies, strict=True))
    else:
        for radius in shown:  # of any class, right or wrong
            is_certified = (rows["predict"] != ABSTAIN) & (rows["radius"] >= radius)
            about["certified_share"][radius_text(radius)] = float(is_certified.mean())
    about["base_accuracy"] = result.provenance.base_accuracy
    about["skipped"] = len(rows) - len(sampled)
    about["abstentions"] = int((sampled["predict"] == ABSTAIN).sum())
    if FILE in rows:
        weakest = rows.sort_values(["correct", "radius", "idx"])[:MAX_LISTED]
        about["weakest"] = weakest[[FILE, "label", "predict", "radius"]].to_dict("records")
    return about


def _read(path: Path, **log_values: float | None) -> Result:
    """Read a row file; warn if a log probably has another sigma, n or alpha than stated."""
    result = read_alone(path, **log_values)
    if is_field_log(path) and has_smaller_cap(result.rows):
        radii = result.rows["radius"]
        say(
            f"warning: {(radii == radii.max()).sum():,} images of {path} share its largest radius, "
            f"{radii.max():g}, but the given sigma, n and alpha allow larger ones; check these",
            sys.stderr,
        )
    return result


def compare_rows(
    first: Path, second: Path, radii: Sequence[float] | None = None, **log_values: float | None
) -> Numbers:
    """Return the paired differences, first minus second, over the images that both have.

    Args:
        first, second: Rows of this project, or logs in Cohen's six-column format.
        radii: As for :func:`summarize_rows`. With radii, the noise levels may differ; then there
            is neither an ACR nor a clean accuracy.
        log_values: As for :func:`summarize_rows`, of each that is a log.
    Raises:
        InputError: If the rows are damaged, or of different data sets, labels, noise or budgets; or
            if they share fewer than two images.
    """
    a = _read(first, **log_values)
    b = _read(second, **log_values)
    _check_stated(a)
    _check_stated(b)
    check_same_data(a, b)
    shared = np.intersect1d(a.rows["idx"], b.rows["idx"])
    if shared.size < 2:
        raise InputError(
            f"{first} and {second} must have two images in common, got {shared.size}; certify the "
            "same images"
        )
    frames = []
    for rows in (a.rows, b.rows):
        frames.append(rows[rows["idx"].isin(shared)].reset_index(drop=True))
    is_of_one_sigma = a.sigma == b.sigma
    if radii and not is_of_one_sigma:  # what is certified at a radius means the same at each sigma
        frames = [rows.drop(columns="sigma") for rows in frames]
    metrics.check_comparable([metrics.terms_of(rows) for rows in frames])
    stop = parse_mode(metrics.mode_of(frames[0]))
    numbers: Numbers = {}
    for side, result in (("a", a), ("b", b)):
        about = {"file": result.name, "model": result.provenance.model, "sigma": result.sigma}
        numbers[side] = {**about, "images": len(result.rows), "sound": result.sound}
    numbers |= {"images": int(shared.size), **_budget_of(frames)}
    numbers |= {"acr": None, "clean_accuracy": None, "certified_accuracy": {}}
    if stop is None and is_of_one_sigma:
        numbers["acr"] = paired_difference(frames)
    if (stop is None or 0.0 in stop.radii) and is_of_one_sigma:
        numbers["clean_accuracy"] = paired_difference(frames, 0.0)
    for radius in radii_shown(frames, radii):
        numbers["certified_accuracy"][radius_text(radius)] = paired_difference(frames, radius)
    numbers["notes"] = notes.provenance_notes([a, b])
    return numbers


def paired_difference(frames: Sequence[pd.DataFrame], radius: float | None = None) -> Numbers:
    """Return the means of two row files and their difference, of ACR or accuracy at a radius.

    Whether accuracies tie is decided by the exact test of McNemar (1947), which holds for few
    images too: of the images that one side alone certifies, either side has half.
    """
    a = sample([frames[0]], [()], radius)
    b = sample([frames[1]], [()], radius)
    difference = numbers(estimate(a, b))
    if radius is not None:
        signs = np.sign(a.scores - b.scores)
        alone = np.count_nonzero(signs)
        p_value = stats.binomtest(np.count_nonzero(signs > 0), alone).pvalue if alone else 1.0
        difference |= {"p_value": float(p_value), "tie": bool(p_value > LEVEL)}
    return {"a": estimate(a).value, "b": estimate(b).value, **difference}


def radii_shown(rows: Sequence[pd.DataFrame], radii: Sequence[float] | None = None) -> list[float]:
    """Return the radii at which certified accuracies are shown.

    Args:
        rows: Comparable rows.
        radii: The radii to show; ``None`` for 0, :data:`STEP`, ... up to the largest radius of a
            correct image. The step doubles until there are at most :data:`MAX_RADII`.
    Raises:
        InputError: If one is negative or not finite, or the rows hold only whether others are
            certified.
    """
    for radius in radii or ():
        if not 0 <= radius < math.inf:
            raise InputError(
                f"radii must be numbers of at least 0, in pixels of [0, 1], got {radius:g}"
            )
    mode = metrics.mode_of(rows[0])
    stop = parse_mode(mode)
    if stop is not None and not set(radii or ()) <= set(stop.radii):
        named = ", ".join(map(radius_text, stop.radii))
        raise InputError(
            f"rows of {mode} say only whether the radii {named} are certified; choose among them"
        )
    if radii is None and stop is not None:
        radii = stop.radii
    if radii is not None:
        return list(radii)
    largest = 0.0
    for frame in rows:
        counts = frame["correct"] | (frame["label"] == UNLABELED)
        largest = max(largest, float((frame["radius"] * counts).max()))
    step = STEP
    while largest / step >= MAX_RADII:
        step *= 2
    return [k * step for k in range(int(largest / step) + 1)]


def _budget_of(rows: Sequence[pd.DataFrame]) -> Numbers:
    """Return sigma, n0, n and alpha; ``None`` where they are not stated."""
    terms = [metrics.terms_of(frame) for frame in rows]
    budget: Numbers = {}
    for name in ("sigma", "n0", "n", "alpha"):
        value = metrics.common_budget(terms, name)
        if math.isnan(value):
            budget[name] = None
        elif name in ("n0", "n"):
            budget[name] = int(value)
        else:
            budget[name] = value
    return budget


def _check_stated(result: Result) -> None:
    """Refuse rows without labels, and rows that do not state their noise and budget."""
    metrics.check_labels(result.rows, result.name)
    silent = [name for name in metrics.BUDGET if math.isnan(metrics.budget(result.rows, name))]
    if silent:
        raise InputError(
            f"{result.name} must state its {', '.join(silent)} to be compared; for a log give "
            "--sigma, --n and --alpha"
        )


def check_same_data(a: Result, b: Result) -> None:
    """Refuse rows of different data sets, by their images or else their names, and classes."""
    has_images = None not in (a.provenance.images, b.provenance.images)
    for name in ("images" if has_images else "dataset", "classes"):
        stated = {getattr(a.provenance, name), getattr(b.provenance, name)} - {None}
        if len(stated) > 1:
            raise InputError(
                f"{a.name} and {b.name} must be of the same data set, but their sidecars have "
                f"different {name}"
            )
