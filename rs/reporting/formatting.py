"""Columns of a table: from one row of its data to the cell that is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from rs.reporting import formatting
from rs.reporting.render import EMPTY, Cell, Table
from rs.statistics.comparison import Estimate

Row = dict[str, Any]
Columns = dict[str, Callable[[Row], Cell]]


def table(label: str, caption: str, columns: Columns, data: list[Row], notes: list[str]) -> Table:
    """Print rows of data in these columns, by title; estimates among the data become numbers."""
    body = [[cell(row) for cell in columns.values()] for row in data]
    return Table(label, caption, list(columns), body, pd.DataFrame([_flat(row) for row in data]), notes)


def _flat(row: Row) -> Row:
    """Put numbers in the place of estimates; of the ``estimate`` of a row itself only what is not there already."""
    estimates = {name: value for name, value in row.items() if isinstance(value, Estimate)}
    flat = {name: value for name, value in row.items() if name not in estimates}
    for name, made in estimates.items():
        if name != "estimate":
            flat |= numbers(made, f"{name}_")
    return flat


def numbers(made: Estimate, prefix: str = "") -> Row:
    """Return what there is to know of a difference, by name."""
    found = {
        "difference": made.value,
        "error_images": made.error_images,
        "error": made.error,
        "p_value": made.p_value,
        "tie": made.tie,
        "images": made.images,
        "seeds": made.seeds,
    }
    return {prefix + name: value for name, value in found.items()}


def plain(name: str, form: str = "", unit: str = "") -> Callable[[Row], Cell]:
    """Return a value as it is, or formatted, with its unit."""
    return lambda row: EMPTY if pd.isna(row[name]) else Cell(f"{row[name]:{form}}{unit}")


def marked(name: str) -> Callable[[Row], Cell]:
    """Return a name with a dagger if a certificate is not sound."""
    return lambda row: Cell(row[name] if row["sound"] else f"{row[name]} †")


def acr(row: Row) -> Cell:
    """Return ACR with its errors, bold where it is the best."""
    return Cell(formatting.with_errors(row["estimate"]), row["best"])


def difference(name: str) -> Callable[[Row], Cell]:
    """Return a difference with its errors, and whether it is a tie; a row may have none."""
    return lambda row: Cell(formatting.difference(row[name])) if name in row else EMPTY
