"""Write certificate rows as a log in the field's six columns, which existing analysis scripts read."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def main(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", exists=True, dir_okay=False, help="Certificate rows, *.tsv.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Log to write: idx label predict radius correct time.")],
) -> None:
    """Export ROWS, with the seconds of each image where the file beside them has them."""
    import pandas as pd

    from rs.errors import InputError
    from rs.statistics.certificate import UNSOUND
    from rs.statistics.metrics import check_radii
    from rs.storage import files
    from rs.storage.certificate_rows import FIELD_COLUMNS, read, write_field_log

    files.check_output(out, "a log in the six columns", files.begins_with("\t".join(FIELD_COLUMNS) + "\n"))
    table = read(rows)
    check_radii(table, str(rows))
    if (table["scope"] == UNSOUND).any():
        print(
            f"warning: the certificates in {rows} are of frozen weights, chosen image by image; the six columns cannot "
            "say that they do not hold for a classifier that chooses its weights anew",
            file=sys.stderr,
        )
    seconds = rows.with_suffix(".seconds.csv")
    if seconds.exists():
        times = pd.read_csv(seconds)
        if list(times) != ["idx", "seconds"] or times["idx"].duplicated().any():
            raise InputError(
                f"{seconds} must have the columns idx and seconds, once an image; remove it or make it again"
            )
        table = table.merge(times, on="idx", how="left")
    write_field_log(table, out)
