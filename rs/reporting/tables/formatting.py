"""What tables are made of and how they look: formats of numbers, columns, and Markdown, LaTeX and
CSV.

A column prints one cell of a row of data. A rendered table is Markdown, a ``tabular`` of LaTeX, and
unrounded CSV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

import pandas as pd

from rs.statistics.comparison import Estimate


@dataclass(frozen=True)
class Table:
    """A table to print, and its numbers."""

    caption: str
    header: list[str]
    body: list[list[str]]  # in Markdown: the best of its kind is bold
    data: pd.DataFrame  # the same numbers unrounded, one fact a row
    notes: list[str] = field(default_factory=list)


EMPTY = "–"

Row = dict[Any, Any]
"""The data of one line of a table, by name."""

Column = Callable[[Row], str]
"""Prints one cell of a row."""


def build_table(
    caption: str,
    columns: Mapping[str, Column],
    rows: Sequence[Row],
    notes: Sequence[str],
    data: pd.DataFrame | None = None,
) -> Table:
    """Print rows in columns.

    Args:
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
    return Table(caption, list(filled), body, frame, list(notes))


def _flat(row: Row) -> Row:
    """Return a row with numbers in place of estimates; those of its ``estimate`` are among its
    values already.
    """
    estimates = {name: value for name, value in row.items() if isinstance(value, Estimate)}
    flat = {name: value for name, value in row.items() if name not in estimates}
    for name, estimate in estimates.items():
        if name != "estimate":
            flat |= numbers(estimate, f"{name}_")
    return flat


def numbers(difference: Estimate, prefix: str = "") -> Row:
    """Return the numbers of a difference, by name."""
    values = asdict(difference)
    values = {"difference": values.pop("value"), **values, "tie": difference.tie}
    return {prefix + name: value for name, value in values.items()}


# -------------------------------------------------------------------------------------------------
# columns


def plain(name: Any, form: str = "", unit: str = "") -> Column:
    """Print a value in a format, with its unit."""
    return lambda row: EMPTY if pd.isna(row.get(name)) else f"{row[name]:{form}}{unit}"


def marked(name: str) -> Column:
    """Print a name, with a dagger where a certificate is not sound."""
    return lambda row: row[name] if row["sound"] else f"{row[name]} †"


def bold(text: str, is_best: bool) -> str:
    """Return a text in bold where it is the best."""
    return f"**{text}**" if is_best else text


def acr_cell(row: Row) -> str:
    """Print an ACR with its errors, bold where it is the best."""
    return bold(with_errors(row["estimate"]), row["best"])


def difference(name: Any) -> Column:
    """Print a difference with its errors, and whether it is a tie; a row may have none."""
    return lambda row: with_verdict(row[name]) if name in row else EMPTY


# -------------------------------------------------------------------------------------------------
# texts


def with_errors(acr: Estimate) -> str:
    """Return ACR ± error over images [error over images and training seeds, where it is known]."""
    return f"{acr.value:.4f} {_errors(acr, 4)}"


def signed_with_errors(difference: Estimate) -> str:
    """Return a difference of ACRs as :func:`with_errors` returns an ACR, with its sign and
    :func:`decimals_needed`.
    """
    places = decimals_needed(difference)
    return f"{signed(difference.value, places)} {_errors(difference, places)}"


def _errors(value: Estimate, places: int) -> str:
    return f"± {value.error_images:.{places}f}" + (
        "" if value.error is None else f" [{value.error:.{places}f}]"
    )


def with_verdict(difference: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie, or rests on images alone."""
    verdict = ", ".join(["tie"] * difference.tie + ["images only"] * (difference.error is None))
    return f"{signed_with_errors(difference)} {verdict}".rstrip()


def decimals_needed(difference: Estimate) -> int:
    """Return how many decimals a difference needs so that what is printed is a tie where it is one:
    at least four.

    >>> decimals_needed(Estimate(-0.001952, 0.000996, None, 0.0507, 359, 1))  # no tie if it were 0.0020 ± 0.0010
    5
    """

    def printed(places: int) -> Estimate:
        names = ("value", "error_images", "error")
        rounded = {
            name: number and round(number, places)
            for name, number in asdict(difference).items()
            if name in names
        }
        return replace(difference, **rounded)

    return next(places for places in count(4) if printed(places).tie == difference.tie)


def signed(value: float, places: int = 4) -> str:
    """Write a difference with its sign, and zero without one.

    >>> signed(0.01264), signed(-0.00001), signed(-0.00001, 5)
    ('+0.0126', '0.0000', '-0.00001')
    """
    return f"{value:+.{places}f}" if round(value, places) else f"{0:.{places}f}"


# -------------------------------------------------------------------------------------------------
# rendering

SYMBOLS = str.maketrans(
    {"±": r"$\pm$", "σ": r"$\sigma$", "†": r"$^\dagger$", "–": "--", "₀": r"$_0$"}
)
"""Symbols of tables in LaTeX."""


def grid(table: Table, form: str) -> str:
    """Return header and body in a format of tabulate."""
    from tabulate import tabulate  # no part of a small installation

    align = ["left"] + ["right"] * (len(table.header) - 1)
    return tabulate(
        table.body, headers=table.header, tablefmt=form, disable_numparse=True, colalign=align
    )


def markdown(table: Table) -> str:
    """Return the caption, the table with the best in bold, and the notes."""
    return "\n\n".join([table.caption, grid(table, "pipe"), *table.notes]) + "\n"


def latex(table: Table) -> str:
    """Return a ``tabular`` of the package booktabs, for a float whose caption its reader writes."""
    text = re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", grid(table, "latex_booktabs"))
    return text.translate(SYMBOLS) + "\n"


def render(name: str, table: Table) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and CSV (unrounded, and empty where not known), by file
    name.
    """
    numbers = table.data.to_csv(index=False, lineterminator="\n")
    forms = {".md": markdown(table), ".tex": latex(table), ".csv": numbers}
    return {name + suffix: text.encode() for suffix, text in forms.items()}
