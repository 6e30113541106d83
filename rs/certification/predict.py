"""Classify and certify the user's own images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rs.certification.certify_model import report_expected_time, smooth
from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.image_folder import as_tensor
from rs.data.pictures import Conversion, picture_with_notes
from rs.errors import InputError
from rs.models.backend import device_of
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.progress import progress, say
from rs.smoothing.determinism import checking_determinism
from rs.smoothing.inputs import warn_if_n_too_small
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.statistics.certificate import ABSTAIN, Certificate, round_down

CERTIFICATE_FIELDS = ("radius", "p_lower", "n0", "n", "alpha", "sigma", "noise")
ENGINE_FIELDS = ("precision", "quantized", "calibration")


class Samples(NamedTuple):
    """An image, and some of the noisy copies that certify it."""

    image: NDArray[np.float32]  # (C, H, W), in [0, 1]
    copies: NDArray[np.float32]  # (S, C, H, W)
    votes: list[int]  # the class of each copy


@dataclass(frozen=True)
class Prediction:
    """The certificate of one image, and how it was computed."""

    file: str
    classes: tuple[str, ...]  # their names; empty if they have none
    seed: int
    certificate: Certificate
    provenance: Mapping[str, Any]  # scope, device, precision, engine, conversion
    notes: tuple[str, ...] = ()  # what was lost when the file was read
    samples: Samples | None = None  # if they were asked for

    @property
    def name(self) -> str | None:
        """Name of the predicted class, or its number; ``None`` if the classifier abstains."""
        predict = self.certificate.predict
        if predict == ABSTAIN:
            return None
        return self.classes[predict] if self.classes else str(predict)

    def text(self) -> str:
        """Return one readable line: class, radius and confidence, both rounded down."""
        notes = list(self.notes)
        if "conversion" in self.provenance:
            notes.insert(0, f"of the image after conversion: {self.provenance['conversion']}")
        verdict = "abstains"
        if self.name is not None:
            name = f"class {self.certificate.predict}"
            if self.name != str(self.certificate.predict):
                name += f" ({self.name})"
            radius = round_down(self.certificate.radius)
            p_lower = round_down(self.certificate.p_lower)
            verdict = f"{name}, certified within l2 radius {radius}, p >= {p_lower}"
        return "; ".join([f"{self.file}: {verdict}", *notes])

    def json(self) -> str:
        """Return one JSON object on one line, with all votes and digits.

        ``class`` is null for an abstention.
        """
        certificate = self.certificate.to_dict()
        values = {
            "file": self.file,
            "predict": certificate["predict"],
            "class": self.name,
            **{name: certificate[name] for name in CERTIFICATE_FIELDS},
            "seed": self.seed,
            "counts0": certificate["counts0"],
            "counts": certificate["counts"],
            **self.provenance,
        }
        if self.notes:
            values["notes"] = self.notes
        return json.dumps(values, allow_nan=False)


def predict_files(
    files: Sequence[str],
    base: Classifier,
    settings: CertificationSettings,
    options: SmoothingOptions,
    conversion: Conversion,
    samples: int = 0,
) -> Iterator[Prediction]:
    """Classify and certify images one by one, and show the progress; skip files that do not fit.

    Args:
        files: Image files; the position of a file among them and the seed key its noise.
        base: The base classifier, with the classes and the shape of its images.
        settings: How to certify; anyone who chooses an image must not know the seed (see
            docs/method.md).
        options: Noise level, device and batch.
        conversion: How images are converted; the radius is then one around the converted image.
        samples: Number of noisy copies that each prediction keeps.
    Raises:
        NotDeterministicError: As :func:`rs.smoothing.determinism.checking_determinism`; no
            prediction before it counts.
        InputError: In the end, if files failed; each is named on stderr when it fails.
    """
    limit_threads(base.shape)
    warn_if_n_too_small(settings.n, settings.alpha)
    classifier = smooth(base, settings, options)
    device = options.device or device_of(base.module)
    provenance: dict[str, Any] = {
        "scope": base.scope,
        "device": device.type,
        "precision": precision_on(device, settings.precision),
        "engine": classifier.engine,
    }
    identity = quantized_identity([classifier.base])
    provenance |= {name: identity[name] for name in ENGINE_FIELDS if name in identity}
    if str(conversion):
        provenance["conversion"] = str(conversion)
    failed = 0
    networks = members_of(classifier.base)
    numbered: Iterable[tuple[int, str]] = enumerate(files)
    if len(files) > 1:  # for one image a bar is noise
        numbered = progress(numbered, len(files), "predict", always=False)
    for index, file in checking_determinism(numbered, networks, classifier.precision):
        try:
            pixels, notes = picture_with_notes(file, base.shape, conversion)
        except InputError as error:
            failed += 1
            say(f"skipped: {error}", sys.stderr)
            continue
        x = as_tensor(pixels).to(device)
        if index == failed:  # the first that can be read
            report_expected_time(classifier, x, len(files) - index, settings)
        test = settings.new_test(classifier.sigma)
        certificate = classifier.certify_until(
            x, settings.n0, test, seed=settings.seed, index=index
        )
        prediction = Prediction(file, base.classes, settings.seed, certificate, provenance, notes)
        if samples > 0:
            copies, votes = classifier.samples(x, samples, seed=settings.seed, index=index)
            shown = Samples(x.cpu().numpy(), copies.cpu().numpy(), votes)
            prediction = replace(prediction, samples=shown)
        yield prediction
    if failed:
        raise InputError(f"{failed} of {len(files)} images failed; correct the files named above")
