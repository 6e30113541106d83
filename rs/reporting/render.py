"""Render a table: as Markdown, as LaTeX in the paper's layout, and as CSV with every digit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import ceil

import pandas as pd


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


def csv(table: Table) -> str:
    """Return the unrounded numbers; what is not known stays empty."""
    return table.data.to_csv(index=False, lineterminator="\n")


def render(name: str, table: Table) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and CSV, by file name."""
    forms = {".md": markdown(table), ".tex": latex(table), ".csv": csv(table)}
    return {name + suffix: text.encode() for suffix, text in forms.items()}
