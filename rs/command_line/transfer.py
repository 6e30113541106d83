"""Certify a changed model by the rows of the one that it was made from."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line import shell
from rs.command_line.pictures import PictureOptions
from rs.models import InferenceEngine, Precision
from rs.runtime.arithmetic import set_arithmetic
from rs.runtime.progress import say
from rs.storage.files import json_values


def main(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", exists=True, dir_okay=False, help="Rows of the first model.")],
    source: Annotated[str, typer.Option("--from", metavar="MODEL", help="The first model, which the rows are of.")],
    target: Annotated[str, typer.Option("--to", metavar="MODEL", help="The changed model, which is certified.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Row file of the changed model, *.tsv.")],
    *,
    n: Annotated[int, typer.Option(help="Number of draws that compare the two models.")] = 1000,
    data: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of the prepared data set.")] = None,
    network: shell.Network = None,
    device: shell.Device = "auto",
    precision: Annotated[Precision, typer.Option(help="Precision of the changed model.")] = "float32",
    engine: Annotated[InferenceEngine, typer.Option(help="How the changed model runs; quantized: in int8.")] = "plain",
    batch: shell.Batch = None,
    pictures: PictureOptions,
) -> None:
    """Certify a changed model by the rows of the one that it was made from.

    The changed model is an int8, fine-tuned or pruned one. Few draws bound how often it loses the votes of the first
    model. The first model must run on the machine that certified it.

    Example:
        rs transfer rows.tsv --from models/digits/0.25/advmacer/0 \\
            --to models/digits/0.25/advmacer/0 --engine quantized \\
            --data data/digits --out int8.tsv
    """
    pictures.check_sources(data, required=True)
    set_arithmetic(json_values(rows.with_suffix(".json")).get("arithmetic", "native"), f"the arithmetic of {rows}")
    from rs.certification.load import load
    from rs.certification.transfer import transfer_rows
    from rs.runtime.device import device_named
    from rs.smoothing.settings import SmoothingOptions

    first, images = pictures.load(load(source, network=network), data)
    second = load(target, network=network).for_images(first.classes, first.shape)
    options = SmoothingOptions(
        device=device_named(device), precision=precision, engine=engine, batch=batch, calibration=data
    )
    transfer_rows(rows, first, second, images, n, options, out=out)
    say(f"rows in {out}")
