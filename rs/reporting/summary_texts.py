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
from rs.statistics.certificate import ABSTAIN, UNLABELED, radius_text
from rs.statistics.procedures.early import is_early, parse_mode
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
    dataset = _optional(" of {}", about["dataset"])
    lines = {"images": f"{about['images']:,}{dataset} (subset: {about['subset']})"}
    lines["certified with"] = _budget(about)
    lines["noise"] = about.get("noise") or ""
    stop = parse_mode(about["mode"])
    if stop is not None:
        radii = ",".join(map(radius_text, stop.radii))
        lines["stopped early"] = f"--at-radius {radii}, at most {stop.budget:,} samples"
    made_with = [about.get(name) for name in ("device", "precision", "engine", "arithmetic")]
    if about.get("outputs", UNROUNDED) != UNROUNDED:
        made_with.append(f"outputs {about['outputs']}")
    lines["computed on"] = ", ".join(filter(None, made_with))
    if about["scope"] != "model":
        lines["weights"] = f"{about['scope']}: {'sound' if about['sound'] else FROZEN}"
    lines["ACR"] = _acr(about)
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
            f"{about['skipped']:,} images skipped their n samples, as n0 samples chose a wrong "
            f"class; abstentions and p_A are of the other {sampled:,}"
        )
    if sampled:
        lines["abstentions"] = f"{about['abstentions']:,} ({about['abstentions'] / sampled:.1%})"
    lines["weakest images"] = "\n".join(map(_image, about.get("weakest", [])))
    model = about["model"] or "not stated"
    texts = [about["file"], f"  {'model':<{INDENT - 2}}{model}"]  # names are not broken
    for name, text in lines.items():
        label = name
        for line in text.splitlines():
            for part in wrapped(line, WIDTH - INDENT):
                texts.append(f"  {label:<{INDENT - 2}}{part}")
                label = ""
    return "\n".join(map(printable, texts))


def _image(image: Numbers) -> str:
    """Return the radius of an image, or why it does not count, and its file."""
    verdict = f"{image['radius']:.3f}"
    if image["predict"] == ABSTAIN:
        verdict = "abstains"
    elif image["label"] not in (UNLABELED, image["predict"]):
        verdict = "wrong"
    return f"{verdict}: {image['file']}"


TEXT_COLUMNS = ("dataset", "subset", "mode")
"""Settings that a table shows if files differ in them; their radii are then not comparable."""


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
        if len({about[name] for about in summaries}) == 1:
            common[name] = summaries[0][name]
        else:
            columns.append(name)
    names = []
    files = [Path(about["file"]) for about in summaries]
    for name, about in zip(short_names(files), summaries, strict=True):
        names.append(printable(name) + ("" if about["sound"] else "*"))
    lines = _table_lines(summaries, names, columns)
    if max(map(len, lines)) > WIDTH:
        head, *lines_of_values = _table_lines(summaries, [""] * len(names), columns)
        lines = [head]
        for name, line in zip(names, lines_of_values, strict=True):
            lines += [name, line]
    head = _budget(common)
    if "images" in common:
        head = f"{common['images']:,} images; {head}"
    notes_below = [] if all(about["sound"] for about in summaries) else [f"*: {FROZEN}."]
    return "\n".join([head, "", *lines, *notes_below])


def _table_lines(
    summaries: Sequence[Numbers], names: Sequence[str], columns: Sequence[str]
) -> list[str]:
    """Return the lines of a table, with fewer radii if it is wider than :data:`WIDTH`."""
    shares = [about["certified_accuracy"] or about["certified_share"] for about in summaries]
    radii = sorted(set().union(*shares), key=float)
    while True:
        table = [["", *columns, "ACR", *[f"at {radius}" for radius in radii]]]
        for name, about, shown in zip(names, summaries, shares, strict=True):
            cells = [name]
            for column in columns:
                cells.append(_optional("{}" if column in TEXT_COLUMNS else "{:,g}", about[column]))
            cells.append(_acr(about) if about["certified_accuracy"] else "no labels")
            largest = max(map(float, shown), default=0.0)
            for radius in radii:
                share = shown.get(radius)
                if float(radius) > largest and not is_early(about["mode"]):
                    share = 0.0
                cells.append(_optional("{:.1%}", share))
            table.append(cells)
        lines = aligned(table)
        if max(map(len, lines)) <= WIDTH or len(radii) <= 2:
            return lines
        radii = radii[::2]


def _acr(about: Numbers) -> str:
    return _optional("{:.3f}", about["acr"]) + _optional(" ± {:.3f}", about["standard_error"])


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: its first column to the left, the others to the right."""
    first_width, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *cells in table:
        line = [first.ljust(first_width), *map(str.rjust, cells, widths)]
        lines.append("  ".join(line).rstrip())
    return lines


def comparison_text(comparison: Numbers) -> str:
    """Return the numbers of :func:`rs.reporting.summaries.compare_rows` as lines."""
    texts = []
    more_images = []
    frozen = []
    for side in "ab":
        about = comparison[side]
        letter = side.upper()
        texts += _name_lines(letter, about)
        if about["images"] > comparison["images"]:
            more_images.append(f"{letter} has {about['images']:,}")
        if not about["sound"]:
            frozen.append(f"{letter}: {FROZEN}.")
    shared = f"{comparison['images']:,} images that both have"
    if more_images:
        shared += f" ({', '.join(more_images)})"
    budget = _budget(comparison)
    if comparison["sigma"] is None:
        budget = f"sigma = {comparison['a']['sigma']:g} and {comparison['b']['sigma']:g}, {budget}"
    rows = _compared(comparison)
    lines = [
        f"{shared}; {budget}",
        "",
        *_comparison_lines(rows),
        "",
        "± is the standard error over images; another training run may differ by more.",
        "tie: the difference may be 0 at the level of 5%.",
        *frozen,
        *map(printable, comparison["notes"]),
        f"verdict: {_verdict(rows)}",
    ]
    for line in lines:
        texts += wrapped(line) or [""]
    return "\n".join(texts)


def _name_lines(letter: str, about: Numbers) -> list[str]:
    """Return the name of a file of a comparison and its model, on two lines if they are long."""
    name = printable(f"{letter}  {about['file']}")
    model = printable(_optional(" ({})", about["model"]))
    if model and len(name + model) > WIDTH:
        return [name, f"  {model}"]
    return [name + model]


def _compared(comparison: Numbers) -> dict[str, Numbers]:
    """Return the rows of a comparison by what they compare, without those that have no values."""
    rows = {"ACR": comparison["acr"], "clean accuracy": comparison["clean_accuracy"]}
    for radius, difference in comparison["certified_accuracy"].items():
        if radius != "0" or comparison["clean_accuracy"] is None:
            rows[f"certified at {radius}"] = difference
    return {name: row for name, row in rows.items() if row}


def _comparison_lines(rows: Mapping[str, Numbers]) -> list[str]:
    """Return the table of a comparison, with its header."""
    width = max(20, *[len(name) + 2 for name in rows])
    lines = [f"{'':<{width}}{'A':>8}{'B':>8}  A - B"]
    for name, row in rows.items():
        form = ".3f" if name == "ACR" else ".1%"
        values = f"{row['a']:>8{form}}{row['b']:>8{form}}"
        tie = ", tie" if row["tie"] else ""
        lines.append(f"{name:<{width}}{values}  {_difference(name, row)}{tie}")
    return lines


def _verdict(rows: Mapping[str, Numbers]) -> str:
    """Return which side is better by the first row: the ACR, or else the first accuracy."""
    name, row = next(iter(rows.items()))
    if row["tie"]:
        return f"a tie ({name})"
    better = "A is better than B" if row["difference"] > 0 else "B is better than A"
    return f"{better} by {_difference(name, row).lstrip('+-')} ({name})"


def _difference(name: str, row: Numbers) -> str:
    """Return a difference of ACRs, or of accuracies in points, with its error."""
    if name == "ACR":
        return f"{signed(row['difference'])} ± {row['error_images']:.4f}"
    return f"{signed(100 * row['difference'], 1)} ± {100 * row['error_images']:.1f} points"


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
