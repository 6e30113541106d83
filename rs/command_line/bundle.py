"""Bundle a study for others to check: rows, tables, claims."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Force, ParamsFile

EXAMPLE = "rs bundle digits --out digits.tar.xz"


def main(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Name of the recipe, as in the paths.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Archive to write, *.tar.xz.")],
    root: Annotated[Path, typer.Option(file_okay=False, help="Folder with results, reports, models.")] = Path("."),
    params: ParamsFile = Path("params.yaml"),
    force: Force = False,
) -> None:
    """Bundle the study of DATASET with its checker; write nothing if the study contradicts itself."""
    from rs.reporting.bundle import is_bundle, make_bundle
    from rs.storage import files

    files.check_output(out, "a bundle", is_bundle, force=force)
    content, found = make_bundle(root, params, dataset)
    files.write_bytes(out, content)
    print(*found, f"bundle in {out}", sep="\n")
