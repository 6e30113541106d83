"""Attack rows: the smallest confirmed perturbation of each attacked image, with its votes.

A row's hit is computed again from its votes when it is read, as a certificate is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rs.statistics.certificate import ABSTAIN, MAX_DRAWS, parse_counts
from rs.statistics.radius import predicted_class
from rs.storage import tsv
from rs.storage.certificate_rows import counts, table_text
from rs.storage.row_checks import check_columns

if TYPE_CHECKING:
    import pandas as pd

ATTEMPTS = 3
"""Points of an image that may be tested; each test has an equal share of alpha."""

KINDS = ("gradient", "votes", "-")
"""Steps that found a perturbation; ``-`` where none is confirmed."""


def _distance(text: str) -> float:
    return tsv.finite(text) if text else math.nan


_CELLS: dict[str, tsv.CellReader] = {
    "idx": tsv.whole,
    "predict": tsv.whole,
    "radius": tsv.finite,
    "found": _distance,
    "attack": str,
    "samples": tsv.whole,
    "n": tsv.whole,
    "alpha": tsv.finite,
    "seed": tsv.whole,
    "classes": tsv.whole,
    "counts": counts,
}
COLUMNS = tuple(_CELLS)


def is_attack_rows(path: Path) -> bool:
    """Return whether a file starts as attack rows."""
    return tsv.read_columns(path) == COLUMNS


def attack_rows_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as the text of a file."""
    records = []
    for row in rows:
        distance = "" if math.isnan(row["found"]) else repr(float(row["found"]))
        records.append({**row, "found": distance})
    return table_text(records, _CELLS)


def read_attacks(path: Path) -> pd.DataFrame:
    """Read attack rows; ``found`` is NaN where no perturbation is confirmed.

    Raises:
        InputError: If the file is missing or damaged, or the votes of a row do not confirm it;
            names the file and the line.
    """
    rows = tsv.read_tsv(path, _CELLS)
    is_found = rows["found"].notna()
    check_columns(path, rows.assign(label=rows["predict"], correct=1))
    for bad, rule in (
        (rows["radius"] <= 0, "radius must be positive"),
        (rows["found"] < 0, "found must not be negative"),
        (~np.isin(rows["attack"], KINDS), f"attack must be one of {', '.join(KINDS)}"),
        (
            is_found == (rows["attack"] == "-"),
            "attack must be named where found is, and only there",
        ),
        ((rows["samples"] < 0) | (rows["seed"] < 0), "samples and seed must not be negative"),
        ((rows["n"] < 1) | (rows["n"] > MAX_DRAWS), f"n must lie between 1 and {MAX_DRAWS:,}"),
        ([not _is_confirmed(row) for row in rows.to_dict("records")], "counts must confirm found"),
    ):
        tsv.refuse_rows(path, bad, rule)
    return rows


def _is_confirmed(row: Mapping[Any, Any]) -> bool:
    """Return whether the votes of a row, if it has any, are for a class that is not certified."""
    votes = parse_counts(row["counts"])
    if math.isnan(row["found"]):
        return not votes
    if sum(votes.values()) != row["n"] or max(votes) >= row["classes"]:
        return False
    counts = np.array([*votes.values(), 0])  # there are at least two classes
    winner = predicted_class(counts, row["alpha"] / ATTEMPTS)
    return winner != ABSTAIN and [*votes][winner] != row["predict"]
