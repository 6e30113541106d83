"""Fill the tables and draw the pictures of the pages from what is committed: ``make pages``.

A table or a text stands between ``<!-- generated: NAME ARGUMENTS -->`` and ``<!-- end -->``, which
readers of a page do not see. NAME is a function of one of the :data:`TOPICS`.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from benchmarks import diagrams, findings, results_chart
from benchmarks.common import markdown_line, unpack_rows
from benchmarks.page_tables import attacks, cifar10, digits, paper_scale, warm_starts
from benchmarks.page_tables.cells import Lines
from benchmarks.page_tables.committed import Committed
from rs.errors import InputError
from rs.reporting.report import drawn
from rs.storage import files

ROOT = Path(__file__).parents[1]
TOPICS = (digits, cifar10, warm_starts, paper_scale, attacks, findings)
"""Modules with the functions of tables and texts."""
BLOCK = re.compile(r"<!-- generated: ([^\n]+) -->\n.*?<!-- end -->", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages of the project."""
    return [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/results/*.md")]


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
    """Return a block with its table or text made again.

    Raises:
        InputError: If no topic has a function of its name.
    """
    name, *arguments = block[1].split()
    topics = [topic for topic in TOPICS if hasattr(topic, name)]
    if not topics:
        raise InputError(
            f"a generated block must name a function of a table or text, got {name!r}; correct it"
        )
    content = getattr(topics[0], name)(committed, *arguments)
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
    titles, *rest = map(markdown_line, lines)
    return "\n".join([titles, f"|{'|'.join(rules)}|", *rest])


def main() -> None:
    """Fill every page, and draw the pictures."""
    with TemporaryDirectory() as folder:
        unpack_rows(ROOT / "reports/rows", Path(folder))
        committed = Committed(ROOT, Path(folder))
        for page in pages():
            text = page.read_text(encoding="utf-8")
            for block in blocks(page):
                text = text.replace(block[0], fill(block, committed))
            files.write_text(page, text)
        write_picture("results", results_chart.draw(committed))
        write_picture("warm-starts", warm_starts.draw(committed))
        write_picture("paper-scale", paper_scale.draw(committed))
    write_picture("pipeline", diagrams.draw(diagrams.stages(ROOT)))
    write_picture("architecture", diagrams.draw(diagrams.packages(ROOT)))


def write_picture(name: str, figure: Figure) -> None:
    """Write a picture of the pages."""
    files.write_bytes(ROOT / f"docs/{name}.svg", drawn(figure, "svg"))


if __name__ == "__main__":
    main()
