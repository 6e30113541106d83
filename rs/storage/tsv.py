"""Tab-separated tables read strictly: every field converted, every fault named by file and line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rs.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Kind = Callable[[str], Any]
"""Turns the text of a field into its value, or raises ``ValueError``."""


def whole(text: str) -> int:
    """Read a whole number."""
    return int(text)


def finite(text: str) -> float:
    """Read a number that is neither NaN nor infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number must be finite, got {text}")
    return value


def seconds(text: str) -> float:
    """Read ``H:MM:SS.ffffff``, ``H:MM:SS``, ``D day(s), H:MM:SS`` or plain seconds.

    >>> seconds("0:01:14.5"), seconds("15.4")
    (74.5, 15.4)
    """
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)", text.strip())
    if match is None:
        return finite(text)
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return 86400 * days + 3600 * hours + 60 * minutes + rest


def header(path: Path) -> tuple[str, ...]:
    """Return the names of the columns.

    Raises:
        InputError: If the file is missing, empty, or no text.
    """
    return tuple(_lines(path)[0].split("\t"))


def read(path: Path, kinds: Mapping[str, Kind]) -> pd.DataFrame:
    """Read a table that has exactly the columns ``kinds``, at least one row, and a newline at its end.

    Raises:
        InputError: If it has not, or a field is not of its kind; names the file and the line.
    """
    import pandas as pd

    lines = _lines(path)
    if lines[0].split("\t") != list(kinds):
        raise InputError(f"{path}, line 1: the columns must be {' '.join(kinds)}, got {lines[0]!r}")
    if lines.pop():
        raise InputError(
            f"{path}, line {len(lines) + 1}: must end with a newline; the file was cut short, make it again"
        )
    if len(lines) < 2:
        raise InputError(f"{path} must hold at least one row, got only the header; make it again")
    fields = [line.split("\t") for line in lines[1:]]
    for line, row in enumerate(fields, start=2):
        if len(row) != len(kinds):
            raise InputError(f"{path}, line {line}: there must be {len(kinds)} fields, got {len(row)}")
    columns = zip(*fields, strict=True)
    return pd.DataFrame(
        {name: _column(path, name, kind, texts) for (name, kind), texts in zip(kinds.items(), columns, strict=True)}
    )


def refuse(path: Path, bad: ArrayLike, rule: str) -> None:
    """Raise an :class:`InputError` that names the first line marked ``bad`` (N,), if any is."""
    marked = np.flatnonzero(np.asarray(bad))
    if marked.size:
        raise InputError(f"{path}, line {marked[0] + 2}: {rule}; {marked.size} such line(s), make the file again")


def _lines(path: Path) -> list[str]:
    """Return the lines, the last of them empty if the file ends with a newline."""
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run the stage that makes it")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be a tab-separated text file, but: {error}") from error
    if not text:
        raise InputError(f"{path} must start with a header line, but the file is empty; make it again")
    return text.split("\n")


def _column(path: Path, name: str, kind: Kind, texts: Sequence[str]) -> list[Any]:
    values: dict[str, Any] = {}  # most columns say the same again and again
    for line, text in enumerate(texts, start=2):
        if text not in values:
            try:
                values[text] = kind(text)
            except ValueError as error:
                raise InputError(f"{path}, line {line}: {name} cannot be {text!r}: {error}") from error
    return [values[text] for text in texts]
