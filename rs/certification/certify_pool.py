"""Certify a pool, from files to files: every member and every ensemble, from one noise pass."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rs.certification.certify_model import run_provenance, smooth
from rs.certification.inference import members_of
from rs.certification.load import Classifier
from rs.certification.quantize import quantized_identity
from rs.data import images as data
from rs.data.prepared import Images
from rs.ensemble.base import Ensemble, LogitAverage, SoftmaxAverage
from rs.ensemble.declare import POOL, PoolSpec, read_pool, read_weights
from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
from rs.ensemble.spec import EnsembleSpec, first_of_each, load_members
from rs.models.fingerprint import model_fingerprint
from rs.params import NonNegativeCount, validated
from rs.runtime.code_fingerprint import RULES
from rs.runtime.device import limit_threads
from rs.runtime.processes import is_first_process
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import checking_determinism
from rs.smoothing.inputs import warn_if_n_too_small
from rs.smoothing.noise import BLOCK
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage import files
from rs.storage.provenance import MemberIdentity, Provenance
from rs.storage.row_writer import write_rows
from rs.study.layout import ALONE_FILE, model_name
from rs.study.subset import select

MODULE = "rs/certification/certify_pool.py"

TIMED_IMAGES = 16
"""Images whose certificates a cascade is timed on."""


@validated
class PoolSettings:
    """How to certify a pool; section ``recipes.DATASET.pool`` of params.yaml."""

    timed: NonNegativeCount  # samples on which each classifier alone is timed; 0 for none


def certify_pool(
    ensembles: Path,
    weights: Path,
    folder: Path,
    settings: PoolSettings,
    certification: CertificationSettings,
    options: SmoothingOptions,
    *,
    out: Path,
    times: Path,
) -> None:
    """Certify the members and ensembles of a pool on the test split of a data set.

    Args:
        ensembles: Folder that ``rs.ensemble.declare`` wrote.
        weights: Folder that ``rs.ensemble.fit_weights`` wrote.
        folder: The prepared data set.
        settings: How to certify a pool.
        certification: How to certify each classifier.
        options: Device and batch.
        out: Folder for the rows and sidecars.
        times: Folder for ``alone.csv``, the seconds of a certificate of each classifier alone,
            with the SHA-256 of the sidecar of its rows.
    Raises:
        InputError: If an input is missing or does not fit the others, or something else would be
            overwritten.
        NotDeterministicError: If a member is no one function of each image.
    """
    alone_path = times / ALONE_FILE
    device = options.device or torch.device("cpu")
    files.check_output(alone_path, "a file", option="--times")
    pool, specs = read_pool(ensembles, weights)
    images = data.load_images(folder, "test")
    limit_threads(images.meta.shape)
    models, _ = load_members(pool.members, pool.dataset, pool.sigma, ensembles / POOL, images.meta)
    indices = select(len(images), certification.subset)
    entries = pool_entries(pool, specs, models, ensembles, weights, indices.tolist())
    out.mkdir(parents=True, exist_ok=True)
    times.mkdir(parents=True, exist_ok=True)
    if not entries:
        return
    certification.check_takes_all_samples("certify.stop")
    pool_classifier = Classifier(
        name=str(ensembles),
        module=Ensemble(models, LogitAverage()),
        classes=tuple(images.meta.classes),
        shape=tuple(images.meta.shape),
        sigma=pool.sigma,
        folders=tuple(member.path for member in pool.members),
    )
    options = replace(options, device=device, calibration=folder)
    smoothed_pool = smooth(pool_classifier, certification, options)
    networks = members_of(smoothed_pool.base)
    run = run_provenance(images, certification, smoothed_pool, device, MODULE, RULES.as_posix())
    run = replace(run, sources=pool_classifier.sources)
    provenances = {}
    for name, entry in entries.items():
        voters = [networks[number] for number in entry.member_ids]
        provenance = replace(entry.provenance.joined(run), **quantized_identity(voters))
        provenances[out / f"{name}.tsv"] = provenance
    warn_if_n_too_small(certification.n, certification.alpha)
    members = _with_base(smoothed_pool, MemberLogits(networks))
    with write_rows(provenances, indices) as writer:
        for index in checking_determinism(writer.remaining, networks, smoothed_pool.precision):
            x = images.pixels(index).to(device)
            label = int(images.labels[index])
            noisy_pool = NoisyPool(members, x, certification.draws, index)
            certificates = noisy_pool.certify(entries, label if certification.shortcut else None)
            rows = {}
            for name, certificate in certificates.items():
                scope = str(entries[name].provenance.scope)
                rows[out / f"{name}.tsv"] = certificate.row(index, label, scope)
            writer.write(index, rows)
    if not is_first_process() or (writer.was_complete and alone_path.exists()):
        return
    seconds = []
    timed_names = []
    if settings.timed:
        timed_names = _timed_names(entries, specs)
    for name in timed_names:
        entry = entries[name].for_image(int(indices[0]))
        base = Ensemble([networks[number] for number in entry.member_ids], entry.rule)
        classifier = _with_base(smoothed_pool, base)
        taken = _seconds_alone(classifier, images, indices, device, certification, settings.timed)
        sidecar = files.sha256(out / f"{name}.json")
        seconds.append({"classifier": name, "seconds": taken, "sidecar": sidecar})
    files.write_csv(alone_path, ("classifier", "seconds", "sidecar"), seconds)


def _timed_names(entries: Mapping[str, PoolEntry], specs: Mapping[str, EnsembleSpec]) -> list[str]:
    """Return the members, and the first ensemble of each composition: other seeds take as long."""
    timed_specs = first_of_each(specs)
    return [name for name in entries if name not in specs or name in timed_specs]


def _with_base(smoothed: SmoothedClassifier, base: nn.Module) -> SmoothedClassifier:
    """Return another base classifier, smoothed and evaluated in the same way."""
    other = copy(smoothed)
    other.base = base
    return other


def _seconds_alone(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    device: torch.device,
    certification: CertificationSettings,
    draws: int,
) -> float:
    """Estimate the seconds of a certificate of one classifier alone, from those of ``draws``.

    A cascade takes another time on each image, and on a part of the samples: it is the mean of
    whole certificates of :data:`TIMED_IMAGES` images, evenly spread.
    """
    is_cascade = getattr(classifier.base, "lazy", False)
    timed = indices[:1]
    if is_cascade:
        timed = indices[:: math.ceil(len(indices) / TIMED_IMAGES)]
    pixels = {int(index): images.pixels(int(index)).to(device) for index in timed}
    draws = max(draws, classifier.batch or 0)  # a compiled network pads a smaller batch
    first = int(timed[0])
    classifier.votes(pixels[first], min(draws, BLOCK), certification.seed, Stream.ESTIMATE, first)
    start = time.perf_counter()
    for index, x in pixels.items():
        if is_cascade:
            test = certification.new_test(classifier.sigma)
            classifier.certify_until(
                x, certification.n0, test, seed=certification.seed, index=index
            )
        else:
            classifier.votes(x, draws, certification.seed, Stream.ESTIMATE, index)
    seconds = (time.perf_counter() - start) / len(pixels)
    if is_cascade:
        return seconds
    return seconds / draws * (certification.n0 + certification.n)


def pool_entries(
    pool: PoolSpec,
    specs: Mapping[str, EnsembleSpec],
    models: Sequence[nn.Module],
    ensembles: Path,
    weights: Path,
    indices: Sequence[int],
) -> dict[str, PoolEntry]:
    """Return the members of a pool and its ensembles, by the names of their row files.

    Args:
        pool, specs: What ``read_pool`` returns for the folders ``ensembles`` and ``weights``.
        models: The members, loaded.
        ensembles, weights: These folders.
        indices: The images to certify.
    Raises:
        InputError: If weights that were solved image by image are missing, for one of the images
            too, or damaged.
    """
    entries: dict[str, PoolEntry] = {}
    identities: list[MemberIdentity] = []
    for number, member in enumerate(pool.members):
        identity: MemberIdentity = {
            "method": member.method,
            "seed": member.seed,
            "classifier": model_fingerprint(models[number]),
        }
        identities.append(identity)
        provenance = Provenance(model=member.path, classifier=identity["classifier"], scope="model")
        name = model_name(member.method, member.seed)
        entries[name] = PoolEntry((number,), provenance=provenance)
    for slug, spec in specs.items():
        member_ids = tuple(pool.members.index(member) for member in spec.members)
        scope = spec.combination.scope
        folder = weights if spec.fitted else ensembles
        rule = spec.rule
        weights_by_image = None
        weights_hash = None
        if scope == "per-image":
            path = weights / f"{slug}.tsv"
            weights_by_image = read_weights(path, len(member_ids), indices)
            weights_hash = files.sha256(path)
            rule = SoftmaxAverage()
        ensemble = Ensemble([models[number] for number in member_ids], rule)
        provenance = Provenance(
            model=str(folder / f"{slug}.json"),
            weights=weights_hash,
            classifier=model_fingerprint(ensemble),
            members=[identities[number] for number in member_ids],
            scope=scope,
        )
        entries[slug] = PoolEntry(member_ids, rule, provenance, weights_by_image)
    return entries
