"""Turn a raw data set into the files that training and certification read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import run


def main(
    name: Annotated[str, typer.Argument(help="Data set: a key of datasets in the parameters.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write.")],
    params: Annotated[Path, typer.Option(help="Parameter file.")] = Path("params.yaml"),
    source: Annotated[
        str | None, typer.Option(help="torchvision, parquet or folder, in place of the parameters' source.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the raw data, in place of the parameters' root.")] = None,
) -> None:
    """Prepare the data set NAME: train.npz and test.npz, and meta.json, which describes them."""
    from rs import params as parameters
    from rs.data import sources

    values = parameters.section(parameters.read(params), f"datasets.{name}")
    sources.settings(values, f"datasets.{name}", source, root).prepare(name, out)


if __name__ == "__main__":
    run(main)
