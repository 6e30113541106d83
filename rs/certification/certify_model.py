"""Certify one model: write one row per test image, and a sidecar."""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs import params, recipes
from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import device_of
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.processes import is_first_process
from rs.runtime.progress import duration, say
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import checking_determinism
from rs.smoothing.inputs import warn_if_n_too_small
from rs.smoothing.noise import BLOCK, default_batch
from rs.smoothing.settings import CertificationSettings, Draws, SmoothingOptions
from rs.statistics.certificate import UNLABELED
from rs.statistics.procedures.early import Stop
from rs.storage.certificate_rows import FILE
from rs.storage.provenance import Provenance
from rs.storage.row_writer import write_rows
from rs.study.subset import select, share_of, subset_name

LONG = 60.0
"""Seconds above which a certification says beforehand how long it takes."""

MAX_UNTIMED_BATCHES = 20
"""Batches up to which a certification is not timed: timing would take a tenth of it or more."""

MODULE = "rs/certification/certify_model.py"
"""Code that rows depend on."""


def certification_settings(
    values: dict[str, Any], dataset: str, overrides: dict[str, Any] | None = None
) -> CertificationSettings:
    """Read ``recipes.DATASET.certify``.

    Args:
        values: The parameters.
        dataset: Name of the recipe.
        overrides: Values of options, which replace those of the recipe unless they are ``None``.
    Raises:
        InputError: If a value is missing, unknown or out of range.
    """
    where = f"recipes.{dataset}.certify"
    merged, origins = recipes.merge(values, where)
    stop_key = f"{where}.stop"
    for key, value in (overrides or {}).items():
        if value is not None:
            merged[key] = value
            origins[key] = f"--{key}"
            if key == "stop":
                stop_key = "--at-radius"
    if merged.get("stop") is not None:
        merged["stop"] = params.validate(Stop, merged["stop"], stop_key)
    return params.validate(CertificationSettings, merged, where, origins)


def certify_model(
    base: Classifier,
    images: Images,
    settings: CertificationSettings,
    options: SmoothingOptions,
    *,
    out: Path,
    share: str | None = None,
    without_noise: bool = False,
) -> None:
    """Certify a classifier on images; if that exceeds a minute, say so on stderr first.

    Args:
        base: The base classifier.
        images: The images.
        settings: How to certify.
        options: Noise level, device and batch.
        out: The row file, ``*.tsv``.
        share: As for :func:`rs.study.subset.share_of`; ``None`` for all images.
        without_noise: Whether the sidecar states the accuracy of the base classifier without noise,
            if the images have labels.
    Raises:
        InputError: If ``out`` holds something else, no votes certify one of the radii asked for, or
            a shortcut is to be taken without labels.
    """
    limit_threads(images.meta.shape)
    has_labels = not bool((images.labels == UNLABELED).any())
    if settings.shortcut and not has_labels:
        raise InputError(
            f"shortcut must be false for images without labels, such as {images.meta.name}"
        )
    classifier = smooth(base, settings, options)
    device = options.device or device_of(base.module)
    settings.new_test(classifier.sigma)  # refuses radii that no votes certify
    indices = select(len(images), settings.subset)
    if is_first_process():
        warn_of_few_classes(images, indices)
        if base.fitted_to == images.fingerprint:
            say(
                f"warning: the weights of {base.name} were fitted to these images, so accuracies "
                "and radii do not carry over to new images; certify others",
                sys.stderr,
            )
    base_accuracy = None
    if without_noise and has_labels:
        base_accuracy = accuracy_without_noise(classifier, images, indices, device)
    if share is not None:
        indices = share_of(indices, share)
    if not out.exists():
        first_image = images.pixels(int(indices[0])).to(device)
        report_expected_time(classifier, first_image, len(indices), settings)
    modules = [MODULE]
    if base.scope != "model":
        modules.append(code_fingerprint.RULES.as_posix())
    provenance = replace(
        run_provenance(images, settings, classifier, device, *modules),
        model=base.name,
        classifier=model_fingerprint(base.module),
        sources=base.sources,
        probe=base.probe(device),
        scope=base.scope,
        share=share,
        base_accuracy=base_accuracy,
        rows=len(indices),
        **quantized_identity([classifier.base]),
    )
    certify_images(classifier, images, indices, settings, device, provenance, out)


def smooth(
    base: Classifier, settings: CertificationSettings, options: SmoothingOptions
) -> SmoothedClassifier:
    """Smooth a base classifier as settings and options say; see :meth:`Classifier.smooth`."""
    return base.smooth(
        options.sigma,
        device=options.device,
        noise=settings.noise,
        precision=settings.precision,
        engine=settings.engine,
        batch=options.batch,
        calibration=options.calibration,
    )


def accuracy_without_noise(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    device: torch.device,
) -> float:
    """Return the share of images whose class the base classifier finds without noise."""
    right = 0
    for index in indices:
        x = images.pixels(int(index)).to(device)
        right += classifier.base_class(x) == int(images.labels[index])
    return right / len(indices)


def warn_of_few_classes(images: Images, indices: NDArray[np.int64]) -> None:
    """Warn if a subset has at most half of the classes that it could have."""
    classes_in_split = np.unique(images.labels).size
    classes_in_subset = np.unique(images.labels[indices]).size
    if 2 * classes_in_subset <= min(classes_in_split, len(indices)):
        say(
            f"warning: the subset has only {classes_in_subset} of {classes_in_split} classes; "
            "if images are sorted by class, use a stride",
            sys.stderr,
        )


def report_expected_time(
    classifier: SmoothedClassifier,
    x: Tensor,
    images: int,
    settings: CertificationSettings | Draws,
) -> None:
    """Print on stderr how long all samples of the images take, if that exceeds a minute.

    One batch is timed, after another one to warm up.

    Args:
        classifier: The smoothed classifier.
        x: One of the images, on its device.
        images: Number of images.
        settings: How many samples each takes.
    """
    batch = max(classifier.batch or default_batch(x), BLOCK)  # a block of noise is drawn at once
    draws_per_image = settings.n0 + settings.n
    is_short = images * draws_per_image <= MAX_UNTIMED_BATCHES * batch
    if is_short or not is_first_process():
        return
    # a larger batch is not faster
    timed = min(batch, max(default_batch(x), BLOCK), max(settings.n0, settings.n))
    classifier.votes(x, timed, settings.seed, Stream.ESTIMATE, 0)
    start = time.perf_counter()
    classifier.votes(x, timed, settings.seed, Stream.ESTIMATE, 0)
    rate = timed / (time.perf_counter() - start)
    seconds = images * draws_per_image / rate
    if seconds > LONG:
        samples = f"{draws_per_image:,} samples per image, {rate:,.1f} per second"
        say(f"about {duration(seconds)} for {images:,} images ({samples})", sys.stderr)


def certify_images(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: CertificationSettings,
    device: torch.device,
    provenance: Provenance,
    out: Path,
) -> None:
    """Certify images one by one, and write their rows and the sidecar.

    Args:
        classifier: The smoothed classifier, on ``device``.
        images: The split.
        indices: The images to certify.
        settings: How to certify.
        device: Where the classifier runs.
        provenance: Everything that the rows depend on, for the sidecar. Its ``scope`` goes into
            the rows.
        out: The row file, ``*.tsv``.
    Raises:
        NotDeterministicError: As :func:`rs.smoothing.determinism.checking_determinism`; the rows
            are discarded.
        InputError: As :func:`rs.storage.row_writer.write_rows`.
    """
    warn_if_n_too_small(settings.n, settings.alpha)
    networks = members_of(classifier.base)
    with write_rows({out: provenance}, indices) as writer:
        for index in checking_determinism(writer.remaining, networks, classifier.precision):
            label = int(images.labels[index])
            certificate = classifier.certify_until(
                images.pixels(index).to(device),
                settings.n0,
                settings.new_test(classifier.sigma),
                seed=settings.seed,
                index=index,
                label=label if settings.shortcut else None,
            )
            row = certificate.row(index, label, str(provenance.scope))
            if images.files:
                row[FILE] = images.files[index]
            writer.write(index, {out: row})


def run_provenance(
    images: Images,
    settings: CertificationSettings,
    classifier: SmoothedClassifier,
    device: torch.device,
    *modules: str,
) -> Provenance:
    """Return what rows depend on apart from the base classifier.

    Args:
        images: The split.
        settings: How to certify.
        classifier: The smoothed classifier; its engine may differ from ``settings.engine``.
        device: Where the classifier runs.
        modules: Paths of the modules that make the rows, whose code is fingerprinted.
    """
    changed = {
        "precision": precision_on(device, settings.precision),
        "engine": classifier.engine,
        "subset": subset_name(settings.subset),
    }
    pictures = None
    if images.files:
        pictures = hashlib.sha256("\n".join(images.files).encode()).hexdigest()
    return Provenance(
        dataset=images.meta.name,
        classes=len(images.meta.classes),
        images=images.fingerprint,
        pictures=pictures,
        sigma=classifier.sigma,
        split_size=len(images),
        device=device.type,
        arithmetic=arithmetic.current(),
        rows=len(select(len(images), settings.subset)),
        code=code_fingerprint.code_hash(*modules),
        versions=checkpoint.library_versions(),
        **asdict(settings) | changed,
    )
