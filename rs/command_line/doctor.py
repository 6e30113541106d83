"""Look for common mistakes in a classifier, and say what this machine can do."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.pictures import Classes, Convert, Crop, Images, Resize, check_sources, pictures
from rs.command_line.shell import Device, Network, Sigma

EXAMPLE = """\
rs doctor
rs doctor models/digits/0.25/advmacer/0 --data data/digits
rs doctor my_package.models:build --images photos --sigma 0.5"""


def main(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Model folder, ensemble *.json, or module:function; without it, the machine alone."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(file_okay=False, help="Prepared data set to test the model on.")] = None,
    split: Annotated[str | None, typer.Option(help="Split to use: train, test or validation; default: test.")] = None,
    images: Images = None,
    classes: Classes = None,
    resize: Resize = None,
    crop: Crop = None,
    convert: Convert = False,
    count: Annotated[int, typer.Option(min=20, help="Number of images to use, evenly spread.")] = 200,
    sigma: Sigma = None,
    network: Network = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what this machine can do, and what seems wrong with MODEL; exit code 1 if there is a fault.

    Images with labels tell most: of a prepared data set (--data), or in a folder of one subfolder a class (--images).
    """
    from rs.errors import InputError, printable
    from rs.runtime.device import device_named
    from rs.runtime.machine import describe_machine, warnings

    if model is None and (data is not None or images is not None):
        raise InputError("give MODEL, which the images are for: a model folder, ensemble *.json, or module:function")
    if model is None and sigma is not None:
        raise InputError("give MODEL, which --sigma is for: a model folder, ensemble *.json, or module:function")
    check_sources(data, images, classes, resize, crop, convert)
    if split is not None and data is None:
        raise InputError(f"--split {split} is for --data, which is not given; give both, or leave it out")
    place = device_named(device)
    machine, slow = describe_machine(place), warnings(place)
    found, tried = [], ""
    if model is not None:
        from rs.certification.doctor import diagnose
        from rs.certification.load import load
        from rs.data.images import load_images
        from rs.data.pictures import Conversion

        shown = None if data is None else load_images(data, split or "test")
        with redirect_stdout(sys.stderr):  # what the model prints is no part of the answer
            if images is not None:
                base, shown = pictures(images, classes, load(model, network=network), Conversion(resize, crop, convert))
            else:
                base = load(model, None if shown is None else shown.meta, network)
            found = diagnose(base, shown, sigma, place, count)
        tried = "" if shown is None else f" on {min(count, len(shown)):,} images"
    if as_json:
        findings = [finding._asdict() for finding in found]
        print(json.dumps({"machine": machine, "warnings": slow, "model": model, "findings": findings}))
    else:
        for key, value in machine.items():
            print(f"{key:10}{value}")
        for text in slow:
            print(f"warning: {text}")
        for finding in found:
            print(printable(f"{finding.level}: {finding.text}"))
        if model is not None and not found:
            print(f"nothing was found wrong with {model}{tried}")
    sys.exit(any(finding.level == "fault" for finding in found))
