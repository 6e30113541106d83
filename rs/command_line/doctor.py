"""Look for common mistakes in a classifier."""

from typing import Annotated

import typer

from rs.command_line.pictures import PictureOptions
from rs.command_line.shell import (
    Device,
    ModelArgument,
    Network,
    PreparedData,
    Sigma,
    reserve_stdout_for_answers,
)


def main(
    model: ModelArgument,
    *,
    data: PreparedData = None,
    count: Annotated[
        int, typer.Option(min=20, help="Number of images to use, evenly spread.")
    ] = 200,
    sigma: Sigma = None,
    network: Network = None,
    device: Device = "auto",
    pictures: PictureOptions,
) -> None:
    """Look for common mistakes in a classifier.

    If there is a fault, the exit code is 1. Images with labels reveal most: give a prepared data
    set (--data), or a folder with one subfolder per class (--images).

    Example:
        rs doctor models/digits/0.25/advmacer/0 --data data/digits
        rs doctor my_package.models:build --images photos --sigma 0.5
    """
    pictures.check_sources(data)
    from rs.certification.doctor import diagnose
    from rs.certification.load import load
    from rs.runtime.device import resolve_device
    from rs.runtime.progress import say, say_next

    with reserve_stdout_for_answers():
        base = load(model, network=network)
        images = None
        if data is not None or pictures.images is not None:
            base, images = pictures.load(base, data)
        findings = diagnose(base, images, sigma, resolve_device(device), count)
    for finding in findings:
        say(f"{finding.level}: {finding.text}")
    if all(finding.level in ("ok", "not tested") for finding in findings):
        say_next(pictures.certify_command(model, network, sigma, data))
    raise typer.Exit(int(any(finding.level == "fault" for finding in findings)))
