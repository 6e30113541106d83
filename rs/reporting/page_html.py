"""The parts of the report page in HTML: tables, origins of results, style and scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from rs.reporting.page_data import COLUMNS
from rs.reporting.results import Result
from rs.reporting.tables.formatting import Table

WEB = Path(__file__).with_name("web")

SIDECAR = (
    "code",
    "versions",
    "device",
    "precision",
    "engine",
    "arithmetic",
    "outputs",
    "seed",
    "subset",
    "images",
)
"""What the page shows of the sidecar of rows."""

NUMBER = re.compile(r"(<b>)?[+-]?\d")
"""The beginning of a cell of a column of numbers."""


def html_table(table: Table, links: bool = False) -> str:
    """Return a table with its caption and notes, whose columns sort by a click.

    Args:
        table: As the report prints it, in Markdown.
        links: Whether names in the first column lead to where they come from.
    """
    rows = []
    for line in table.body:
        cells = [re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", escape(cell)) for cell in line]
        if links:
            cells[0] = f'<a href="#" data-name="{escape(line[0])}">{cells[0]}</a>'
        rows.append(cells)
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return f"<p class=note>{escape(table.caption)}</p>{cells_table(table.header, rows)}{notes}"


def cells_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a sortable table of cells in HTML; columns of numbers are aligned at the right."""
    numbers = set()
    for row in rows:
        numbers |= {column for column, cell in enumerate(row) if NUMBER.match(cell)}
    align = ["" if column in numbers else " class=text" for column in range(len(titles))]
    head = []
    for column, title in enumerate(titles):
        head.append(f"<th{align[column]}><button>{escape(title)}</button></th>")
    body: list[str] = []
    for row in rows:
        body += ["<tr>", *(f"<td{align[column]}>{cell}" for column, cell in enumerate(row))]
    search = ""
    if len(rows) > 10:
        search = '<input type="search" placeholder="filter rows" aria-label="Filter rows">'
    table = f"<table><thead><tr>{''.join(head)}<tbody>{''.join(body)}</table>"
    return f'<div class="sortable">{search}<div class="scroll">{table}</div></div>'


def folded(title: str, content: str, name: str = "") -> str:
    """Return content that a click on its title unfolds."""
    attribute = f' data-name="{escape(name)}"' if name else ""
    return f"<details{attribute}><summary>{escape(title)}</summary>{content}</details>"


def describe_origins(results: Sequence[Result]) -> str:
    """Return files and commands of a group of results, and the parameters and sidecar of the first.

    In HTML.
    """
    first = results[0]
    lines = [result.origin["file"] for result in results]
    lines += dict.fromkeys(result.origin["command"] for result in results)
    stated = first.provenance.to_json()
    certified: dict[str, Any] = {}
    for name, value in first.terms.budget.items():
        certified[name] = int(value) if value.is_integer() else value
    certified |= {name: stated[name] for name in SIDECAR if name in stated}
    definitions = []
    for name, values in (
        ("parameters", first.origin.get("parameters")),
        ("certified with", certified),
    ):
        if values:
            text = json.dumps(values)[1:-1].replace('"', "")
            definitions.append(f"<dt>{name}</dt><dd>{escape(text)}</dd>")
    return f"<pre>{escape(chr(10).join(lines))}</pre><dl>{''.join(definitions)}</dl>"


def page_style(sheet: str | None, images: int) -> str:
    """Return the style of the page, with the sheet that pictures are cut from."""
    pictures = ""
    if sheet:
        lines = -(-images // COLUMNS)
        pictures = f":root {{ --sheet: url({sheet}); --columns: {COLUMNS}; --lines: {lines}; }}\n"
    return pictures + web_file("page.css")


def policy(scripts: Sequence[str]) -> str:
    """Return what the page may do: run these scripts, without eval; inline style and images."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    sources = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return (
        f"default-src 'none'; script-src {' '.join(sources)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def web_file(name: str) -> str:
    """Return the text of a file in the folder ``web``."""
    return (WEB / name).read_text(encoding="utf-8")


@cache
def vega_embed() -> str:
    """Return Vega-Embed, with Vega and Vega-Lite in it, as a script that can stand in HTML."""
    from vl_convert import javascript_bundle

    program = javascript_bundle("window.vegaEmbed = vegaEmbed;")
    program = program.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"(() => {{{program}}})();"  # so that its names are its own
