"""What tables are made of and how they look: formats of numbers, columns, and Markdown, LaTeX and CSV.

A column prints one cell of a row of data. A rendered table is Markdown, LaTeX in the paper's layout, and CSV with every
digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil
from typing import Any

import pandas as pd

from rs.reporting.results import Group
from rs.statistics.comparison import Estimate


@dataclass(frozen=True)
class Cell:
    """What stands in one cell: plain text, and whether it is the best of its kind."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table to print, and its numbers."""

    label: str
    caption: str
    header: list[str]
    body: list[list[Cell]]
    data: pd.DataFrame  # the same numbers unrounded, one fact a row
    notes: list[str] = field(default_factory=list)


EMPTY = Cell("–")

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


def acr_cell(row: Row) -> Cell:
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
    """Return a difference of ACRs as :func:`with_errors` returns an ACR, with its sign and :func:`decimals_needed`."""
    places = decimals_needed(difference)
    return _with_errors(difference, signed(difference.value, places), places)


def _with_errors(one: Estimate, value: str, places: int) -> str:
    both = "" if one.error is None else f" [{one.error:.{places}f}]"
    return f"{value} ± {one.error_images:.{places}f}{both}"


def with_verdict(difference: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie, or rests on images alone."""
    verdict = ", ".join(["tie"] * difference.tie + ["images only"] * (difference.error is None))
    return f"{signed_with_errors(difference)} {verdict}".rstrip()


def decimals_needed(difference: Estimate) -> int:
    """Return how many decimals a difference needs so that what is printed is a tie where it is one: at least four.

    >>> decimals_needed(Estimate(-0.001952, 0.000996, None, 0.0507, 359, 1))  # no tie if it were 0.0020 ± 0.0010
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


# ------------------------------------------------------------------------------------------------- rendering

LINES = 40
"""Of a table in LaTeX: longer ones are split, for a float cannot run over a page."""

PACKAGES = "% Packages: \\usepackage{booktabs} and \\usepackage{graphicx}"

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "†": r"$^\dagger$",
    "₀": r"$_0$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def escape(text: str) -> str:
    r"""Write plain text in LaTeX.

    >>> escape("76.0% of a_b ± 1")
    '76.0\\% of a\\_b $\\pm$ 1'
    """
    special = "[" + re.escape("".join(_LATEX)) + "]|-(?=-)"  # of two hyphens LaTeX makes a dash
    return re.sub(special, lambda match: _LATEX.get(match[0], "-{}"), text)


def markdown(table: Table) -> str:
    """Return the caption, the table with the best in bold, and the notes."""

    from tabulate import tabulate  # no part of a small installation

    def text(cell: Cell) -> str:
        plain = cell.text.replace("|", r"\|")
        return f"**{plain}**" if cell.bold else plain

    align = ["left"] + ["right"] * (len(table.header) - 1)
    body = [[text(cell) for cell in row] for row in table.body]
    grid = tabulate(body, headers=table.header, tablefmt="pipe", disable_numparse=True, colalign=align)
    return "\n\n".join([table.caption, grid, *table.notes]) + "\n"


def latex(table: Table) -> str:
    """Return ``table*`` environments in the paper's layout: one, or several of :data:`LINES` lines at most.

    A table that is wider than the text is made smaller until it is as wide. Packages: those of :data:`PACKAGES`.
    """
    count = max(1, ceil(len(table.body) / LINES))
    size = ceil(len(table.body) / count)
    parts = [table.body[start : start + size] for start in range(0, max(1, len(table.body)), max(1, size))]
    pages = [_latex_part(table, part, number, count) for number, part in enumerate(parts, 1)]
    return "\n".join([PACKAGES, *pages])


def _latex_part(table: Table, body: list[list[Cell]], number: int, count: int) -> str:
    """Return one of the parts of a table; the first one has its caption and label, and the last one its notes."""

    def text(cell: Cell) -> str:
        return rf"\textbf{{{escape(cell.text)}}}" if cell.bold else escape(cell.text)

    def line(cells: list[str]) -> str:
        return " & ".join(cells) + r" \\"

    first = [rf"\caption{{{escape(table.caption)}}}", rf"\label{{{table.label}}}"]
    later = [r"\addtocounter{table}{-1}", r"\caption{(continued)}"]
    notes = [rf"\par\smallskip\footnotesize {escape(note)}" for note in table.notes]
    lines = [
        r"\begin{table*}[tp]",
        *(first if number == 1 else later),
        r"\centering",
        r"\small\setlength{\tabcolsep}{3pt}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
        r"\toprule",
        line([escape(name) for name in table.header]),
        r"\midrule",
        *(line([text(cell) for cell in row]) for row in body),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\ifdim\wd0>\textwidth\resizebox{\textwidth}{!}{\usebox0}\else\usebox0\fi",
        *(notes if number == count else []),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def render(name: str, table: Table) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and CSV (unrounded, and empty where not known), by file name."""
    numbers = table.data.to_csv(index=False, lineterminator="\n")
    forms = {".md": markdown(table), ".tex": latex(table), ".csv": numbers}
    return {name + suffix: text.encode() for suffix, text in forms.items()}
