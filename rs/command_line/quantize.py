"""Quantize a model to int8, calibrated on noisy training images."""

from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.pictures import PictureOptions
from rs.command_line.shell import Force, Network, PreparedData
from rs.errors import InputError
from rs.runtime.progress import say


def main(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model folder, or ensemble *.json for its members."),
    ],
    *,
    data: PreparedData = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of calibration images; default: 300.")
    ] = None,
    network: Network = None,
    force: Force = False,
    pictures: PictureOptions,
) -> None:
    """Quantize a model to int8, calibrated on noisy training images.

    Write quantized.xml, .bin and .json next to the weights of MODEL. The engine "quantized" then
    runs them. Pictures of --images need no labels.

    Example:
        rs quantize models/mine --data data/digits
        rs quantize models/mine --images photos
        rs quantize ensembles/digits/0.25/advmacer-0-1.average.json \\
            --data data/digits --count 1000
    """
    from rs.certification.inference import members_of
    from rs.certification.load import load
    from rs.certification.quantize import (
        CALIBRATION_IMAGES,
        CARD,
        quantize,
        write_quantized,
    )
    from rs.data.images import load_images
    from rs.models.zoo import check_may_write
    from rs.smoothing.user_networks import is_importable
    from rs.storage import files

    pictures.check_sources(data, required=True)
    if is_importable(model):
        raise InputError(
            f"MODEL must be a model folder or an ensemble *.json, got {model}; a function has no "
            "folder"
        )
    if data is None:
        classifier, training = pictures.load(load(model, network=network), data)
    else:
        training = load_images(data, "train")
        classifier = load(model, training.meta, network)
    assert classifier.sigma is not None  # every model on disk has one
    folders = [Path(folder) for folder in classifier.folders]
    count = count or CALIBRATION_IMAGES
    for folder in folders:
        check_may_write(folder)
        files.check_output(folder / CARD, "a quantized network", option="MODEL", force=force)
    for folder, member in zip(folders, members_of(classifier.module), strict=True):
        quantized = quantize(member, training, classifier.sigma, count)
        write_quantized(folder, quantized)
        used = min(count, len(training))
        say(
            f"{folder}/quantized.*: int8, {used:,} calibration images, network "
            f"{quantized.card.network}"
        )
