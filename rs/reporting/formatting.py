"""Formats of numbers, and the columns of a table: from one row of its data to the cells that are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pandas as pd

from rs.reporting.render import EMPTY, Cell, Table
from rs.reporting.results import Group
from rs.statistics.comparison import Estimate

Row = dict[Any, Any]
"""The data of one line of a table, by name."""

Column = Callable[[Row], Cell]
"""Prints one cell of a row."""


def build_table(
    label: str,
    caption: str,
    columns: Mapping[str, Column],
    rows: Sequence[Row],
    notes: Sequence[str],
    data: pd.DataFrame | None = None,
) -> Table:
    """Print rows in columns.

    Args:
        label: LaTeX label.
        caption: What the table shows, of which images.
        columns: By title. A column is left out where no row has anything in it.
        rows: One for each line of the table.
        notes: What stands below it.
        data: The numbers unrounded; by default the rows, with estimates as numbers.
    """
    cells = {title: [cell(row) for row in rows] for title, cell in columns.items()}
    filled = {title: column for title, column in cells.items() if not rows or set(column) - {EMPTY}}
    body = [list(line) for line in zip(*filled.values(), strict=True)]
    frame = pd.DataFrame([_flat(row) for row in rows]) if data is None else data
    return Table(label, caption, list(filled), body, frame, list(notes))


def _flat(row: Row) -> Row:
    """Return a row with numbers in place of estimates; those of its ``estimate`` are among its values already."""
    estimates = {name: value for name, value in row.items() if isinstance(value, Estimate)}
    flat = {name: value for name, value in row.items() if name not in estimates}
    for name, estimate in estimates.items():
        if name != "estimate":
            flat |= numbers(estimate, f"{name}_")
    return flat


def numbers(difference: Estimate, prefix: str = "") -> Row:
    """Return the numbers of a difference, by name."""
    values = {
        "difference": difference.value,
        "error_images": difference.error_images,
        "error": difference.error,
        "p_value": difference.p_value,
        "tie": difference.tie,
        "images": difference.images,
        "seeds": difference.seeds,
    }
    return {prefix + name: value for name, value in values.items()}


# ------------------------------------------------------------------------------------------------- columns


def plain(name: Any, form: str = "", unit: str = "", bold: str | None = None) -> Column:
    """Print a value in a format, with its unit; bold where the value named ``bold`` is true."""

    def cell(row: Row) -> Cell:
        value = row.get(name)
        return EMPTY if pd.isna(value) else Cell(f"{value:{form}}{unit}", bool(bold and row[bold]))

    return cell


def marked(name: str) -> Column:
    """Print a name, with a dagger where a certificate is not sound."""
    return lambda row: Cell(row[name] if row["sound"] else f"{row[name]} †")


def formatted(name: str, text: Callable[[Any], str]) -> Column:
    """Print what ``text`` makes of a value."""
    return lambda row: Cell(text(row[name]))


def acr(row: Row) -> Cell:
    """Print an ACR with its errors, bold where it is the best."""
    return Cell(with_errors(row["estimate"]), row["best"])


def difference(name: Any) -> Column:
    """Print a difference with its errors, and whether it is a tie; a row may have none."""
    return lambda row: Cell(with_verdict(row[name])) if name in row else EMPTY


def of_group(groups: Mapping[str, Group], cell: Callable[[Group], Cell]) -> Column:
    """Print the group of a row's method; a method may have none."""
    return lambda row: cell(groups[row["method"]]) if row["method"] in groups else EMPTY


# ------------------------------------------------------------------------------------------------- texts


def headline(group: Group) -> str:
    """Return ACR ± error (clean accuracy).

    The form is ``0.5541 ± 0.0182 (76.0%)``, and ``0.5541 ± 0.0182 [0.0190] (76.0%)`` with several seeds.
    """
    return f"{with_errors(group.acr)} ({100 * group.accuracy(0.0):.1f}%)"


def with_errors(acr: Estimate) -> str:
    """Return ACR ± error over images [error over images and training seeds, where it is known]."""
    return _with_errors(acr, f"{acr.value:.4f}", 4)


def signed_with_errors(difference: Estimate) -> str:
    """Return a difference of ACRs as :func:`with_errors` returns an ACR, with its sign and :func:`digits`."""
    places = digits(difference)
    return _with_errors(difference, signed(difference.value, places), places)


def _with_errors(one: Estimate, value: str, places: int) -> str:
    both = "" if one.error is None else f" [{one.error:.{places}f}]"
    return f"{value} ± {one.error_images:.{places}f}{both}"


def with_verdict(difference: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie, or rests on images alone."""
    verdict = ", ".join(["tie"] * difference.tie + ["images only"] * (difference.error is None))
    return f"{signed_with_errors(difference)} {verdict}".rstrip()


def digits(difference: Estimate) -> int:
    """Return how many decimals a difference needs so that what is printed is a tie where it is one: at least four.

    >>> digits(Estimate(-0.001952, 0.000996, None, 358, 359, 1))  # no tie if it were 0.0020 ± 0.0010
    5
    """
    return next(places for places in count(4) if rounded(difference, places).tie == difference.tie)


def rounded(one: Estimate, places: int) -> Estimate:
    """Return an estimate as it is printed with so many decimals."""
    error = None if one.error is None else round(one.error, places)
    return replace(one, value=round(one.value, places), error_images=round(one.error_images, places), error=error)


def signed(value: float, places: int = 4) -> str:
    """Write a difference with its sign, and zero without one.

    >>> signed(0.01264), signed(-0.00001), signed(-0.00001, 5)
    ('+0.0126', '0.0000', '-0.00001')
    """
    return f"{value:+.{places}f}" if round(value, places) else f"{0:.{places}f}"
