"""Classifying and certifying the user's own images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rs.certification.certify_model import say_how_long
from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.image_folder import as_tensor
from rs.data.pictures import Conversion, picture_with_notes
from rs.errors import InputError
from rs.models.backend import device_of
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.progress import progress
from rs.smoothing.determinism import watched
from rs.smoothing.inputs import check_draws, check_key
from rs.smoothing.settings import Draws, SmoothingOptions
from rs.statistics.certificate import ABSTAIN, Certificate, round_down


@dataclass(frozen=True)
class Prediction:
    """The certificate of one image, and how it was computed."""

    file: str
    classes: tuple[str, ...]  # their names; empty if nobody has said them
    seed: int
    certificate: Certificate
    provenance: Mapping[
        str, Any
    ]  # scope of the weights; device, precision, engine, quantised network, conversion
    notes: tuple[str, ...] = ()  # what of the file its pixels do not have

    @property
    def name(self) -> str | None:
        """Name of the predicted class, its number if classes have no names; ``None`` if the
        classifier abstains.
        """
        predict = self.certificate.predict
        if predict == ABSTAIN:
            return None
        return self.classes[predict] if self.classes else str(predict)

    def text(self) -> str:
        """Return one readable line: class, radius in pixels of [0, 1] and confidence, both rounded
        down.
        """
        conversion = self.provenance.get("conversion")
        of_what = f"; of the image after conversion: {conversion}" if conversion else ""
        of_what += "".join(f"; {note}" for note in self.notes)
        if self.name is None:
            return f"{self.file}: abstains{of_what}"
        radius, p_lower = round_down(self.certificate.radius), round_down(self.certificate.p_lower)
        name = self.name if self.classes else f"class {self.name}"
        return f"{self.file}: {name}, radius {radius}, p >= {p_lower}{of_what}"

    def json(self) -> str:
        """Return one JSON object on one line, with all votes and digits; ``class`` is null for an
        abstention.
        """
        certificate = self.certificate.to_dict()
        prediction = {"file": self.file, "predict": certificate["predict"], "class": self.name}
        values = {
            name: certificate[name]
            for name in ("radius", "p_lower", "n0", "n", "alpha", "sigma", "noise")
        }
        votes = {name: certificate[name] for name in ("counts0", "counts")}
        said = {**self.provenance, **({"notes": self.notes} if self.notes else {})}
        return json.dumps(
            {**prediction, **values, "seed": self.seed, **votes, **said}, allow_nan=False
        )


def predict_files(
    files: Sequence[str],
    base: Classifier,
    draws: Draws,
    options: SmoothingOptions,
    conversion: Conversion,
) -> Iterator[Prediction]:
    """Classify and certify images one after the other, passing over files that are no such images;
    show the progress.

    Args:
        files: Image files; the position of a file among them and the seed key its noise.
        base: The base classifier, with the classes and the shape of its images.
        draws: Of each certificate; anyone who chooses an image must not know the seed (see
            docs/method.md).
        options: How the base classifier is smoothed and runs, its device given.
        conversion: How images are converted; the radius is then one around the converted image.
    Raises:
        NotDeterministicError: As :func:`rs.smoothing.determinism.watched`; no prediction before it
            counts.
        InputError: If a number is invalid; or in the end, if files failed: names each of them.
    """
    limit_threads(base.shape)
    check_draws(torch.zeros(base.shape), draws.alpha, n0=draws.n0, n=draws.n)
    check_key(seed=draws.seed)
    classifier, device = base.smooth(**vars(options)), options.device or device_of(base.module)
    provenance = {
        "scope": base.scope,
        "device": device.type,
        "precision": precision_on(device, options.precision),
        "engine": classifier.engine,
    }
    identity = quantized_identity([classifier.base])
    provenance |= {
        name: identity[name]
        for name in ("precision", "quantized", "calibration")
        if name in identity
    }
    provenance |= {"conversion": str(conversion)} if str(conversion) else {}
    failed = []
    numbered = progress(enumerate(files), len(files), "predict", always=False)
    for index, file in watched(numbered, members_of(classifier.base), classifier.precision):
        try:
            pixels, notes = picture_with_notes(file, base.shape, conversion)
        except InputError as error:
            failed.append(str(error))
            continue
        x = as_tensor(pixels).to(device)
        if index == len(failed):  # the first that can be read
            say_how_long(classifier, x, len(files) - index, draws)
        certificate = classifier.certify(x, **vars(draws), index=index)
        yield Prediction(file, base.classes, draws.seed, certificate, provenance, notes)
    if failed:
        raise InputError(f"{len(failed)} of {len(files)} images failed: {' | '.join(failed)}")
