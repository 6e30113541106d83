"""Formats of numbers, and the columns of a table: from one row of its data to the cells that are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        columns: By title.
        rows: One for each line of the table.
        notes: What stands below it.
        data: The numbers unrounded; by default the rows, with estimates as numbers.
    """
    body = [[cell(row) for cell in columns.values()] for row in rows]
    frame = pd.DataFrame([_flat(row) for row in rows]) if data is None else data
    return Table(label, caption, list(columns), body, frame, list(notes))


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

    The form is ``0.554 ± 0.018 (76.0%)``, and ``0.554 ± 0.018 [0.019] (76.0%)`` with several seeds.
    """
    return f"{with_errors(group.acr)} ({100 * group.accuracy(0.0):.1f}%)"


def with_errors(acr: Estimate) -> str:
    """Return ACR ± error over images [error over images and training seeds, where it is known]."""
    both = "" if acr.error is None else f" [{acr.error:.3f}]"
    return f"{acr.value:.3f} ± {acr.error_images:.3f}{both}"


def signed_with_errors(difference: Estimate) -> str:
    """Return a difference of ACRs as :func:`with_errors` returns an ACR, with its sign and one digit more."""
    both = "" if difference.error is None else f" [{difference.error:.4f}]"
    return f"{signed(difference.value)} ± {difference.error_images:.4f}{both}"


def with_verdict(difference: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie, or rests on images alone."""
    verdict = ", ".join(["tie"] * difference.tie + ["images only"] * (difference.error is None))
    return f"{signed_with_errors(difference)} {verdict}".rstrip()


def signed(value: float) -> str:
    """Write a difference to four decimals, and zero without a sign.

    >>> signed(0.01264), signed(-0.00001)
    ('+0.0126', '0.0000')
    """
    return f"{value:+.4f}" if abs(value) >= 0.00005 else "0.0000"
