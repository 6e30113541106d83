"""Certify one model, from files to files: a row for each test image, a sidecar, and the seconds of
each image.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs import params
from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import device_of
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint, processes
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.progress import duration, say
from rs.runtime.streams import Stream
from rs.smoothing import STOPPING_RULES
from rs.smoothing.classifier import SmoothedClassifier, default_batch
from rs.smoothing.determinism import watched
from rs.smoothing.inputs import warn_if_n_too_small
from rs.smoothing.settings import CertificationSettings, Draws, SmoothingOptions, Stop
from rs.statistics.certificate import UNLABELLED
from rs.storage import certificate_rows
from rs.storage.provenance import Provenance
from rs.storage.row_writer import write_rows
from rs.study.subset import select, share_of, subset_name

LONG = 60.0
"""Seconds above which a certification says beforehand how long it takes."""

MAX_UNTIMED_BATCHES = 20
"""Batches up to which a certification does not measure itself: that would take a tenth of its time
or more.
"""

MODULE = "rs/certification/certify_model.py"
"""Code that rows depend on."""


def certification_settings(
    values: dict[str, Any], dataset: str, overrides: dict[str, Any] | None = None
) -> CertificationSettings:
    """Read ``recipes.DATASET.certify``.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        overrides: Values to use instead of the recipe's, where they are not ``None``: those of
            options of these names.
    Raises:
        InputError: If a value is missing, unknown or out of range.
    """
    where = f"recipes.{dataset}.certify"
    merged, origins = params.merge(values, where)
    chosen = {key: value for key, value in (overrides or {}).items() if value is not None}
    merged, origins = merged | chosen, origins | {key: f"--{key}" for key in chosen}
    if merged.get("stop") is not None:
        options = {
            rule: f"--{rule.replace('_', '-')}" for rule in STOPPING_RULES if "stop" in chosen
        }
        merged["stop"] = params.validate(Stop, merged["stop"], f"{where}.stop", options)
    settings = params.validate(CertificationSettings, merged, where, origins)
    subset_name(settings.subset)
    return settings


def certify_model(
    base: Classifier,
    images: Images,
    settings: CertificationSettings,
    options: SmoothingOptions,
    *,
    out: Path,
    share: str | None = None,
    seconds: Path | None = None,
) -> None:
    """Certify a classifier on images; if that takes more than a minute, say so on stderr first.

    Args:
        base: The base classifier.
        images: The images.
        settings: How to certify; its noise, precision and engine are used.
        options: The rest of how the classifier is smoothed.
        out: The row file, ``*.tsv``.
        share: As for :func:`rs.study.subset.share_of`; ``None`` for all images.
        seconds: File for the seconds of each image; default: beside the rows.
    Raises:
        InputError: If ``out`` holds something else, no votes certify one of the radii asked for, or
            a shortcut is to be taken without labels.
    """
    limit_threads(images.meta.shape)
    if settings.shortcut and bool((images.labels == UNLABELLED).any()):
        raise InputError(
            f"shortcut must be false for images without labels, as those of {images.meta.name} are"
        )
    classifier, device = smooth(base, settings, options), options.device or device_of(base.module)
    if settings.stop is not None:
        settings.stop.run(
            classifier.sigma, settings.alpha, settings.n
        )  # refuses radii that no votes certify
    indices = select(len(images), settings.subset)
    there, chosen = (np.unique(labels).size for labels in (images.labels, images.labels[indices]))
    if 2 * chosen <= min(there, len(indices)) and processes.rank_and_world_size()[0] == 0:
        text = f"warning: the subset has only {chosen} of {there} classes; where images are in their order, take a stride"
        say(text, sys.stderr)
    indices = indices if share is None else share_of(indices, share)
    if not out.exists():
        say_how_long(
            classifier, images.pixels(int(indices[0])).to(device), len(indices), settings.draws
        )
    modules = [MODULE] if base.scope == "model" else [MODULE, code_fingerprint.RULES.as_posix()]
    provenance = replace(
        run_provenance(images, settings, classifier.sigma, device, classifier.engine, *modules),
        model=base.name,
        classifier=model_fingerprint(base.module),
        sources=base.sources,
        scope=base.scope,
        share=share,
        rows=len(indices),
        **quantized_identity([classifier.base]),
    )
    certify_images(classifier, images, indices, settings, device, provenance, out, seconds)


def smooth(
    base: Classifier, settings: CertificationSettings, options: SmoothingOptions
) -> SmoothedClassifier:
    """Smooth a base classifier with the noise, the precision and the engine of the settings."""
    options = replace(
        options, noise=settings.noise, precision=settings.precision, engine=settings.engine
    )
    return base.smooth(**vars(options))


def say_how_long(classifier: SmoothedClassifier, x: Tensor, images: int, draws: Draws) -> None:
    """Print on stderr how long all draws of a certification take, if that is long.

    One batch is timed, after another one to warm up.

    Args:
        classifier: The smoothed classifier.
        x: One of the images, on its device.
        images: How many there are.
        draws: Of each certificate.
    """
    batch, draws_an_image = classifier.batch or default_batch(x), draws.n0 + draws.n
    is_short = images * draws_an_image <= MAX_UNTIMED_BATCHES * batch
    if is_short or processes.rank_and_world_size()[0] > 0:
        return
    timed = min(batch, default_batch(x), max(draws.n0, draws.n))  # a larger batch is no faster
    classifier.votes(x, timed, draws.seed, Stream.ESTIMATE, 0)
    start = time.perf_counter()
    classifier.votes(x, timed, draws.seed, Stream.ESTIMATE, 0)
    rate = timed / (time.perf_counter() - start)
    seconds = images * draws_an_image / rate
    if seconds > LONG:
        print(
            f"{images:,} images of {draws_an_image:,} draws, {rate:,.1f} draws a second: about "
            f"{duration(seconds)} for "
            "all of them in one process",
            file=sys.stderr,
        )


def certify_images(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: CertificationSettings,
    device: torch.device,
    provenance: Provenance,
    out: Path,
    seconds: Path | None = None,
) -> None:
    """Certify images one after the other, and write their rows, the sidecar and the seconds of each
    image.

    Args:
        classifier: The smoothed classifier, on ``device``.
        images: The split.
        indices: The images to certify.
        settings: How to certify.
        device: Where the classifier runs.
        provenance: Everything that the rows depend on, for the sidecar. Its ``scope`` goes into
            the rows.
        out: The row file, ``*.tsv``.
        seconds: As for :func:`certify_model`.
    Raises:
        NotDeterministicError: As :func:`rs.smoothing.determinism.watched`; the rows are discarded.
        InputError: As :func:`rs.storage.row_writer.write_rows`.
    """
    if settings.stop is not None:  # ``certify`` warns itself
        warn_if_n_too_small(settings.n, settings.alpha)
    cascades = [out] if getattr(classifier.base, "lazy", False) else []
    with write_rows(
        {out: provenance}, seconds or certificate_rows.seconds_of(out), indices, cascades
    ) as writer:
        for index in watched(writer.remaining, members_of(classifier.base), classifier.precision):
            x, label = images.pixels(index).to(device), int(images.labels[index])
            keys: dict[str, Any] = {"seed": settings.seed, "index": index}
            keys["label"] = label if settings.shortcut else None
            if settings.stop is None:
                certificate = classifier.certify(x, settings.n0, settings.n, settings.alpha, **keys)
            else:
                run = settings.stop.run(classifier.sigma, settings.alpha, settings.n)
                certificate = classifier.certify_until(x, settings.n0, run, **keys)
            writer.write(index, {out: certificate.row(index, label, str(provenance.scope))})


def run_provenance(
    images: Images,
    settings: CertificationSettings,
    sigma: float,
    device: torch.device,
    engine: str,
    *modules: str,
) -> Provenance:
    """Return what rows depend on apart from the classifier.

    Args:
        images: The split.
        settings: How to certify.
        sigma: Noise of the certificate, in pixels of [0, 1].
        device: Where the classifier runs.
        engine: The engine that runs, which may differ from ``settings.engine``.
        modules: Paths of the modules that make the rows, whose code is fingerprinted.
    """
    changed = {
        "precision": precision_on(device, settings.precision),
        "engine": engine,
        "subset": subset_name(settings.subset),
    }
    return Provenance(
        dataset=images.meta.name,
        classes=len(images.meta.classes),
        images=images.fingerprint,
        sigma=sigma,
        split_size=len(images),
        device=device.type,
        arithmetic=arithmetic.current(),
        rows=len(select(len(images), settings.subset)),
        code=code_fingerprint.code_hash(*modules),
        versions=checkpoint.library_versions(),
        **asdict(settings) | changed,
    )
