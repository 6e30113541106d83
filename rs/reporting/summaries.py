"""Summarize row files without a study: the numbers of one, and the differences of two."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rs.errors import InputError, printable
from rs.reporting.logs import read_alone, short_names
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

WIDTH = 80
"""Columns of a terminal that texts fit into."""

INDENT = 22
"""Column of the values of :func:`summary_text`."""

RADII_PER_LINE = 8
"""Certified accuracies in one line of :func:`summary_text`."""

FROZEN = (
    "not sound: certificates hold for weights frozen at each image, not for a classifier that "
    "chooses them again"
)

Numbers = dict[str, Any]
"""Values by name, as in JSON; ``None`` where one is not known."""


def summarize_rows(
    path: Path, radii: Sequence[float] | None = None, **known: float | None
) -> Numbers:
    """Return what a row file is of, and its numbers.

    Images whose n draws were skipped (the mode ``shortcut``) are counted as ``skipped``;
    abstentions are counted among the others.

    Args:
        path: Rows of this project, or a log in Cohen's six-column format.
        radii: Of certified accuracies; by default 0, :data:`STEP`, ... up to the largest radius of
            a correct image.
        known: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Raises:
        InputError: If the rows are damaged, or say only whether other radii are certified.
    """
    result = read_alone(path, **known)
    rows = result.rows
    mode = metrics.mode_of(rows)
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
        if radii_asked(mode) is None:
            about["acr"] = metrics.acr(rows)
            if len(rows) > 1:
                about["standard_error"] = estimate(sample([rows], [()])).error_images
        if _has_clean_accuracy(mode):
            about["clean_accuracy"] = float(metrics.certified_accuracy(rows, 0.0))
        for radius in shown:
            accuracy = float(metrics.certified_accuracy(rows, radius))
            about["certified_accuracy"][radius_text(radius)] = accuracy
    else:
        for radius in shown:  # of any class, right or wrong
            is_certified = (rows["predict"] != ABSTAIN) & (rows["radius"] >= radius)
            about["certified_share"][radius_text(radius)] = float(is_certified.mean())
    about["base_accuracy"] = result.provenance.base_accuracy
    about["skipped"] = len(rows) - len(sampled)
    about["abstentions"] = int((sampled["predict"] == ABSTAIN).sum())
    return about


def compare_rows(
    first: Path, second: Path, radii: Sequence[float] | None = None, **known: float | None
) -> Numbers:
    """Return the paired differences, first minus second, over the images that both have.

    Args:
        first, second: Rows of this project, or logs in Cohen's six-column format.
        radii: As for :func:`summarize_rows`. With radii, the noise levels may differ; then there
            is neither an ACR nor a clean accuracy.
        known: As for :func:`summarize_rows`, of each that is a log.
    Raises:
        InputError: If the rows are damaged, or of different data sets, labels, noise or budgets; or
            if they share fewer than two images.
    """
    a = read_alone(first, **known)
    b = read_alone(second, **known)
    _check_stated(a)
    _check_stated(b)
    _check_same_data(a, b)
    shared = np.intersect1d(a.rows["idx"], b.rows["idx"])
    if shared.size < 2:
        raise InputError(
            f"{first} and {second} must have two images in common, got {shared.size}; certify the "
            "same"
        )
    frames = []
    for rows in (a.rows, b.rows):
        frames.append(rows[rows["idx"].isin(shared)].reset_index(drop=True))
    is_of_one_sigma = a.sigma == b.sigma
    if radii and not is_of_one_sigma:  # what is certified at a radius means the same at each sigma
        frames = [rows.drop(columns="sigma") for rows in frames]
    metrics.check_comparable([metrics.terms_of(rows) for rows in frames])
    mode = metrics.mode_of(frames[0])
    numbers: Numbers = {}
    for side, result in (("a", a), ("b", b)):
        about = {"file": result.name, "model": result.provenance.model, "sigma": result.sigma}
        numbers[side] = {**about, "images": len(result.rows), "sound": result.sound}
    numbers |= {"images": int(shared.size), **_budget_of(frames)}
    numbers |= {"acr": None, "clean_accuracy": None, "certified_accuracy": {}}
    if radii_asked(mode) is None and is_of_one_sigma:
        numbers["acr"] = _difference(frames)
    if _has_clean_accuracy(mode) and is_of_one_sigma:
        numbers["clean_accuracy"] = _difference(frames, 0.0)
    for radius in radii_shown(frames, radii):
        numbers["certified_accuracy"][radius_text(radius)] = _difference(frames, radius)
    numbers["notes"] = notes.provenance_notes([a, b])
    return numbers


def _difference(frames: Sequence[pd.DataFrame], radius: float | None = None) -> Numbers:
    """Return the means of two row files and their difference, of ACR or accuracy at a radius."""
    a = sample([frames[0]], [()], radius)
    b = sample([frames[1]], [()], radius)
    return {"a": estimate(a).value, "b": estimate(b).value, **numbers(estimate(a, b))}


def _has_clean_accuracy(mode: str) -> bool:
    """Return whether rows of this mode say what is certified at radius 0."""
    radii = radii_asked(mode)
    return radii is None or 0.0 in radii


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
    certified = radii_asked(mode)
    if certified is not None and not set(radii or ()) <= set(certified):
        named = ", ".join(map(radius_text, certified))
        raise InputError(
            f"rows of {mode} say only whether the radii {named} are certified; ask for no other one"
        )
    if radii is None:
        radii = certified
    if radii is not None:
        return list(radii)
    largest = 0.0
    for frame in rows:
        counts = frame["correct"] | (frame["label"] == UNLABELLED)
        largest = max(largest, float((frame["radius"] * counts).max()))
    step = STEP
    while largest / step >= MAX_RADII:
        step *= 2
    return [k * step for k in range(int(largest / step) + 1)]


def summary_text(about: Numbers) -> str:
    """Return the numbers of :func:`summarize_rows` as lines."""
    lines = {"model": about["model"] or "not stated"}
    dataset = _optional(" of {}", about["dataset"])
    lines["images"] = f"{about['images']:,}{dataset} (subset: {about['subset']})"
    lines["certified with"] = _budget(about)
    lines["noise"] = about.get("noise") or ""
    if draws_at_most(about["mode"]):
        lines["stopped early"] = about["mode"]
    made_with = [about.get(name) for name in ("device", "precision", "engine", "arithmetic")]
    if about.get("outputs", UNROUNDED) != UNROUNDED:
        made_with.append(f"outputs {about['outputs']}")
    lines["computed on"] = ", ".join(filter(None, made_with))
    if about["scope"] != "model":
        lines["weights"] = f"{about['scope']}: {'sound' if about['sound'] else FROZEN}"
    lines["ACR"] = _optional("{:.3f}", about["acr"])
    lines["ACR"] += _optional(" ± {:.3f}", about["standard_error"])
    lines["base accuracy"] = _optional("{:.1%} (without noise)", about["base_accuracy"])
    lines["clean accuracy"] = _optional("{:.1%}", about["clean_accuracy"])
    if about["certified_accuracy"]:
        lines["certified accuracy"] = _columns(about["certified_accuracy"])
    else:
        lines["labels"] = "none, so neither accuracies nor an ACR"
        lines["certified share"] = _columns(about["certified_share"])
    sampled = about["images"] - about["skipped"]
    if about["skipped"]:
        lines["shortcut"] = (
            f"{about['skipped']:,} images skipped their n draws, as n0 draws chose a wrong class; "
            f"abstentions and p_A are of the other {sampled:,}"
        )
    if sampled:
        lines["abstentions"] = f"{about['abstentions']:,} ({about['abstentions'] / sampled:.1%})"
    texts = [about["file"]]
    for name, text in lines.items():
        parts = [text]
        if name != "model":  # a name is not broken
            parts = []
            for line in text.splitlines():
                parts += _wrapped(line, WIDTH - INDENT)
        for number, part in enumerate(parts):
            label = name if number == 0 else ""
            texts.append(f"  {label:<{INDENT - 2}}{part}")
    return "\n".join(map(printable, texts))


def summaries_text(summaries: Sequence[Numbers]) -> str:
    """Return the numbers of several row files as a table: one line per file.

    What all have in common is said above it. Radii are left out until the table fits
    :data:`WIDTH`, unless two are left.
    """
    common = {}
    columns = []
    for name in ("images", "sigma", "n0", "n", "alpha"):
        values = {about[name] for about in summaries}
        if len(values) == 1:
            common[name] = summaries[0][name]
        else:
            columns.append(name)
    radii: list[str] = []
    for about in summaries:
        radii += [radius for radius in _shares(about) if radius not in radii]
    radii.sort(key=float)
    lines = _table_lines(summaries, columns, radii)
    while max(map(len, lines)) > WIDTH and len(radii) > 2:
        radii = radii[::2]
        lines = _table_lines(summaries, columns, radii)
    head = _budget(common)
    if "images" in common:
        head = f"{common['images']:,} images; {head}"
    notes_below = [] if all(about["sound"] for about in summaries) else [f"*: {FROZEN}."]
    return "\n".join([head, "", *lines, *notes_below])


def _table_lines(
    summaries: Sequence[Numbers], columns: Sequence[str], radii: Sequence[str]
) -> list[str]:
    """Return the lines of :func:`summaries_text`."""
    table = [["", *columns, "ACR", *[f"at {radius}" for radius in radii]]]
    names = short_names([Path(about["file"]) for about in summaries])
    for name, about in zip(names, summaries, strict=True):
        cells = [printable(name) + ("" if about["sound"] else "*")]
        cells += [_optional("{:,g}", about[column]) for column in columns]
        acr = _optional("{:.3f}", about["acr"]) + _optional(" ± {:.3f}", about["standard_error"])
        cells.append(acr if about["certified_accuracy"] else "no labels")
        shares = _shares(about)
        largest = max(map(float, shares), default=0.0)
        for radius in radii:
            share = shares.get(radius)
            if float(radius) > largest and radii_asked(about["mode"]) is None:
                share = 0.0
            cells.append(_optional("{:.1%}", share))
        table.append(cells)
    return aligned(table)


def _shares(about: Numbers) -> dict[str, float]:
    """Return certified accuracies by radius, or without labels certified shares."""
    shares: dict[str, float] = about["certified_accuracy"] or about["certified_share"]
    return shares


def aligned(table: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a table: its first columns, ``words`` of them, to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for cells in table:
        line = []
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            line.append(cell.ljust(width) if number < words else cell.rjust(width))
        lines.append("  ".join(line).rstrip())
    return lines


def _wrapped(line: str, width: int = WIDTH) -> list[str]:
    """Return a line as lines of at most ``width`` characters, if its words are not longer."""
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


def comparison_text(comparison: Numbers) -> str:
    """Return the numbers of :func:`compare_rows` as lines."""
    rows = {"ACR": comparison["acr"], "clean accuracy": comparison["clean_accuracy"]}
    for radius, difference in comparison["certified_accuracy"].items():
        if radius != "0":
            rows[f"certified at {radius}"] = difference
    lines = []
    more = []
    frozen = []
    for side in "ab":
        about = comparison[side]
        model = _optional(" ({})", about["model"])
        lines.append(printable(f"{side.upper()}  {about['file']}{model}"))
        if about["images"] > comparison["images"]:
            more.append(f"{side.upper()} has {about['images']:,}")
        if not about["sound"]:
            frozen.append(f"{side.upper()}: {FROZEN}.")
    shared = f"{comparison['images']:,} images that both have"
    if more:
        shared += f" ({', '.join(more)})"
    budget = _budget(comparison)
    if comparison["sigma"] is None:
        budget = f"sigma = {comparison['a']['sigma']:g} and {comparison['b']['sigma']:g}, {budget}"
    lines.append(f"{shared}; {budget}")
    width = max(20, *[len(name) + 2 for name in rows])
    lines += ["", f"{'':<{width}}{'A':>8}{'B':>8}  A - B"]
    rows = {name: row for name, row in rows.items() if row}
    for name, row in rows.items():
        line = f"{name:<{width}}"
        line += _acr_cells(row) if name == "ACR" else _accuracy_cells(row)
        if row["tie"]:
            line += ", tie"
        lines.append(line)
    lines += [
        "",
        "± is the standard error over images; another training may differ by more.",
        "tie: the difference may be 0 at the level of 5 %.",
    ]
    lines += [*frozen, *map(printable, comparison["notes"])]
    name, row = next(iter(rows.items()))  # the ACR, or else the first accuracy
    lines.append(f"verdict: {_verdict(name, row)}")
    texts = lines[:2]  # names of files are not broken
    for line in lines[2:]:
        texts += _wrapped(line) or [""]
    return "\n".join(texts)


def _verdict(name: str, row: Numbers) -> str:
    """Say in words which of two is better."""
    if row["tie"]:
        return f"a tie ({name})"
    better, worse = ("A", "B") if row["difference"] > 0 else ("B", "A")
    size = f"{abs(row['difference']):.4f} ± {row['error_images']:.4f}"
    if name != "ACR":
        size = f"{100 * abs(row['difference']):.1f} ± {100 * row['error_images']:.1f} points"
    return f"{better} is better than {worse} by {size} ({name})"


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


def _optional(form: str, value: Any) -> str:
    return "" if value is None else form.format(value)


def _budget(about: Mapping[str, Any]) -> str:
    forms = {"sigma": "sigma = {:g}", "n0": "n0 = {:,}", "n": "n = {:,}", "alpha": "alpha = {:g}"}
    stated = [_optional(form, about.get(name)) for name, form in forms.items()]
    return ", ".join(filter(None, stated)) or "not stated"


def _columns(shares: Mapping[str, float]) -> str:
    """Return lines of radii, and below each a line of shares."""
    lines = []
    names = [*shares]
    for start in range(0, len(names), RADII_PER_LINE):
        head = "at"
        line = "  "
        for radius in names[start : start + RADII_PER_LINE]:
            width = max(6, len(radius))
            head += f" {radius:>{width}}"
            line += f" {shares[radius]:>{width}.1%}"
        lines += [head, line]
    return "\n".join(lines)


def _acr_cells(row: Mapping[str, Any]) -> str:
    difference = f"{signed(row['difference'])} ± {row['error_images']:.4f}"
    return f"{row['a']:>8.3f}{row['b']:>8.3f}  {difference}"


def _accuracy_cells(row: Mapping[str, Any]) -> str:
    points = 100 * row["difference"]
    sign = "+" if abs(points) >= 0.05 else ""
    difference = f"{points:{sign}z.1f} ± {100 * row['error_images']:.1f} points"
    return f"{row['a']:>8.1%}{row['b']:>8.1%}  {difference}"


def _check_stated(result: Result) -> None:
    """Refuse rows without labels, and rows that do not state their noise and budget."""
    metrics.check_labels(result.rows, result.name)
    silent = [name for name in metrics.BUDGET if math.isnan(metrics.budget(result.rows, name))]
    if silent:
        raise InputError(
            f"{result.name} must state its {', '.join(silent)} to be compared; for a log give "
            "--sigma, --n and --alpha"
        )


def _check_same_data(a: Result, b: Result) -> None:
    """Refuse rows of different data sets, by their images or else their names, and classes."""
    has_images = None not in (a.provenance.images, b.provenance.images)
    for name in ("images" if has_images else "dataset", "classes"):
        stated = {getattr(a.provenance, name), getattr(b.provenance, name)} - {None}
        if len(stated) > 1:
            raise InputError(
                f"{a.name} and {b.name} must be of the same data set, but their sidecars have "
                f"different {name}"
            )
