"""Compare two row files: paired differences, with their errors."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Radii

EXAMPLE = """\
rs compare a.tsv b.tsv
rs compare a.tsv b.tsv --radii 0.5 --json"""


def main(
    first: Annotated[Path, typer.Argument(metavar="A", exists=True, dir_okay=False, help="Certificate rows, *.tsv.")],
    second: Annotated[Path, typer.Argument(metavar="B", exists=True, dir_okay=False, help="Certificate rows, *.tsv.")],
    radii: Radii = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with all digits.")] = False,
) -> None:
    """Compare A with B: ACR, clean and certified accuracy of A less those of B, over the images that both have."""
    import json

    from rs.command_line.shell import radii_named
    from rs.reporting.row_files import compared, text_of_difference

    found = compared(first, second, radii_named(radii))
    print(json.dumps(found, allow_nan=False) if as_json else text_of_difference(found))
