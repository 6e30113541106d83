"""Write certificate rows as a log in the field's six columns, which existing analysis scripts read."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Force
from rs.errors import InputError

EXAMPLE = "rs export rows.tsv --out log.tsv"


def main(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", exists=True, dir_okay=False, help="Certificate rows, *.tsv.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Log to write: idx label predict radius correct time.")],
    force: Force = False,
) -> None:
    """Export ROWS, with the seconds of each image where the sidecar has them."""
    from rs.reporting.logs import read_alone
    from rs.statistics.certificate import UNSOUND, early_stop
    from rs.statistics.metrics import check_labels, check_radii, mode_of
    from rs.storage import files
    from rs.storage.certificate_rows import FIELD_COLUMNS, is_field_log, with_seconds, write_field_log

    if is_field_log(rows):
        raise InputError(f"{rows} is a log in the six columns already; ROWS must be certificate rows")
    is_ours = files.begins_with("\t".join(FIELD_COLUMNS) + "\n")
    files.check_output(out, "a log in the six columns", is_ours, force=force)
    table = with_seconds(read_alone(rows)[0].rows, rows)
    check_radii(table, str(rows))
    check_labels(table, str(rows))
    if (table["scope"] == UNSOUND).any():
        print(
            f"warning: the certificates in {rows} are of frozen weights, chosen image by image; the six columns cannot "
            "say that they do not hold for a classifier that chooses its weights anew",
            file=sys.stderr,
        )
    if early := early_stop(mode_of(table)):
        print(
            f"warning: sampling for {rows} ended {early}; the six columns cannot say so, and the radii need not be "
            "those that so many draws give",
            file=sys.stderr,
        )
    write_field_log(table, out)
    print(f"{len(table):,} images; log in {out}")
