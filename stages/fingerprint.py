"""Write down what cells depend on besides files: code, versions, raw data, merged parameters.

This stage always runs, before all others.
"""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, folder_option, run


def main(
    dataset: Annotated[
        str, typer.Option(help="Data set: a key of datasets and recipes in the parameters.")
    ],
    prepared: Annotated[
        Path,
        folder_option("Folder of the prepared data set, used where raw data are absent."),
    ],
    out: Annotated[
        Path,
        folder_option(
            "Folder to write: code/STAGE, code/methods/METHOD, versions, raw/DATASET, ... as "
            "*.json."
        ),
    ],
    params: ParamsFile = Path("params.yaml"),
    root: Annotated[
        Path, typer.Option(exists=True, help="Folder that holds the packages rs and stages.")
    ] = Path(),
) -> None:
    """Write fingerprints of code, versions and raw data, and the merged parameters of each cell."""
    from rs.command_line.fingerprints import cell_fingerprints
    from rs.params import read_params
    from rs.storage import files

    contents = cell_fingerprints(read_params(params), dataset, prepared, out, root)
    replaceable = files.is_made(out, "versions.json")
    files.check_output(out, "a folder of fingerprints", replaceable, inputs=[prepared, params])
    with files.replacing(out) as folder:
        for name, content in contents.items():
            files.write_json(folder / f"{name}.json", content)


if __name__ == "__main__":
    run(main)
