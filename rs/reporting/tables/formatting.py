"""How tables look: formats of numbers, columns, and rendering as Markdown, LaTeX and CSV.

A column prints one cell of a row of data. A rendered table is Markdown, a ``tabular`` of LaTeX, and
unrounded CSV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from rs.statistics.comparison import Estimate


@dataclass(frozen=True)
class Table:
    """A table to print, and its numbers."""

    caption: str
    header: list[str]
    body: list[list[str]]  # in Markdown: the best of its kind is bold
    data: pd.DataFrame  # the same numbers unrounded, one fact per row
    notes: list[str]


EMPTY = "–"

SEEDS_NOT_COVERED = "training seeds not covered"
"""Verdict on a difference of single training runs, which another pair of runs could reverse."""

Row = dict[Any, Any]
"""The data of one line of a table, by name."""

Column = Callable[[Row], str]
"""Prints one cell of a row."""


def build_table(
    caption: str,
    columns: Mapping[str, Column],
    rows: Sequence[Row],
    notes: Sequence[str],
    data: Sequence[Row] | None = None,
) -> Table:
    """Print rows in columns.

    Args:
        caption: What the table shows, for which images.
        columns: By title. A column that is empty in every row is left out.
        rows: One for each line of the table.
        notes: Sentences to print below the table.
        data: The numbers unrounded; by default the rows, with estimates as numbers.
    """
    header = []
    filled = []
    for title, column in columns.items():
        cells = [column(row) for row in rows]
        if not rows or set(cells) != {EMPTY}:
            header.append(title)
            filled.append(cells)
    body = [list(line) for line in zip(*filled, strict=True)]
    if data is None:
        data = [_flat(row) for row in rows]
    return Table(caption, header, body, pd.DataFrame(data), list(notes))


def _flat(row: Row) -> Row:
    """Return a row with numbers in place of estimates.

    The numbers of its ``estimate`` are already among its values.
    """
    values: Row = {}
    estimates: Row = {}
    for name, value in row.items():
        if not isinstance(value, Estimate):
            values[name] = value
        elif name != "estimate":
            estimates |= numbers(value, f"{name}_")
    return values | estimates


def numbers(difference: Estimate, prefix: str = "") -> Row:
    """Return the numbers of a difference, by name."""
    values = asdict(difference)
    values = {"difference": values.pop("value"), **values, "tie": difference.tie}
    return {prefix + name: value for name, value in values.items()}


# -------------------------------------------------------------------------------------------------
# columns


def plain(name: Any, form: str = "", unit: str = "") -> Column:
    """Print a value in a format, with its unit."""

    def cell(row: Row) -> str:
        value = row.get(name)
        return EMPTY if pd.isna(value) else f"{value:{form}}{unit}"

    return cell


def marked(name: str) -> Column:
    """Print a name, with a dagger where a certificate is not sound."""

    def cell(row: Row) -> str:
        return row[name] if row["sound"] else f"{row[name]} †"

    return cell


def bold(text: str, is_best: bool) -> str:
    """Return a text in bold where it is the best."""
    return f"**{text}**" if is_best else text


def acr_cell(row: Row) -> str:
    """Print an ACR with its errors, bold where it is the best."""
    return bold(with_errors(row["estimate"]), row["best"])


def difference(name: Any) -> Column:
    """Print a difference with its errors, and whether it is a tie; a row may have none."""

    def cell(row: Row) -> str:
        return with_verdict(row[name]) if name in row else EMPTY

    return cell


# -------------------------------------------------------------------------------------------------
# texts


def with_errors(acr: Estimate) -> str:
    """Return ACR ± error over images [error over images and training seeds, where it is known]."""
    return f"{acr.value:.4f} {_errors(acr, 4)}"


def signed_with_errors(difference: Estimate) -> str:
    """Return a difference of ACRs with its sign and errors, in :func:`decimals_needed`."""
    places = decimals_needed(difference)
    return f"{signed(difference.value, places)} {_errors(difference, places)}"


def _errors(value: Estimate, places: int) -> str:
    text = f"± {value.error_images:.{places}f}"
    return text if value.error is None else f"{text} [{value.error:.{places}f}]"


def with_verdict(difference: Estimate) -> str:
    """Return a difference with its errors, whether it is a tie, and whether it covers seeds."""
    verdicts = []
    if difference.tie:
        verdicts.append("tie")
    if difference.error is None:
        verdicts.append(SEEDS_NOT_COVERED)
    return f"{signed_with_errors(difference)} {', '.join(verdicts)}".rstrip()


def decimals_needed(difference: Estimate) -> int:
    """Return how many decimals (at least four) make the printed numbers a tie where it is one.

    >>> decimals_needed(Estimate(-0.001952, 0.000996, None, 0.0507, 359, 1))  # not 0.0020 ± 0.0010
    5
    """
    places = 4
    while _rounded(difference, places).tie != difference.tie:
        places += 1
    return places


def _rounded(estimate: Estimate, places: int) -> Estimate:
    error = estimate.error
    return replace(
        estimate,
        value=round(estimate.value, places),
        error_images=round(estimate.error_images, places),
        error=None if error is None else round(error, places),
    )


def signed(value: float, places: int = 4) -> str:
    """Write a difference with its sign, and zero without one.

    >>> signed(0.01264), signed(-0.00001), signed(-0.00001, 5)
    ('+0.0126', '0.0000', '-0.00001')
    """
    return f"{value:+.{places}f}" if round(value, places) else f"{0:.{places}f}"


# -------------------------------------------------------------------------------------------------
# rendering

LATEX_SYMBOLS = str.maketrans(
    {"±": r"$\pm$", "σ": r"$\sigma$", "†": r"$^\dagger$", "–": "--", "₀": r"$_0$"}
)


def grid(table: Table, form: str) -> str:
    """Return header and body in a format of tabulate."""
    from tabulate import tabulate  # not part of a small installation

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
    return text.translate(LATEX_SYMBOLS) + "\n"


def render(name: str, table: Table) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and unrounded CSV, by file name."""
    return {
        f"{name}.md": markdown(table).encode(),
        f"{name}.tex": latex(table).encode(),
        f"{name}.csv": csv(table.data),
    }


def csv(data: pd.DataFrame) -> bytes:
    """Return unrounded numbers as CSV."""
    return data.to_csv(index=False, lineterminator="\n").encode()
