"""Share studies: the bundle of a study, and its check."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import (
    Force,
    ParamsFile,
    check_ending,
    file_argument,
    file_option,
    folder_option,
)
from rs.runtime.progress import say


def bundle_study(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Name of the recipe, as in the paths.")
    ],
    out: Annotated[Path, file_option("Archive to write, *.tar.xz.")],
    root: Annotated[Path, folder_option("Folder with results and reports.")] = Path("."),
    params: ParamsFile = Path("params.yaml"),
    force: Force = False,
) -> None:
    """Bundle a study for others to check: its rows, sidecars, parameters and tables.

    Nothing is written if the study contradicts itself.

    Example:
        rs bundle digits --out digits.tar.xz
    """
    from rs.reporting.bundle import make_bundle
    from rs.storage import files

    check_ending(out, ".tar.xz")  # so that it replaces no file of the study
    files.check_output(out, "a file", force=force)
    content, lines = make_bundle(root, params, dataset)
    files.write_bytes(out, content)
    for line in [*lines, f"bundle in {out}"]:
        say(line)


def verify_bundle(
    bundle: Annotated[
        Path,
        file_argument("BUNDLE", "Archive to check."),
    ],
) -> None:
    """Check the bundle of a study: its rows, and the means in its tables.

    Bounds, radii and classes of BUNDLE must follow from its votes, and the average certified radii
    and certified accuracies in its tables from its rows.

    Example:
        rs verify digits.tar.xz
    """
    from rs.reporting.bundle import verify
    from rs.reporting.check import MAX_BYTES
    from rs.storage.files import read_bytes

    for line in verify(read_bytes(bundle, MAX_BYTES), str(bundle)):
        say(line)
