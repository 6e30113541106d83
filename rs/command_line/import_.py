"""Turn a checkpoint published by the field into a model folder."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rs.command_line.shell import DataFolder, Force, check_sigma

EXAMPLE = """\
rs import checkpoint.pth.tar --architecture resnet110 --sigma 0.5 \\
    --normalisation mean-std --data data/cifar10 --out models/cohen"""


def main(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="checkpoint.pth.tar, or MACER's EPOCH.pth.")],
    architecture: Annotated[
        Literal["resnet110", "resnet20", "resnet8", "resnet50", "lenet", "smallnet"],
        typer.Option(help="Network of the checkpoint."),
    ],
    sigma: Annotated[float, typer.Option(callback=check_sigma, help="Noise it was trained with, in pixels of [0, 1].")],
    normalisation: Annotated[
        Literal["mean-std", "centre", "none"],
        typer.Option(help="First layer: mean-std (Cohen, Jeong), centre (Salman's CIFAR-10) or none (MACER)."),
    ],
    data: DataFolder,
    out: Annotated[Path, typer.Option(file_okay=False, help="Model folder to write.")],
    force: Force = False,
) -> None:
    """Import CHECKPOINT, without executing anything in it; then certify it like any model."""
    from rs.data.prepared import read_meta
    from rs.models.published_checkpoints import import_checkpoint

    meta = read_meta(data)
    import_checkpoint(checkpoint, meta, architecture, normalisation, sigma, out, force)
    print(f"{architecture} for {meta.name}, sigma = {sigma:g}, normalisation {normalisation}; model in {out}")
