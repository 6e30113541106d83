"""Fill the tables and draw the pictures of the pages from what is committed: ``make pages``.

A table or a text stands between ``<!-- generated: NAME ARGUMENTS -->`` and ``<!-- end -->``, which
readers of a page do not see. NAME is a function of :mod:`benchmarks.page_tables` or
:mod:`benchmarks.findings`.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import diagrams, findings, page_tables, results_chart
from benchmarks.common import unpack_rows
from benchmarks.page_tables import Committed, Lines
from rs.errors import InputError
from rs.reporting.report import drawn
from rs.storage import files

ROOT = Path(__file__).parents[1]
CHART = ROOT / "docs/results.svg"
PIPELINE = ROOT / "docs/pipeline.svg"
ARCHITECTURE = ROOT / "docs/architecture.svg"
BLOCK = re.compile(r"<!-- generated: ([^\n]+) -->\n.*?<!-- end -->", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages of the project."""
    folders = [ROOT / "docs", ROOT / "benchmarks/results"]
    return [ROOT / "README.md", *(page for folder in folders for page in folder.glob("*.md"))]


def blocks(page: Path) -> list[re.Match[str]]:
    """Return the generated blocks of a page.

    Raises:
        InputError: If a block does not end before the next one begins.
    """
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    if not len(found) == text.count("<!-- generated: ") == text.count("<!-- end -->"):
        raise InputError(
            f"{page}: each <!-- generated: NAME --> must have one <!-- end -->; add what is missing"
        )
    return found


def fill(block: re.Match[str], committed: Committed) -> str:
    """Return a block with its table or text made again."""
    name, *arguments = block[1].split()
    module = page_tables if hasattr(page_tables, name) else findings
    content = getattr(module, name)(committed, *arguments)
    if not isinstance(content, str):
        content = markdown(content)
    return f"<!-- generated: {block[1]} -->\n\n{content}\n\n<!-- end -->"


def markdown(lines: Lines) -> str:
    """Return titles and lines as a table, columns without words aligned to the right.

    >>> print(markdown([["method", "ACR"], ["macer", "0.275"]]))
    | method | ACR |
    |---|---:|
    | macer | 0.275 |
    """
    rules = []
    for column in zip(*lines[1:], strict=True):
        has_words = any(cell[:1].isalpha() for cell in column)
        rules.append("---" if has_words else "---:")
    titles, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([titles, f"|{'|'.join(rules)}|", *rest])


def main() -> None:
    """Fill every page, and draw the chart of README and the diagrams."""
    with TemporaryDirectory() as folder:
        unpack_rows(ROOT / "reports/rows", Path(folder))
        committed = Committed(ROOT, Path(folder))
        for page in pages():
            text = page.read_text(encoding="utf-8")
            for block in blocks(page):
                text = text.replace(block[0], fill(block, committed))
            files.write_text(page, text)
        files.write_bytes(CHART, drawn(results_chart.draw(committed), "svg"))
    files.write_bytes(PIPELINE, drawn(diagrams.draw(diagrams.stages(ROOT)), "svg"))
    files.write_bytes(ARCHITECTURE, drawn(diagrams.draw(diagrams.packages(ROOT)), "svg"))


if __name__ == "__main__":
    main()
