"""Columns of a table: from one row of its data to the cell that is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from rs import headlines
from rs.typeset import EMPTY, Cell, Table

Row = dict[str, Any]
Columns = dict[str, Callable[[Row], Cell]]


def table(label: str, caption: str, columns: Columns, data: list[Row], notes: list[str]) -> Table:
    """Print rows of data in these columns, by title."""
    body = [[cell(row) for cell in columns.values()] for row in data]
    return Table(label, caption, list(columns), body, pd.DataFrame(data), notes)


def plain(name: str, form: str = "", unit: str = "") -> Callable[[Row], Cell]:
    """Return a value as it is, or formatted, with its unit."""
    return lambda row: EMPTY if pd.isna(row[name]) else Cell(f"{row[name]:{form}}{unit}")


def marked(name: str) -> Callable[[Row], Cell]:
    """Return a name with a dagger if a certificate is not sound."""
    return lambda row: Cell(row[name] if row["sound"] else f"{row[name]} †")


def acr(row: Row) -> Cell:
    """Return ACR ± standard error, bold where it is the best."""
    return Cell(f"{row['acr']:.3f} ± {row['standard_error']:.3f}", row["best"])


def difference(name: str) -> Callable[[Row], Cell]:
    """Return a paired difference ± its error, and whether it is a tie."""

    def cell(row: Row) -> Cell:
        by, error, tie = (row[f"{name}_{field}"] for field in ("difference", "error", "tie"))
        if by is None:
            return EMPTY
        return Cell(f"{headlines.signed(by)} ± {error:.3f}" + " tie" * tie)

    return cell
