"""Strict readers of tab-separated tables, whose errors name the file and the line."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rs.errors import InputError
from rs.storage import files

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("classifier", "ensemble", "method")
"""Columns of CSV files that hold names."""

MAX_SHOWN = 100
"""Maximum number of characters of a field in a message."""

CellReader = Callable[[str], Any]
"""A parser: from the text of a field to its value, or ``ValueError``."""


def whole(text: str) -> int:
    """Read a whole number of 64 bits."""
    _check_plain(text)
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("a whole number must fit into 64 bits")
    return value


def finite(text: str) -> float:
    """Read a number that is neither NaN nor infinite."""
    _check_plain(text)
    return checked(float(text))


def checked(value: float) -> float:
    """Return a number, unless it is NaN or infinite."""
    if not math.isfinite(value):
        raise ValueError(f"a number must be finite, got {value}")
    return value


def _check_plain(text: str) -> None:
    """Refuse numbers that only Python accepts, such as 1_0 for 10."""
    if "_" in text or not text.isascii():
        raise ValueError("a number must be of plain digits")


def read_columns(path: Path) -> tuple[str, ...]:
    """Return the names of the columns.

    Raises:
        InputError: If the file is missing, empty, or no text.
    """
    return tuple(_lines(path)[0].split("\t"))


def read_tsv(
    path: Path, kinds: Mapping[str, CellReader], *, blank_end: bool = False
) -> pd.DataFrame:
    """Read a table with exactly the columns ``kinds``, at least one row, and a final newline.

    Args:
        path: The file.
        kinds: The parser of each column.
        blank_end: Whether blank lines may follow the last row.
    Raises:
        InputError: If the table or a field is damaged; names the file and the line.
    """
    import pandas as pd

    lines = _lines(path)
    if lines[0].split("\t") != list(kinds):
        raise InputError(f"{path}, line 1: the columns must be {' '.join(kinds)}, got {lines[0]!r}")
    if lines.pop():
        raise InputError(
            f"{path}, line {len(lines) + 1}: must end with a newline; the file was cut short, make "
            "it again"
        )
    while blank_end and not lines[-1].strip():
        lines.pop()
    if len(lines) < 2:
        raise InputError(f"{path} must hold at least one row, got only the header; make it again")
    fields = [line.split("\t") for line in lines[1:]]
    for line, row in enumerate(fields, start=2):
        if row == list(kinds):
            raise InputError(
                f"{path}, line {line}: must be a row, got the header again; give every file by "
                "itself"
            )
        if len(row) != len(kinds):
            raise InputError(
                f"{path}, line {line}: there must be {len(kinds)} fields, got {len(row)}; make the "
                "file again"
            )
    columns = {}
    for (name, kind), texts in zip(kinds.items(), zip(*fields, strict=True), strict=True):
        columns[name] = _column(path, name, kind, texts)
    return pd.DataFrame(columns)


def refuse_rows(path: Path, bad: ArrayLike, rule: str, remedy: str = "make the file again") -> None:
    """Raise an :class:`InputError` that names the first line marked ``bad`` (N,), if any is."""
    marked = np.flatnonzero(np.asarray(bad))
    if marked.size:
        raise InputError(
            f"{path}, line {marked[0] + 2}: {rule}; {marked.size} such line(s), {remedy}"
        )


def read_csv(
    path: Path, columns: Collection[str], remedy: str, *, empty: bool = False
) -> pd.DataFrame:
    """Read numbers and names from a CSV file.

    Args:
        path: The file.
        columns: Required columns.
        remedy: What to do if it is something else.
        empty: Whether it may have no rows.
    Raises:
        InputError: If it is missing, too large or damaged, or lacks a column or rows.
    """
    import pandas as pd

    content = files.read_bytes(path, files.MAX_TABLE_BYTES, remedy)
    try:
        frame = pd.read_csv(io.BytesIO(content))
    except (ValueError, OverflowError) as error:  # and their subclasses in pandas
        raise InputError(f"{path} must be a table, but: {error}; {remedy}") from error
    if not set(columns) <= set(frame) or (frame.empty and not empty):
        raise InputError(f"{path} must have rows with {', '.join(columns)}; {remedy}")
    for name in columns:
        is_numeric = frame.empty or frame[name].dtype.kind in "iuf"
        if name not in NAMES and not is_numeric:
            raise InputError(f"{path} must have numbers in the column {name}; {remedy}")
    return frame


def shortened(text: str) -> str:
    """Return a text as a message shows it: its first :data:`MAX_SHOWN` characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _lines(path: Path) -> list[str]:
    """Return the lines, the last of them empty if the file ends with a newline."""
    content = files.read_bytes(path, files.MAX_TABLE_BYTES)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")  # as files that are opened as text
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be a tab-separated text file, but: {error}; save it in UTF-8"
        ) from error
    if not text:
        raise InputError(
            f"{path} must start with a header line, but the file is empty; make it again"
        )
    return text.split("\n")


def _column(path: Path, name: str, kind: CellReader, texts: Sequence[str]) -> list[Any]:
    values: dict[str, Any] = {}  # most columns repeat few texts
    for line, text in enumerate(texts, start=2):
        if text not in values:
            try:
                values[text] = kind(text)
            except ValueError as error:
                what, why = shortened(repr(text)), shortened(str(error))
                raise InputError(
                    f"{path}, line {line}: {name} cannot be {what}: {why}; make the file again"
                ) from error
    return [values[text] for text in texts]
