"""Compare two row files: paired differences, with their errors."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.field_logs import N0, LogAlpha, LogN, LogN0, LogSigma
from rs.command_line.shell import Radii

EXAMPLE = """\
rs compare a.tsv b.tsv
rs compare a.tsv b.tsv --radii 0.5 --json
rs compare theirs.log others.log --sigma 0.5"""


def main(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", exists=True, dir_okay=False, help="Certificate rows, *.tsv, or a six-column log."),
    ],
    second: Annotated[Path, typer.Argument(metavar="B", exists=True, dir_okay=False, help="The same.")],
    radii: Radii = None,
    sigma: LogSigma = None,
    n0: LogN0 = None,
    n: LogN = None,
    alpha: LogAlpha = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with all digits.")] = False,
) -> None:
    """Compare A with B: differences A - B of ACR, clean and certified accuracy, over common images.

    Both must have the same sigma, n0, n and alpha. Rows state them; for a six-column log they come from the
    options, the other file or the radii.
    """
    import json

    from rs.command_line.field_logs import known_of_logs
    from rs.command_line.shell import radii_named
    from rs.reporting.summaries import compare_rows, comparison_text

    known = known_of_logs([first, second], sigma=sigma, n0=n0, n=n, alpha=alpha)
    found = compare_rows(first, second, radii_named(radii), **known | {"n0": N0 if n0 is None else n0})
    print(json.dumps(found, allow_nan=False) if as_json else comparison_text(found))
