"""Certify one model, from files to files: a row for each test image, a sidecar, and the seconds of each image."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs import params
from rs.certification.forecast import LONG, forecast, is_worth_measuring
from rs.certification.inference import members_of
from rs.certification.load import Classifier, load
from rs.certification.quantize import identity_of
from rs.data import images as data
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint, processes
from rs.runtime.device import limit_threads
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import watched
from rs.smoothing.settings import CertificationSettings, Draws, Stop
from rs.statistics.certificate import ABSTAIN, UNLABELLED, Certificate, draws_at_most, radii_asked, round_down
from rs.statistics.radius import cap, votes_needed
from rs.statistics.sequential import Decider
from rs.storage import certificate_rows
from rs.storage.row_writer import write_rows
from rs.study.subset import select, subset_name

if TYPE_CHECKING:  # half a second to import
    import pandas as pd

NO_RECIPE: dict[str, Any] = {
    "n0": 100,
    "n": 1_000,
    "alpha": 0.001,
    "seed": 0,
    "subset": "all",
    "precision": "float32",
    "engine": "plain",
    "shortcut": False,
}
"""The section ``certify`` where there are no parameters; the rest are the defaults of the settings."""

STOPS = ("at_radius", "tolerance", "acr_error")
"""Settings of ``certify.stop`` that have an option of ``rs certify``."""

MODULE = "rs/certification/certify_model.py"
"""Whose code rows depend on."""


def certification_settings(
    values: dict[str, Any], dataset: str, overrides: dict[str, Any] | None = None
) -> CertificationSettings:
    """Read ``recipes.DATASET.certify``.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        overrides: Values to use instead of the recipe's, where they are not ``None``: those of options of these names.
    Raises:
        InputError: If a value is missing, unknown or out of range.
    """
    where = f"recipes.{dataset}.certify"
    merged, origins = params.merge(values, *params.layers(where))
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    merged, origins = merged | given, origins | {key: f"--{key}" for key in given}
    if merged.get("stop") is not None:
        options = {key: f"--{key.replace('_', '-')}" for key in STOPS if "stop" in given}
        merged["stop"] = params.validate(Stop, merged["stop"], f"{where}.stop", options)
    settings = params.validate(CertificationSettings, merged, where, origins)
    subset_name(settings.subset)
    return settings


def certify_model(
    model: str,
    folder: Path,
    settings: CertificationSettings,
    *,
    sigma: float | None,
    device: torch.device,
    batch: int | None,
    out: Path | None,
    split: str = "test",
) -> None:
    """Certify a model on images of a data set; if that takes more than a minute, say so on stderr first.

    Args:
        model: A model folder, the ``*.json`` of an ensemble, or ``module:function`` that returns an ``nn.Module``.
        folder: The prepared data set.
        settings: How to certify.
        sigma: Noise of the certificate, in pixels of [0, 1]; ``None`` takes that of the model.
        device: Where the model runs.
        batch: Noisy images evaluated at once; chosen if ``None``.
        out: The row file, ``*.tsv``; ``None`` prints how long it will take, and does nothing else.
        split: Whose images: "test", "validation" or "train".
    Raises:
        InputError: If the model does not fit the images, or ``out`` holds something else.
    """
    images = data.load_images(folder, split)
    base = load(model, images.meta)
    warn_of_radii_out_of_reach(settings, base.noise_std(sigma))
    certify_split(base, images, settings, sigma=sigma, device=device, batch=batch, out=out, training=folder)


def certify_split(
    base: Classifier,
    images: Images,
    settings: CertificationSettings,
    *,
    sigma: float | None,
    device: torch.device,
    batch: int | None,
    out: Path | None,
    training: Path | None = None,
) -> None:
    """Certify a classifier on images that are loaded already; see :func:`certify_model`.

    Args:
        training: The prepared data set that quantised networks are calibrated on, where none lies beside the model.
    Raises:
        InputError: If ``out`` holds something else, or a shortcut is to be taken without labels.
    """
    limit_threads(images.meta.shape)
    if settings.shortcut and bool((images.labels == UNLABELLED).any()):
        raise InputError(f"shortcut must be false for images without labels, as those of {images.meta.name} are")
    classifier = base.smooth(
        sigma,
        device=device,
        noise=settings.noise,
        precision=settings.precision,
        engine=settings.engine,
        batch=batch,
        calibration=training,
    )
    indices = select(len(images), settings.subset)
    if out is None or not out.exists():
        x, at_most = images.pixels(int(indices[0])).to(device), settings.shortcut or settings.stop is not None
        say_how_long(classifier, x, len(indices), settings.draws, at_most, dry_run=out is None)
    if out is None:
        return
    identity = {"model": base.name, "classifier": model_fingerprint(base.module)}
    identity |= {"sources": base.sources} if base.sources else {}
    identity |= {"scope": base.scope}
    identity |= row_identity(images, settings, classifier.sigma, device, classifier.engine, MODULE)
    identity |= identity_of([classifier.base])
    certify_images(classifier, images, indices, settings, device, identity, out)


def say_how_long(
    classifier: SmoothedClassifier, x: Tensor, images: int, draws: Draws, at_most: bool = False, dry_run: bool = False
) -> None:
    """Print how long it will take: on stderr if that is long, or on stdout if nothing else is wanted."""
    if not (dry_run or is_worth_measuring(classifier, x, images, draws)):
        return
    expected = forecast(classifier, x, images, draws, at_most)
    if processes.rank_and_world_size()[0] == 0 and (dry_run or expected.seconds > LONG):
        print(expected, file=sys.stdout if dry_run else sys.stderr)


def certify_images(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: CertificationSettings,
    device: torch.device,
    identity: dict[str, Any],
    out: Path,
) -> None:
    """Certify images one after the other, and write their rows, the sidecar and the seconds of each image.

    Args:
        classifier: The smoothed classifier, on ``device``.
        images: The split.
        indices: The images to certify.
        settings: How to certify.
        device: Where the classifier runs.
        identity: Everything that the rows depend on: the content of the sidecar. Its ``scope`` goes into the rows.
        out: The row file, ``*.tsv``.
    Raises:
        NotDeterministicError: As :func:`rs.smoothing.determinism.watched`; the rows are discarded.
        InputError: As :func:`rs.storage.row_writer.write_rows`.
    """
    warn_if_n_too_small(settings.n, settings.alpha)
    counted = [out] if getattr(classifier.base, "lazy", False) else []
    with write_rows({out: identity}, certificate_rows.seconds_of(out), indices, counted) as writer:
        for index in watched(writer.remaining, members_of(classifier.base), classifier.precision):
            x, label = images.pixels(index).to(device), int(images.labels[index])
            certificate = certify_image(classifier, x, index, label, settings)
            writer.write(index, {out: certificate.row(index, label, identity["scope"])})


def certify_image(
    classifier: SmoothedClassifier, x: Tensor, index: int, label: int, settings: CertificationSettings
) -> Certificate:
    """Certify one image, with n draws or, with ``settings.stop``, with as many as the question needs.

    Args:
        classifier: The smoothed classifier.
        x: The image, shape (C, H, W), in [0, 1], on the device of the classifier.
        index: Number of the image, which keys its noise.
        label: Its class, for ``settings.shortcut``.
        settings: How to certify.
    """
    keys, expected = {"seed": settings.seed, "index": index}, label if settings.shortcut else None
    if settings.stop is None:
        return classifier.certify(x, settings.n0, settings.n, settings.alpha, label=expected, **keys)
    run = settings.stop.run(classifier.sigma, settings.alpha, settings.n)
    return classifier.certify_until(x, settings.n0, run, label=expected, **keys)


def row_identity(
    images: Images, settings: CertificationSettings, sigma: float, device: torch.device, engine: str, module: str
) -> dict[str, Any]:
    """Return what rows depend on apart from the classifier, for their sidecar.

    Args:
        images: The split.
        settings: How to certify.
        sigma: Noise of the certificate, in pixels of [0, 1].
        device: Where the classifier runs.
        engine: The engine that runs, which may differ from ``settings.engine``.
        module: Path of the module that makes the rows, whose code is fingerprinted.
    """
    return {
        "dataset": images.meta.name,
        "classes": len(images.meta.classes),
        "images": images.fingerprint,
        "sigma": sigma,
        **asdict(settings),
        "engine": engine,
        "subset": subset_name(settings.subset),
        "device": device.type,
        "arithmetic": arithmetic.current(),
        "rows": len(select(len(images), settings.subset)),
        "code": code_fingerprint.code_hash(module),
        "versions": checkpoint.library_versions(),
    }


def warn_if_n_too_small(n: int, alpha: float) -> None:
    """Warn on stderr if ``n`` draws can never certify anything at ``alpha``."""
    if votes_needed(n, alpha) is None:
        least = next(more for more in count(n + 1) if votes_needed(more, alpha) is not None)
        print(
            f"warning: n = {n} draws can never certify at alpha = {alpha}: even a unanimous vote abstains; "
            f"give n of at least {least}",
            file=sys.stderr,
        )


def warn_of_radii_out_of_reach(settings: CertificationSettings, sigma: float) -> None:
    """Warn on stderr of radii that are asked for and that no votes can certify.

    They are no mistake in a recipe, whose radii are those of several noise levels.

    Raises:
        InputError: If no radius can be certified.
    """
    if settings.stop is None or settings.stop.at_radius is None:
        return
    run = settings.stop.run(sigma, settings.alpha, settings.n)
    assert isinstance(run, Decider)  # by at_radius
    if never := run.radii[run.open_to :]:
        print(
            f"warning: radius {', '.join(f'{one:g}' for one in never)} cannot be certified: with n = {settings.n:,}, "
            f"alpha = {settings.alpha:g} and sigma = {sigma:g} no radius exceeds "
            f"{round_down(cap(settings.n, settings.alpha, sigma))}; take more draws or smaller radii",
            file=sys.stderr,
        )


def summary(rows: pd.DataFrame) -> str:
    """Summarize rows in one line, ACR with its error over images and clean accuracy, or in two if they stopped early.

    Rows that say only which radii are certified have no ACR, and one line; so do rows without labels.
    """
    if (rows["label"] == UNLABELLED).any():
        certified, radius = (rows["predict"] != ABSTAIN).sum(), rows["radius"].mean()
        return f"{certified:,} of {len(rows):,} images certified, mean radius {radius:.3f}; without labels no accuracy"
    from rs.statistics import metrics  # pandas, which the rows have loaded

    mode, images = metrics.mode_of(rows), f"{len(rows):,} images"
    scores = rows["radius"] * rows["correct"]
    error = f" ± {scores.sem():.3f}" if len(rows) > 1 else ""
    average = f"ACR {scores.mean():.3f}{error}, clean accuracy {rows['correct'].mean():.1%}, {images}"
    most = draws_at_most(mode)
    if most is None:
        return average
    draws, budget = (rows["n0"] + rows["n"]).mean(), int(rows["n0"].iloc[0]) + most
    radii = radii_asked(mode)
    at = "some radius" if radii is None else f"radius {', '.join(map(str, radii))}"
    accuracies = ", ".join(f"{share:.1%}" for share in metrics.certified_accuracy(rows, radii or (0.0,)))
    stopped = f"certified at {at}: {accuracies} of {images}; {draws:,.0f} of {budget:,} draws an image"
    return stopped if radii is not None else f"{stopped}\n{average}"
