"""What row files say, without a study around them: the numbers of one, and the differences of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rs.errors import InputError, printable
from rs.reporting.logs import read_alone
from rs.reporting.results import Result
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import numbers, signed
from rs.statistics import metrics
from rs.statistics.certificate import ABSTAIN, UNLABELLED, radius_text
from rs.statistics.comparison import estimate, sample
from rs.statistics.procedures.table import draws_at_most, radii_asked
from rs.storage.provenance import UNROUNDED

STEP = 0.25
"""Between the radii that are shown, in pixels of [0, 1]; the paper's."""

MAX_RADII = 20
"""Columns of a table; the largest radius of 1,000,000 draws is 4.53 at sigma 1."""

SKIPPED = "{:,} images skipped their n draws, as n0 draws chose a wrong class; abstentions and p_A are of the other {:,}"
FROZEN = "not sound: certificates hold for weights frozen at each image, not for a classifier that chooses them anew"

Numbers = dict[str, Any]
"""Values by name, as in JSON; ``None`` where one is not known."""


def summarize_rows(
    path: Path, radii: Sequence[float] | None = None, **known: float | None
) -> Numbers:
    """Return what a row file is of, and its numbers.

    Images whose n draws were skipped (the mode ``shortcut``) are counted as ``skipped``;
    abstentions are of the others.

    Args:
        path: Rows of this project, or a log in the field's six columns.
        radii: Of certified accuracies; by default 0, :data:`STEP`, ... up to the largest radius of
            a correct image.
        known: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Raises:
        InputError: If the rows are damaged, or say only whether other radii are certified.
    """
    result = read_alone(path, **known)
    rows, provenance = result.rows, result.provenance
    mode, at = metrics.mode_of(rows), radii_shown([rows], radii)
    labelled = metrics.has_labels(rows)
    scored = labelled and radii_asked(mode) is None
    clean = labelled and _holds_clean(mode)
    taken = rows[rows["mode"] != "shortcut"]  # the others skipped their n draws
    return {
        "file": str(path),
        "model": provenance.model,
        "dataset": provenance.dataset,
        "subset": result.subset,
        "images": len(rows),
        **_budget_of([rows]),
        "mode": mode,
        "scope": result.scope,
        "sound": result.sound,
        **provenance.computation(),
        "acr": metrics.acr(rows) if scored else None,
        "standard_error": estimate(sample([rows], [()])).error_images
        if scored and len(rows) > 1
        else None,
        "clean_accuracy": float(metrics.certified_accuracy(rows, 0.0)) if clean else None,
        "certified_accuracy": {
            radius_text(r): float(metrics.certified_accuracy(rows, r)) for r in at if labelled
        },
        "certified_share": {radius_text(r): _share(rows, r) for r in at if not labelled},
        "skipped": len(rows) - len(taken),
        "abstentions": int((taken["predict"] == ABSTAIN).sum()),
    }


def compare_rows(
    first: Path, second: Path, radii: Sequence[float] | None = None, **known: float | None
) -> Numbers:
    """Return the paired differences, first less second, over the images that both have.

    Args:
        first, second: Rows of this project, or logs in the field's six columns.
        radii: As for :func:`summarize_rows`.
        known: As for :func:`summarize_rows`, of each that is a log.
    Raises:
        InputError: If the rows are damaged, or of different data sets, labels, noise or budgets; or
            if they share fewer than two images.
    """
    a, b = (read_alone(path, **known) for path in (first, second))
    for result in (a, b):
        _check_stated(result)
    _check_same_data(a, b)
    shared = np.intersect1d(a.rows["idx"], b.rows["idx"])
    if shared.size < 2:
        raise InputError(
            f"{first} and {second} must have two images in common, got {shared.size}; certify the "
            "same"
        )
    pair = [
        replace(side, rows=side.rows[side.rows["idx"].isin(shared)].reset_index(drop=True))
        for side in (a, b)
    ]
    frames = [result.rows for result in pair]
    metrics.check_comparable([metrics.terms_of(rows) for rows in frames])
    at, mode = radii_shown(frames, radii), metrics.mode_of(frames[0])

    def difference(radius: float | None) -> Numbers:
        samples = [sample([rows], [()], radius) for rows in frames]
        means = {name: estimate(scores).value for name, scores in zip("ab", samples, strict=True)}
        return means | numbers(estimate(*samples))

    return {
        "a": {
            "file": str(first),
            "model": a.provenance.model,
            "images": len(a.rows),
            "sound": a.sound,
        },
        "b": {
            "file": str(second),
            "model": b.provenance.model,
            "images": len(b.rows),
            "sound": b.sound,
        },
        "images": int(shared.size),
        **_budget_of(frames),
        "acr": difference(None) if radii_asked(mode) is None else None,
        "clean_accuracy": difference(0.0) if _holds_clean(mode) else None,
        "certified_accuracy": {radius_text(radius): difference(radius) for radius in at},
        "notes": notes.provenance_notes(pair),
    }


def _holds_clean(mode: str) -> bool:
    """Return whether rows of this mode say what holds at radius 0."""
    asked = radii_asked(mode)
    return asked is None or 0.0 in asked


def radii_shown(rows: Sequence[pd.DataFrame], asked: Sequence[float] | None = None) -> list[float]:
    """Return the radii at which certified accuracies are shown.

    Args:
        rows: Comparable rows.
        asked: Those that are wanted; ``None`` for 0, :data:`STEP`, ... up to the largest radius of
            a correct image, with twice the step, and so on, where there were more than
            :data:`MAX_RADII`.
    Raises:
        InputError: If one is negative or not finite, or the rows hold only whether others are
            certified.
    """
    bad = [radius for radius in asked or () if not 0 <= radius < math.inf]
    if bad:
        raise InputError(
            f"radii must be numbers of at least 0, in pixels of [0, 1], got {bad[0]:g}"
        )
    mode = metrics.mode_of(rows[0])
    certified = radii_asked(mode)
    if certified is not None and not set(asked or ()) <= set(certified):
        named = ", ".join(map(radius_text, certified))
        raise InputError(
            f"rows of {mode} say only whether the radii {named} are certified; ask for no other one"
        )
    if asked is not None or certified is not None:
        return list(asked if asked is not None else certified or ())
    largest = max(
        float((frame["radius"] * (frame["correct"] | (frame["label"] == UNLABELLED))).max())
        for frame in rows
    )
    step = STEP
    while largest / step >= MAX_RADII:
        step *= 2
    return [k * step for k in range(int(largest / step) + 1)]


def summary_text(about: Numbers) -> str:
    """Return the numbers of :func:`summarize_rows` as lines."""
    made_with = [about.get(name) for name in ("device", "precision", "engine", "arithmetic")]
    outputs, taken = about.get("outputs", UNROUNDED), about["images"] - about["skipped"]
    made_with += [f"outputs {outputs}"] * (outputs != UNROUNDED)
    lines = {
        "model": about["model"] or "not stated",
        "images": f"{about['images']:,}{_optional(' of {}', about['dataset'])} (subset: {about['subset']})",
        "certified with": _budget(about) + _optional(", {} noise", about.get("noise")),
        "stopped early": about["mode"] if draws_at_most(about["mode"]) else "",
        "computed on": ", ".join(filter(None, made_with)),
        "weights": ""
        if about["scope"] == "model"
        else f"{about['scope']}: {'sound' if about['sound'] else FROZEN}",
        "ACR": _optional("{:.3f}", about["acr"]) + _optional(" ± {:.3f}", about["standard_error"]),
        "clean accuracy": _optional("{:.1%}", about["clean_accuracy"]),
        "certified accuracy": _columns("at", about["certified_accuracy"], lambda radius, _: radius),
        "": _columns("  ", about["certified_accuracy"], lambda _, share: f"{share:.1%}"),
        "labels": "" if about["certified_accuracy"] else "none, so neither accuracies nor an ACR",
        "certified share": _columns("at", about["certified_share"], lambda radius, _: radius),
        " ": _columns("  ", about["certified_share"], lambda _, share: f"{share:.1%}"),
        "shortcut": SKIPPED.format(about["skipped"], taken) if about["skipped"] else "",
        "abstentions": f"{about['abstentions']:,} ({about['abstentions'] / taken:.1%})"
        if taken
        else "",
    }
    texts = [about["file"], *(f"  {name:<20}{text}" for name, text in lines.items() if text)]
    return "\n".join(map(printable, texts))


def comparison_text(found: Numbers) -> str:
    """Return the numbers of :func:`compare_rows` as lines."""
    rows = {"ACR": found["acr"], "clean accuracy": found["clean_accuracy"]}
    accuracies = found["certified_accuracy"].items()
    rows |= {
        f"certified at {radius}": difference for radius, difference in accuracies if radius != "0"
    }
    unsound = [side.upper() for side in "ab" if not found[side]["sound"]]
    wide = max(20, *(len(name) + 2 for name in rows))
    return "\n".join(
        [
            *(
                printable(
                    f"{side.upper()}  "
                    f"{found[side]['file']}{_optional(' ({})', found[side]['model'])}"
                )
                for side in "ab"
            ),
            f"{found['images']:,} images that both have{_cut(found)}; {_budget(found)}",
            "",
            f"{'':<{wide}}{'A':>8}{'B':>8}  A - B",
            *(
                f"{name:<{wide}}{_difference(row, name == 'ACR')}"
                for name, row in rows.items()
                if row
            ),
            "",
            "± is the standard error over images; another training of either could differ by more.",
            "tie: the difference may be 0 at the level of 5 %.",
            *(f"{side}: {FROZEN}." for side in unsound),
            *map(printable, found["notes"]),
        ]
    )


def _budget_of(rows: Sequence[pd.DataFrame]) -> Numbers:
    """Return sigma, n0, n and alpha; ``None`` where they are not stated."""
    terms = [metrics.terms_of(frame) for frame in rows]
    budget = {name: metrics.common_budget(terms, name) for name in ("sigma", "n0", "n", "alpha")}
    whole = {name: int(budget[name]) for name in ("n0", "n") if not math.isnan(budget[name])}
    return {name: None if math.isnan(value) else value for name, value in budget.items()} | whole


def _share(rows: pd.DataFrame, radius: float) -> float:
    """Return the share of images that some class, right or wrong, is certified for within a radius."""
    return float(((rows["predict"] != ABSTAIN) & (rows["radius"] >= radius)).mean())


def _optional(form: str, value: Any) -> str:
    return "" if value is None else form.format(value)


def _budget(about: Mapping[str, Any]) -> str:
    forms = {"sigma": "sigma = {:g}", "n0": "n0 = {:,}", "n": "n = {:,}", "alpha": "alpha = {:g}"}
    stated = (_optional(form, about[name]) for name, form in forms.items())
    return ", ".join(filter(None, stated)) or "not stated"


def _columns(head: str, accuracies: Mapping[str, float], cell: Callable[[str, float], str]) -> str:
    cells = (
        f" {cell(radius, share):>{max(6, len(radius))}}" for radius, share in accuracies.items()
    )
    return head * bool(accuracies) + "".join(cells)


def _cut(found: Mapping[str, Any]) -> str:
    more = [
        f"{side.upper()} has {found[side]['images']:,}"
        for side in "ab"
        if found[side]["images"] > found["images"]
    ]
    return f" ({', '.join(more)})" if more else ""


def _difference(row: Mapping[str, Any], is_acr: bool) -> str:
    verdict = ", tie" if row["tie"] else ""
    if is_acr:
        return f"{row['a']:>8.3f}{row['b']:>8.3f}  {signed(row['difference'])} ± {row['error_images']:.4f}{verdict}"
    points, error = 100 * row["difference"], 100 * row["error_images"]
    sign = "+" if abs(points) >= 0.05 else ""
    return f"{row['a']:>8.1%}{row['b']:>8.1%}  {points:{sign}z.1f} ± {error:.1f} points{verdict}"


def _check_stated(result: Result) -> None:
    """Refuse rows without labels, and those that do not say their noise and budget."""
    metrics.check_labels(result.rows, result.name)
    silent = [name for name in metrics.BUDGET if math.isnan(metrics.budget(result.rows, name))]
    if silent:
        options = "of a log give --sigma, --n and --alpha"
        raise InputError(
            f"{result.name} must say its {', '.join(silent)} to be compared; {options}"
        )


def _check_same_data(*results: Result) -> None:
    """Refuse rows of different data sets: their images decide, or their names where the images are
    not stated.
    """
    has_images = all(result.provenance.images is not None for result in results)
    for name in ("images" if has_images else "dataset", "classes"):
        stated = {getattr(result.provenance, name) for result in results} - {None}
        if len(stated) > 1:
            names = " and ".join(result.name for result in results)
            raise InputError(
                f"{names} must be of the same data set, but their sidecars have different {name}"
            )
