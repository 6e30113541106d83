"""Import the field's checkpoints, and merge rows from several machines."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import DataFolder, Force, check_sigma
from rs.errors import printable
from rs.models import Architecture, Normalisation


def import_model(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="checkpoint.pth.tar, or MACER's EPOCH.pth.")],
    architecture: Annotated[Architecture, typer.Option(help="Architecture of the network.")],
    sigma: Annotated[float, typer.Option(callback=check_sigma, help="Noise std of its training, in pixels of [0, 1].")],
    normalisation: Annotated[
        Normalisation, typer.Option(help="First layer: mean-std (Cohen, Jeong), centre (Salman) or none (MACER).")
    ],
    data: DataFolder,
    out: Annotated[Path, typer.Option(file_okay=False, help="Model folder to write.")],
    force: Force = False,
) -> None:
    """Turn a published checkpoint into a model folder, which every command takes.

    Nothing in the checkpoint is executed.

    Example:
        rs import checkpoint.pth.tar --architecture resnet110 --sigma 0.5 \\
            --normalisation mean-std --data data/cifar10 --out models/cohen
    """
    from rs.data.prepared import read_meta
    from rs.models.published_checkpoints import import_checkpoint

    meta = read_meta(data)
    import_checkpoint(checkpoint, meta, architecture, normalisation, sigma, out, force)
    print(
        printable(f"{architecture} for {meta.name}, sigma = {sigma:g}, normalisation {normalisation}; model in {out}")
    )


def merge_rows(
    shares: Annotated[
        list[Path], typer.Argument(metavar="SHARES", exists=True, dir_okay=False, help="Rows of all shares, *.tsv.")
    ],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Row file to write, *.tsv.")],
) -> None:
    """Merge the rows of rs certify --share into those of one certification, byte for byte.

    Example:
        rs merge share-1.tsv share-2.tsv --out rows.tsv
    """
    from rs.storage.row_writer import merge_shares

    images = merge_shares(shares, out)
    print(printable(f"{images:,} images of {len(shares)} shares; rows in {out}"))
