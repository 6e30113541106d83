"""Turn a checkpoint published by the field into a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import DataFolder, Force


def main(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="checkpoint.pth.tar, or MACER's EPOCH.pth.")],
    architecture: Annotated[str, typer.Option(help="A key of rs.models.architectures.ARCHITECTURES.")],
    sigma: Annotated[float, typer.Option(help="Noise it was trained with, in pixels of [0, 1].")],
    normalisation: Annotated[
        str, typer.Option(help="First layer: mean-std (Cohen, Jeong), centre (Salman's CIFAR-10) or none (MACER).")
    ],
    data: DataFolder,
    out: Annotated[Path, typer.Option(file_okay=False, help="Model folder to write.")],
    force: Force = False,
) -> None:
    """Import CHECKPOINT, without executing anything in it; then certify it like any model."""
    from typing import cast, get_args

    from rs.data.format import read_meta
    from rs.errors import InputError
    from rs.models.published_checkpoints import Normalisation, import_checkpoint

    if normalisation not in get_args(Normalisation):
        raise InputError(f"--normalisation must be one of {', '.join(get_args(Normalisation))}; got {normalisation!r}")
    import_checkpoint(checkpoint, read_meta(data), architecture, cast(Normalisation, normalisation), sigma, out, force)
