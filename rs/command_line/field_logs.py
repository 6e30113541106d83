"""Options that say what a log in the field's six columns does not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import check_sigma
from rs.errors import InputError

N0 = 100
"""What the field's logs were made with; no log says it."""

LogSigma = Annotated[
    float | None,
    typer.Option("--sigma", callback=check_sigma, help="Sigma of six-column logs, in pixels of [0, 1]."),
]
LogN0 = Annotated[int | None, typer.Option("--n0", help="n0 of six-column logs; rs compare assumes 100.")]
LogN = Annotated[
    int | None, typer.Option("--n", help="n of six-column logs; default: derived from their radii, given sigma.")
]
LogAlpha = Annotated[
    float | None, typer.Option("--alpha", help="alpha of six-column logs; default: derived from their radii.")
]


def known_of_logs(paths: Sequence[Path], **known: float | None) -> dict[str, float | None]:
    """Return what the options say of six-column logs.

    Raises:
        InputError: If they say it and no file is a log; rows say theirs.
    """
    from rs.storage.certificate_rows import is_field_log

    said = [f"--{name}" for name, value in known.items() if value is not None]
    if said and not any(is_field_log(path) for path in paths):
        files = " and ".join(map(str, paths))
        raise InputError(f"{', '.join(said)} must be of a log in six columns, but {files} has its own; leave it out")
    return known
