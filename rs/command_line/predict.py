"""Classify images of your own with a smoothed classifier, and certify them."""

import os
import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rs.command_line.certify import CertificateOptions
from rs.command_line.pictures import PictureOptions
from rs.command_line.shell import (
    DEFAULT_RECIPE,
    Batch,
    Device,
    Json,
    ModelOption,
    Network,
    Sigma,
    file_option,
    folder_option,
    reserve_stdout_for_answers,
)
from rs.errors import InputError
from rs.runtime.progress import say, say_next

if TYPE_CHECKING:
    from rs.certification.predict import Prediction

SAMPLES_SHOWN = 6
"""Noisy copies in the picture of a certificate."""


def main(
    model: ModelOption,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGES",
            help="Image files: 8-bit gray or RGB, of the size of the model's images.",
        ),
    ] = None,
    *,
    data: Annotated[Path | None, folder_option("Prepared data set of the model's classes.")] = None,
    sigma: Sigma = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the noise; default: a fresh one.")
    ] = None,
    network: Network = None,
    device: Device = "auto",
    batch: Batch = None,
    picture: Annotated[
        Path | None,
        file_option("Draw the certificate of one image (noisy copies, votes) to *.png or *.svg."),
    ] = None,
    as_json: Json = False,
    certificate: CertificateOptions,
    pictures: PictureOptions,
) -> None:
    """Classify images of your own with a smoothed classifier, and certify them.

    Print the class of each of IMAGES, its certified l2 radius in pixels of [0, 1] and its
    confidence.

    With --resize, --crop or --convert the radius is that of the converted image. A file that is not
    an image of the model's kind is skipped and named on stderr; the exit code is then 2.

    Example:
        rs predict photo.png --model models/digits/0.25/advmacer/0
        rs predict photo.png --model zoo:cifar10-advmacer-0.5 \\
            --picture certificate.svg
        rs predict photo.jpg --model models/digits/0.25/advmacer/0 \\
            --convert --resize 8 --crop 8
        rs predict *.png --model models/digits/0.25/advmacer/0 --n 10000 --json
        rs predict --images photos --model my_package.models:build --sigma 0.5
    """
    files = files or []
    _check_images(files, data, pictures)
    if picture is not None:
        if len(files) != 1:
            raise InputError(
                f"--picture must be for one image file, got {len(files)}; give one file, and no "
                "--images"
            )
        from rs.reporting.report import check_picture

        check_picture(picture)
    from rs.certification.certify_model import certification_settings
    from rs.certification.load import load
    from rs.certification.predict import predict_files
    from rs.data.meta import read_meta
    from rs.params import packaged
    from rs.runtime.device import resolve_device
    from rs.smoothing.settings import SmoothingOptions

    with reserve_stdout_for_answers() as stdout:
        base = load(model, network=network)
        if pictures.images is not None:
            base, files = pictures.list_files(base)
        elif data is not None:
            meta = read_meta(data)
            base = base.for_images(meta.classes, meta.shape, meta.name)
        else:
            base = pictures.classifier_of_files(files, base)
        # Anyone who knows the seed beforehand can choose the image after the noise.
        noise_seed = secrets.randbits(32) if seed is None else seed
        overrides = {**asdict(certificate), "seed": noise_seed, "shortcut": False, "subset": "all"}
        settings = certification_settings(packaged(), DEFAULT_RECIPE, overrides)
        options = SmoothingOptions(
            sigma=sigma, device=resolve_device(device), batch=batch, calibration=data
        )
        predictions = predict_files(
            files,
            base,
            settings,
            options,
            pictures.conversion,
            samples=0 if picture is None else SAMPLES_SHOWN,
        )
        for number, prediction in enumerate(predictions):
            if number == 0 and not as_json:  # after all inputs have been checked
                if seed is None:
                    source = f"from the operating system; --seed {noise_seed} repeats this run"
                    say(f"seed {noise_seed} ({source})", sys.stderr)
                _say_quantized(prediction)
            text = prediction.json() if as_json else prediction.text()
            say(text, stdout, whole=as_json)
            if picture is not None:
                draw_certificate(prediction, picture)
                say(f"picture in {picture}", sys.stderr)
    if not as_json:
        say_next(pictures.certify_command(model, network, sigma, data))


def _check_images(files: list[str], data: Path | None, pictures: PictureOptions) -> None:
    """Refuse image files with --images, neither of both, and options that contradict each other."""
    if bool(files) == (pictures.images is not None):
        number = "both" if files else "neither"
        raise InputError(f"give image files, or --images, a folder of pictures; got {number}")
    if files and all(map(os.path.isdir, files)):
        raise InputError(
            f"{files[0]} must be an image file, but it is a folder; give --images {files[0]}"
        )
    pictures.check_sources(data, has_files=True)
    if data is not None and pictures.classes is not None:
        raise InputError("give --classes, names of classes, or --data, which has them; got both")


def _say_quantized(prediction: "Prediction") -> None:
    """Say which network in int8 was certified, if it was one."""
    provenance = prediction.provenance
    if "quantized" in provenance:
        images = f"{provenance['calibration']} calibration images"
        say(f"network {provenance['quantized']}, {images}", sys.stderr)


def draw_certificate(prediction: "Prediction", picture: Path) -> None:
    """Draw the certificate of an image into a file."""
    from rs.reporting.card import draw_card
    from rs.reporting.report import write_picture

    assert prediction.samples is not None  # as many as were asked for
    image, copies, votes = prediction.samples
    figure = draw_card(image, copies, votes, prediction.certificate, prediction.classes)
    write_picture(picture, figure)
