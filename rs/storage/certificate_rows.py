"""Certificate rows: one line per image, in this project's columns or Cohen's six-column log format.

Rows keep all votes and digits; tables round. Readers compute certificates again from the votes,
return a DataFrame for ``rs.statistics.metrics``, and refuse a damaged file with an error that names
the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from rs.errors import InputError, printable
from rs.params import Count, Positive, validate, validated
from rs.statistics.certificate import (
    MIN_ALPHA,
    SCOPES,
    format_counts,
    parse_counts,
    votes_of,
)
from rs.statistics.log_budget import impossible
from rs.statistics.procedures.table import MODES, procedure_of
from rs.storage import files, tsv
from rs.storage.row_checks import check_columns, check_votes

if TYPE_CHECKING:  # half a second to import, and appending rows does not need it
    import pandas as pd


def counts(text: str) -> str:
    """Read votes as :func:`format_counts` writes them; they remain text."""
    parse_counts(text)
    return text


_FIELD_KINDS: dict[str, tsv.CellReader] = {
    "idx": tsv.whole,
    "label": tsv.whole,
    "predict": tsv.whole,
    "radius": tsv.finite,
    "correct": tsv.whole,
    "time": str,
}
_KINDS: dict[str, tsv.CellReader] = {
    "idx": tsv.whole,
    "label": tsv.whole,
    "predict": tsv.whole,
    "radius": tsv.finite,
    "correct": tsv.whole,
    "p_lower": tsv.finite,
    "n0": tsv.whole,
    "n": tsv.whole,
    "alpha": tsv.finite,
    "sigma": tsv.finite,
    "counts0": counts,
    "counts": counts,
    "mode": str,
    "scope": str,
}

COLUMNS = tuple(_KINDS)
FILE = "file"
"""A column of rows of a folder of pictures: the path of the picture in the folder."""
EVALUATIONS = "evaluations"
"""The last column of rows of cascades: evaluations of members, on all samples of the image."""
_OPTIONAL_KINDS: dict[str, tsv.CellReader] = {FILE: printable, EVALUATIONS: tsv.whole}
FIELD_COLUMNS = tuple(_FIELD_KINDS)


def sidecar_of(path: Path) -> Path:
    """Return the path of the sidecar of a row file (``rs.storage.provenance``)."""
    return path.with_suffix(".json")


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as the text of a file, from which their numbers are read exactly.

    Args:
        rows: Of one classifier; each has a value for each of :data:`COLUMNS`, for :data:`FILE` of a
            picture, and for :data:`EVALUATIONS` of a cascade; counts are votes per class, or text.
    Raises:
        ValueError: If a number is not finite.
    """
    kinds = dict(_KINDS)
    for name, kind in _OPTIONAL_KINDS.items():
        if rows[0].get(name) is not None:
            kinds[name] = kind
    return table_text(rows, kinds)


def table_text(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, tsv.CellReader]) -> str:
    """Return rows as the text of a table with the columns ``kinds`` and a header."""
    lines = ["\t".join(kinds)]
    for row in rows:
        lines.append("\t".join(_text(kind, row[name]) for name, kind in kinds.items()))
    return "\n".join(lines) + "\n"


def _text(kind: tsv.CellReader, value: Any) -> str:
    if kind is tsv.whole:
        return str(int(value))
    if kind is tsv.finite:
        return repr(tsv.checked(float(value)))
    return value if isinstance(value, str) else format_counts(value)


def read_rows(path: Path) -> pd.DataFrame:
    """Read this project's rows.

    Returns:
        The columns :data:`COLUMNS`, :data:`FILE` of pictures, and :data:`EVALUATIONS` of a
        cascade; ``counts0`` and ``counts`` remain text (see :func:`parse_counts`).
    Raises:
        InputError: If the file is missing or damaged, or a row contradicts itself; names the file
            and the line.
    """
    columns = tsv.read_columns(path)
    optional = {name: kind for name, kind in _OPTIONAL_KINDS.items() if name in columns}
    rows = tsv.read_tsv(path, _KINDS | optional)
    check_columns(path, rows)
    if EVALUATIONS in rows:
        tsv.refuse_rows(
            path,
            rows[EVALUATIONS] < rows["n0"] + rows["n"],
            "every sample must take one evaluation or more",
        )
    votes = {name: votes_of(rows[name]) for name in rows if name.startswith("counts")}
    totals = {
        name: np.bincount(row, weights=numbers, minlength=len(rows))
        for name, (row, _, numbers) in votes.items()
    }
    for bad, rule in (
        (rows["mode"].map(procedure_of).isna(), f"mode must be one of {MODES}"),
        (~np.isin(rows["scope"], SCOPES), f"scope must be one of {', '.join(SCOPES)}"),
        (rows["scope"] != rows["scope"][0], "scope must be the same in all rows"),
        (rows["sigma"] <= 0, "sigma must be positive"),
        ((rows["p_lower"] < 0) | (rows["p_lower"] > 1), "p_lower must lie in [0, 1]"),
        (totals["counts0"] != rows["n0"], "counts0 must be n0 votes"),
        (totals["counts"] != rows["n"], "counts must be n votes"),
    ):
        tsv.refuse_rows(path, bad, rule)
    check_votes(path, rows, votes["counts0"], votes["counts"])
    return rows


def read_field_log(
    path: Path,
    *,
    sigma: float | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float | None = None,
) -> pd.DataFrame:
    """Read a log in Cohen's format: ``idx label predict radius correct time``.

    Args:
        path: The log.
        sigma, n0, n, alpha: Values that the log does not contain; ``None`` if unknown.
    Returns:
        The columns :data:`COLUMNS`, NaN and ``-`` where unknown.
    Raises:
        InputError: As :func:`read_rows`, or if a value is impossible, or no votes give a radius for
            the given sigma and budget.
    """
    rows = tsv.read_tsv(path, _FIELD_KINDS, blank_end=True)
    check_columns(path, rows)
    budget = {"sigma": sigma, "n0": n0, "n": n, "alpha": alpha}
    validate(_LogBudget, budget, "", source=f"{path} must be of possible values")
    columns = {name: math.nan if value is None else value for name, value in budget.items()}
    rows = rows.assign(
        p_lower=math.nan, **columns, counts0="-", counts="-", mode="certify", scope="model"
    )
    rows = rows[[*COLUMNS]]
    if sigma is not None and n is not None and alpha is not None:
        rule = f"radius must be one that n = {n}, alpha = {alpha} and sigma = {sigma} can give"
        remedy = "check sigma, n and alpha, or make the file again"
        tsv.refuse_rows(path, impossible(rows["radius"], sigma, n, alpha), rule, remedy)
    return rows


@validated
class _LogBudget:
    """Values that a six-column log does not contain; ``None`` if unknown."""

    sigma: Positive | None
    n0: Count | None
    n: Count | None
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)] | None


def is_field_log(path: Path) -> bool:
    """Return whether a file starts as a six-column log, which has no sidecar.

    Raises:
        InputError: If it is missing, empty, or no text.
    """
    return tsv.read_columns(path) == FIELD_COLUMNS


def is_certificate_rows(path: Path) -> bool:
    """Return whether a file starts as certificate rows.

    Raises:
        InputError: If it is missing, empty, or no text.
    """
    return tsv.read_columns(path)[: len(COLUMNS)] == COLUMNS


def read_any(path: Path, **log_values: Any) -> pd.DataFrame:
    """Read certificate rows or a six-column log; the header says which.

    Args:
        path: The file.
        log_values: Values that a six-column log does not contain, as for :func:`read_field_log`.
    Raises:
        InputError: As :func:`read_rows` and :func:`read_field_log`.
    """
    if is_field_log(path):
        return read_field_log(path, **log_values)
    if not is_certificate_rows(path):
        columns = repr(" ".join(tsv.read_columns(path)))
        raise InputError(
            f"{path}, line 1: must be certificate rows of `rs certify`, with the columns "
            f"{' '.join(COLUMNS)}, or a log with Cohen's six columns, {' '.join(FIELD_COLUMNS)}, "
            f"with tabs between them; got {tsv.shortened(columns)}"
        )
    return read_rows(path)


def write_field_log(rows: pd.DataFrame, path: Path) -> None:
    """Write Cohen's six columns, with all digits of the radii; the time of each image is 0."""
    records = rows.assign(time="0:00:00").to_dict("records")
    files.write_text(path, table_text(records, _FIELD_KINDS))
