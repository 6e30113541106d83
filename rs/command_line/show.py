"""Show row files: average certified radius, accuracies, abstentions."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.field_logs import LogAlpha, LogN, LogN0, LogSigma
from rs.command_line.shell import Radii

EXAMPLE = """\
rs show rows.tsv
rs show rows.tsv --radii 0.25,0.5 --json
rs show theirs.log --sigma 0.5"""


def main(
    rows: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROWS", exists=True, dir_okay=False, help="Certificate rows, *.tsv, or logs in six columns."
        ),
    ],
    radii: Radii = None,
    sigma: LogSigma = None,
    n0: LogN0 = None,
    n: LogN = None,
    alpha: LogAlpha = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each file, all digits.")] = False,
) -> None:
    """Show the ACR of each of ROWS with its standard error over images, clean and certified accuracy, and more."""
    import json

    from rs.command_line.field_logs import known_of_logs
    from rs.command_line.shell import radii_named
    from rs.reporting.summaries import summarize_rows, summary_text

    known = known_of_logs(rows, sigma=sigma, n0=n0, n=n, alpha=alpha)
    about = [summarize_rows(path, radii_named(radii), **known) for path in rows]
    texts = [json.dumps(one, allow_nan=False) if as_json else summary_text(one) for one in about]
    print(("\n" if as_json else "\n\n").join(texts))
