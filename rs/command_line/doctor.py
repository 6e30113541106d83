"""Look for common mistakes in a classifier, and say what this machine can do."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rs.command_line.shell import Device

EXAMPLE = """\
rs doctor
rs doctor models/digits/0.25/advmacer/0 --data data/digits"""


def main(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", help="Model folder, ensemble *.json, or module:function; without it, the machine alone."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(file_okay=False, help="Prepared data set whose images the classifier is tried on.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of these images: train, test or validation.")] = "test",
    count: Annotated[int, typer.Option("--images", min=20, help="How many of them, spread over the split.")] = 200,
    sigma: Annotated[
        float | None, typer.Option(help="Noise std in pixels of [0, 1]; default: the model's own.")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what this machine can do, and what seems wrong with MODEL; exit code 1 if a fault was found."""
    from rs.errors import InputError
    from rs.runtime.device import device_named
    from rs.runtime.machine import described, warnings

    place = device_named(device)
    machine, slow = described(place), warnings(place)
    found = []
    if model is not None:
        from rs.certification.examine import examine
        from rs.certification.load import load_classifier
        from rs.data import images

        if data is None:
            raise InputError("--data must name a prepared data set, with images for the classifier to be tried on")
        shown = images.load(data, split)
        found = examine(load_classifier(model, shown.meta), shown, sigma, place, count)
    if as_json:
        findings = [finding._asdict() for finding in found]
        print(json.dumps({"machine": machine, "warnings": slow, "model": model, "findings": findings}))
    else:
        for key, value in machine.items():
            print(f"{key:10}{value}")
        for text in slow:
            print(f"warning: {text}")
        for finding in found:
            print(f"{finding.level}: {finding.text}")
        if model is not None and not found:
            print(f"nothing was found wrong with {model}")
    sys.exit(any(finding.level == "fault" for finding in found))
