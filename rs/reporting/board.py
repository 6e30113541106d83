"""The board: rows and public logs next to each other, in groups that may be compared.

A folder has a list of its files, :data:`LIST`. The sigma, n and alpha of an entry are checked
against the rows. Results of one data set, network, noise level, budget and set of images form a
group.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field
from scipy.special import ndtri

from rs import params
from rs.errors import InputError
from rs.params import Count, FilePath, NonNegativeCount, Positive, validated
from rs.reporting.logs import has_smaller_cap, read_alone
from rs.reporting.results import Result, best, grouped
from rs.reporting.tables import formatting, notes
from rs.reporting.tables.formatting import Row, Table, plain
from rs.storage import certificate_rows, files

LIST = "board.yaml"
"""Name of the list in a folder of logs and rows."""

PAGE = "board.md"
"""Name of the page of a board, by which its folder is known."""

Text = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^|<>\[\]\r\n]+$")]
"""A text that fits into a cell of a table."""


@validated
class BoardEntry:
    """A file of certificate rows and its source, or figures of rows that may not be copied."""

    name: Text  # of the classifier; training runs of one name differ in their seeds
    dataset: Text
    network: Text
    sigma: Positive
    n: Count
    alpha: Positive
    source: Text  # where to get the file
    licence: Text  # of the file
    file: FilePath | None = None  # below the folder of the list
    quoted: Text | None = None  # figures, where there is no file
    seed: NonNegativeCount | None = None  # of the training
    paper: Text | None = None
    year: Count | None = None
    training_seconds: Positive | None = None
    note: Text | None = None
    n0: Count | None = None


def board_files(folder: Path, n0: int) -> dict[str, bytes]:
    """Read the files that a folder lists and make their board.

    Args:
        folder: With :data:`LIST` and the files it names.
        n0: Selection draws of logs whose entries state none.
    Returns:
        The page, its numbers as CSV, and the list, by file name.
    Raises:
        InputError: If the list or a file is damaged, or they contradict each other.
    """
    path = folder / LIST
    content = files.read_bytes(path, params.MAX_BYTES, "list the files of the folder there")
    parsed = params.parse(content.decode(errors="replace"), str(path))
    must = f"{path} must be a list of entries"
    as_json = json.dumps(parsed, default=str, skipkeys=True)  # YAML has dates, JSON has none
    entries = params.record(list[BoardEntry], json.loads(as_json), must, "correct it")
    groups: dict[tuple[object, ...], list[Result]] = {}
    for entry in entries:
        if (entry.file is None) == (entry.quoted is None):
            raise InputError(
                f"{must} with either a file or quoted figures, got {entry.name}; correct it"
            )
        if entry.file is not None:
            result = _read(folder / entry.file, entry, n0)
            budget, images = result.terms.budget.values(), result.terms.images.tobytes()
            key = (entry.dataset, entry.network, *budget, images)
            groups.setdefault(key, []).append(result)
    tables = []
    for (dataset, network, *_), results in groups.items():
        tables.append(_group_table(str(dataset), str(network), results, entries))
    head = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    shown = [*tables, _sources_table(folder, entries)]
    page = "\n".join([head, *map(formatting.markdown, shown)])
    data = pd.concat([pd.DataFrame(), *[table.data for table in tables]])
    return {PAGE: page.encode(), "board.csv": formatting.csv(data), LIST: content}


def _read(path: Path, entry: BoardEntry, n0: int) -> Result:
    """Read the rows of an entry, after checking what it says of them."""
    stated = {"sigma": entry.sigma, "n": entry.n, "alpha": entry.alpha}
    result = read_alone(path, n0=entry.n0 or n0, **stated)
    images = result.terms.images
    is_contradicted = bool(stated.items() - result.terms.budget.items())
    if certificate_rows.is_field_log(path):
        is_contradicted |= has_smaller_cap(result.rows)
    if is_contradicted:
        budget_text = ", ".join(f"{name} = {value:g}" for name, value in stated.items())
        raise InputError(
            f"{path} must be of {budget_text}, as {LIST} says, but its rows say otherwise; "
            f"correct {LIST}"
        )
    subset = f"{images[0]:.0f} to {images[-1]:.0f}"
    return replace(
        result,
        name=entry.name,
        seed=entry.seed,
        subset=subset,
        training_seconds=entry.training_seconds,
    )


def _group_table(
    dataset: str, network: str, results: list[Result], entries: list[BoardEntry]
) -> Table:
    """Return ACR, accuracies and differences from the best of results that may be compared.

    Quoted figures of ``entries`` that may belong to the group are printed below.
    """
    ((sigma, methods),) = grouped(results).items()
    leaders = best(methods)
    radius_by_title = {}
    for radius in params.section(params.packaged(), "tables.radii"):
        if radius > 0 and any(group.accuracy(radius) for group in methods.values()):
            radius_by_title[f"{radius:.2f}"] = radius
    for p_lower in (0.9, 0.99):
        radius_by_title[f"p_A >= {p_lower:g}"] = float(sigma * ndtri(p_lower))
    rows: list[Row] = []
    for name, group in methods.items():
        row: Row = {"dataset": dataset, "network": network, "method": name}
        row |= group.first.terms.budget | group.numbers
        row |= {"best": name in leaders, "estimate": group.acr, "sound": group.sound}
        for title, radius in radius_by_title.items():
            row[title] = group.accuracy(radius)
        row |= {"trainings": len(group.results), "training_seconds": group.training_seconds}
        if leaders and name != leaders[0]:
            row["to_best"] = group.difference_to(methods[leaders[0]])
        rows.append(row)
    rows.sort(key=lambda row: -row["acr"])
    columns = {
        "Method": formatting.marked("method"),
        "Training runs": plain("trainings"),
        "ACR": formatting.acr_cell,
        "Minus the best": formatting.difference("to_best"),
        "Clean, p_A >= 0.5": plain("clean_accuracy", ".1%"),
    }
    for title in radius_by_title:
        columns[title] = plain(title, ".1%")
    columns["Training, s"] = plain("training_seconds", ",.0f")
    text = []
    for entry in entries:
        is_of_group = (entry.dataset, entry.network, entry.sigma) == (dataset, network, sigma)
        if entry.quoted and is_of_group:
            text.append(f"Without rows: {entry.name}, {entry.quoted} ({entry.source}).")
    caption = f"## {dataset}, {network}, σ = {sigma:g}\n\n{notes.about({sigma: methods})}"
    return formatting.build_table(caption, columns, rows, [*text, *notes.of_results(results)])


def _sources_table(folder: Path, entries: list[BoardEntry]) -> Table:
    """Return the source of each entry, and name files that are identical.

    Raises:
        InputError: If two training runs of one name are the same file.
    """
    rows: list[Row] = [asdict(entry) for entry in entries]
    names_by_hash: dict[str, list[str]] = {}
    for row in rows:
        if row["file"] is not None:
            row["sha256"] = files.sha256(folder / row["file"])
            names_by_hash.setdefault(row["sha256"], []).append(row["name"])
    same = []
    for sha256, names in names_by_hash.items():
        if len({*names}) < len(names):
            raise InputError(
                f"{folder} must hold a file for each training of {names[0]}, but has one twice; "
                "list it once"
            )
        if len(names) > 1:
            same.append(
                f"{' and '.join(names)} are the same file, byte for byte (SHA-256 {sha256})."
            )
    keys = ("name", "sigma", "seed", "paper", "year", "licence", "source", "sha256", "note")
    return formatting.build_table("## Sources", {key: plain(key) for key in keys}, rows, same)
