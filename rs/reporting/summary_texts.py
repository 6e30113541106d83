"""The summaries of row files as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rs.errors import printable
from rs.reporting.logs import short_names
from rs.reporting.summaries import Numbers
from rs.reporting.tables.formatting import signed
from rs.runtime.progress import WIDTH, wrapped
from rs.statistics.certificate import ABSTAIN, UNLABELLED
from rs.statistics.procedures.early import draws_at_most, radii_asked
from rs.storage.provenance import UNROUNDED

INDENT = 22
"""Column of the values of :func:`summary_text`."""

RADII_PER_LINE = 8
"""Certified accuracies in one line of :func:`summary_text`."""

FROZEN = (
    "not sound: certificates hold for weights frozen at each image, not for a classifier that "
    "chooses them again"
)


def summary_text(about: Numbers) -> str:
    """Return the numbers of :func:`rs.reporting.summaries.summarize_rows` as lines."""
    lines = {"model": about["model"] or "not stated"}
    dataset = _optional(" of {}", about["dataset"])
    lines["images"] = f"{about['images']:,}{dataset} (subset: {about['subset']})"
    lines["certified with"] = _budget(about)
    lines["noise"] = about.get("noise") or ""
    samples = draws_at_most(about["mode"])
    if samples:
        option, value, *_ = about["mode"].split(":")
        lines["stopped early"] = f"--{option} {value}, at most {samples:,} samples"
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
    lines["weakest images"] = "\n".join(map(_image, about.get("weakest", [])))
    texts = [about["file"]]
    for name, text in lines.items():
        parts = [text]
        if name != "model":  # a name is not broken
            parts = []
            for line in text.splitlines():
                parts += wrapped(line, WIDTH - INDENT)
        for number, part in enumerate(parts):
            label = name if number == 0 else ""
            texts.append(f"  {label:<{INDENT - 2}}{part}")
    return "\n".join(map(printable, texts))


def _image(image: Numbers) -> str:
    """Return the radius of an image, or why it does not count, and its file."""
    verdict = f"{image['radius']:.3f}"
    if image["predict"] == ABSTAIN:
        verdict = "abstains"
    elif image["label"] not in (UNLABELLED, image["predict"]):
        verdict = "wrong"
    return f"{verdict}: {image['file']}"


TEXT_COLUMNS = ("dataset", "subset", "mode")
"""What a table of row files shows if they differ in it: their radii are then not comparable."""


def summaries_text(summaries: Sequence[Numbers]) -> str:
    """Return the numbers of several row files as a table: one line per file.

    What all have in common is said above it. Radii are left out until the table fits
    :data:`WIDTH`, unless two are left; then names stand on lines of their own.
    """
    common = {}
    columns = []
    for name in TEXT_COLUMNS:
        if len({about[name] for about in summaries} - {None}) > 1:
            columns.append(name)
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
    names = _names(summaries)
    lines = _table_lines(summaries, names, columns, radii)
    if max(map(len, lines)) > WIDTH:
        head, *lines_of_values = _table_lines(summaries, [""] * len(names), columns, radii)
        lines = [head]
        for name, line in zip(names, lines_of_values, strict=True):
            lines += [name, line]
    head = _budget(common)
    if "images" in common:
        head = f"{common['images']:,} images; {head}"
    notes_below = [] if all(about["sound"] for about in summaries) else [f"*: {FROZEN}."]
    return "\n".join([head, "", *lines, *notes_below])


def _names(summaries: Sequence[Numbers]) -> list[str]:
    """Return short names of the files, with an asterisk if their certificates are not sound."""
    names = []
    files = [Path(about["file"]) for about in summaries]
    for name, about in zip(short_names(files), summaries, strict=True):
        names.append(printable(name) + ("" if about["sound"] else "*"))
    return names


def _table_lines(
    summaries: Sequence[Numbers],
    names: Sequence[str],
    columns: Sequence[str],
    radii: Sequence[str],
) -> list[str]:
    """Return the lines of a table, with fewer radii if it is wider than :data:`WIDTH`."""
    table = [["", *columns, "ACR", *[f"at {radius}" for radius in radii]]]
    for name, about in zip(names, summaries, strict=True):
        cells = [name]
        for column in columns:
            cells.append(_optional("{}" if column in TEXT_COLUMNS else "{:,g}", about[column]))
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
    lines = aligned(table)
    if max(map(len, lines)) > WIDTH and len(radii) > 2:
        return _table_lines(summaries, names, columns, radii[::2])
    return lines


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


def comparison_text(comparison: Numbers) -> str:
    """Return the numbers of :func:`rs.reporting.summaries.compare_rows` as lines."""
    rows = {"ACR": comparison["acr"], "clean accuracy": comparison["clean_accuracy"]}
    for radius, difference in comparison["certified_accuracy"].items():
        if radius != "0" or comparison["clean_accuracy"] is None:
            rows[f"certified at {radius}"] = difference
    heads: list[str] = []
    more = []
    frozen = []
    for side in "ab":
        about = comparison[side]
        model = _optional(" ({})", about["model"])
        name = f"{side.upper()}  {about['file']}"
        parts = [name + model] if len(name + model) <= WIDTH else [name, f"  {model}"]
        heads += map(printable, parts)
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
    lines = [f"{shared}; {budget}"]
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
    for line in lines:
        heads += wrapped(line) or [""]
    return "\n".join(heads)


def _verdict(name: str, row: Numbers) -> str:
    """Say in words which of two is better."""
    if row["tie"]:
        return f"a tie ({name})"
    better, worse = ("A", "B") if row["difference"] > 0 else ("B", "A")
    size = f"{abs(row['difference']):.4f} ± {row['error_images']:.4f}"
    if name != "ACR":
        size = f"{100 * abs(row['difference']):.1f} ± {100 * row['error_images']:.1f} points"
    return f"{better} is better than {worse} by {size} ({name})"


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
