"""Turn a raw data set into the files that training and certification read."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import ParamsFile, folder_option
from rs.runtime.progress import say


def main(
    name: Annotated[str, typer.Argument(help="Data set: a key of datasets in --params.")],
    out: Annotated[Path, folder_option("Folder to write.")],
    params: ParamsFile = Path("params.yaml"),
    source: Annotated[
        str | None, typer.Option(help="torchvision, parquet or folder; default: from --params.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the raw data; default: from --params.")
    ] = None,
) -> None:
    """Turn a raw data set into the files that training and certification read.

    The files are train.npz and test.npz with images and labels, and meta.json, which describes
    them.

    Example:
        rs prepare digits --out data/digits
        rs prepare cifar10 --source parquet --root downloads/cifar10 \\
            --out data/cifar10
    """
    from rs import params as parameters
    from rs.data import sources
    from rs.data.meta import data_set_text, read_meta

    values = parameters.section(parameters.read_params(params), f"datasets.{name}")
    sources.settings(values, f"datasets.{name}", source, root).prepare(name, out)
    meta = read_meta(out)
    images = " and ".join(f"{size:,} {split}" for split, size in meta.sizes.items())
    say(f"{images} images of {data_set_text(name, meta.classes, meta.shape)}")
    say(f"data set in {out}")
