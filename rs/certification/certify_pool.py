"""Certify a pool, from files to files: every member and every ensemble, from one noise pass."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from rs.ensemble.base import Cascade, Ensemble, LogitAverage, SoftmaxAverage
from rs.ensemble.declare import POOL, PoolSpec, read_pool, read_weights
from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
from rs.ensemble.spec import EnsembleSpec, first_of_each, load_members
from rs.errors import InputError
from rs.models.fingerprint import model_fingerprint
from rs.params import NonNegativeCount, validated
from rs.runtime import processes
from rs.runtime.code_fingerprint import RULES
from rs.runtime.device import limit_threads
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import watched
from rs.smoothing.inputs import warn_if_n_too_small
from rs.smoothing.noise import BLOCK
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage import files
from rs.storage.provenance import MemberIdentity, Provenance
from rs.storage.row_writer import write_rows
from rs.study.layout import ALONE_FILE, model_name
from rs.study.subset import select

MODULE = "rs/certification/certify_pool.py"
STOPS_EARLY = "{} must be null where a pool is certified, which needs all n draws; or set members and ensembles to []"
TIMED_IMAGES = 16
"""Images whose certificates a cascade is timed on."""


@validated
class PoolSettings:
    """How to certify a pool; section ``recipes.DATASET.pool`` of params.yaml."""

    timed: NonNegativeCount  # draws on which each classifier alone is timed; 0 for none


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
        times: Folder for ``images.csv``, the seconds of each image in the one pass, and
            ``alone.csv``, the seconds of a certificate of each classifier alone, with the SHA-256
            of the sidecar of its rows.
    Raises:
        InputError: If an input is missing or does not fit the others, or something else would be
            overwritten.
        NotDeterministicError: If a member is no one function of each image.
    """
    alone, device = times / ALONE_FILE, options.device or torch.device("cpu")
    files.check_output(alone, "a file", option="--times")
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
    if certification.stop is not None:
        raise InputError(STOPS_EARLY.format("certify.stop"))
    whole = Classifier(
        name=str(ensembles),
        module=Ensemble(models, LogitAverage()),
        classes=tuple(images.meta.classes),
        shape=tuple(images.meta.shape),
        sigma=pool.sigma,
        folders=tuple(member.path for member in pool.members),
    )
    together = smooth(whole, certification, replace(options, device=device, calibration=folder))
    networks = members_of(together.base)
    run = run_provenance(
        images, certification, pool.sigma, device, together.engine, MODULE, RULES.as_posix()
    )
    run = replace(run, sources=whole.sources)
    outs = {}
    for name, entry in entries.items():
        quantized = quantized_identity([networks[k] for k in entry.member_ids])
        outs[out / f"{name}.tsv"] = replace(entry.provenance.joined(run), **quantized)
    warn_if_n_too_small(certification.n, certification.alpha)
    cascades = [
        out / f"{name}.tsv" for name, entry in entries.items() if isinstance(entry.rule, Cascade)
    ]
    members = _with_base(together, MemberLogits(networks))
    with write_rows(outs, times / "images.csv", indices, cascades) as writer:
        for index in watched(writer.remaining, networks, together.precision):
            x, label = images.pixels(index).to(device), int(images.labels[index])
            noisy = NoisyPool(members, x, certification.draws, index)
            certificates = noisy.certify(entries, label if certification.shortcut else None)
            rows = (
                certificates[name].row(index, label, str(entry.provenance.scope))
                for name, entry in entries.items()
            )
            writer.write(index, dict(zip(outs, rows, strict=True)))
    if processes.rank_and_world_size()[0] == 0 and not (writer.was_complete and alone.exists()):
        # ensembles of other seeds take as long as the first one
        firsts = first_of_each(specs, lambda declaration: (declaration.kind, declaration.key))
        timed = (
            [name for name in entries if name not in specs or name in firsts]
            if settings.timed
            else []
        )
        seconds = []
        for name in timed:
            entry = entries[name].for_image(int(indices[0]))
            base = Ensemble([networks[k] for k in entry.member_ids], entry.rule)
            classifier = _with_base(together, base)
            taken = _seconds_alone(
                classifier, images, indices, device, certification, settings.timed
            )
            sidecar = files.sha256(out / f"{name}.json")
            seconds.append({"classifier": name, "seconds": taken, "sidecar": sidecar})
        files.write_csv(alone, ("classifier", "seconds", "sidecar"), seconds)


def _with_base(smoothed: SmoothedClassifier, base: nn.Module) -> SmoothedClassifier:
    """Return another base classifier, smoothed and evaluated in the same way."""
    precision, batch, noise = smoothed.precision, smoothed.batch, smoothed.noise
    return SmoothedClassifier(
        base, smoothed.num_classes, smoothed.sigma, precision=precision, batch=batch, noise=noise
    )


def _seconds_alone(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    device: torch.device,
    certification: CertificationSettings,
    draws: int,
) -> float:
    """Estimate the seconds of a certificate of one classifier alone, from the time of ``draws``
    draws.

    A cascade takes another time on each image, and on a part of the draws: it is the mean of whole
    certificates of :data:`TIMED_IMAGES` images, evenly spread.
    """
    is_cascade = getattr(classifier.base, "lazy", False)
    numbers = [
        int(index)
        for index in indices[:: -(-len(indices) // TIMED_IMAGES) if is_cascade else len(indices)]
    ]
    pixels = {index: images.pixels(index).to(device) for index in numbers}
    draws = max(draws, classifier.batch or 0)  # a compiled network pads a smaller batch
    classifier.votes(
        pixels[numbers[0]], min(draws, BLOCK), certification.seed, Stream.ESTIMATE, numbers[0]
    )
    start = time.perf_counter()
    for index, x in pixels.items():
        if is_cascade:
            classifier.certify(x, **vars(certification.draws), index=index)
        else:
            classifier.votes(x, draws, certification.seed, Stream.ESTIMATE, index)
    seconds = (time.perf_counter() - start) / len(pixels)
    return seconds if is_cascade else seconds / draws * (certification.n0 + certification.n)


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
    identities: list[MemberIdentity] = [
        {"method": member.method, "seed": member.seed, "classifier": model_fingerprint(model)}
        for member, model in zip(pool.members, models, strict=True)
    ]
    entries = {
        model_name(member.method, member.seed): PoolEntry(
            (number,),
            provenance=Provenance(
                model=member.path,
                classifier=identities[number]["classifier"],
                scope="model",
            ),
        )
        for number, member in enumerate(pool.members)
    }
    for slug, spec in specs.items():
        numbers, scope = (
            tuple(pool.members.index(member) for member in spec.voting),
            spec.combination.scope,
        )
        weights_by_image = None
        weights_hash = None
        if scope == "per-image":
            path = weights / f"{slug}.tsv"
            weights_by_image = read_weights(path, len(numbers), indices)
            weights_hash = files.sha256(path)
        rule = SoftmaxAverage() if weights_by_image else spec.rule
        provenance = Provenance(
            model=str((weights if spec.fitted else ensembles) / f"{slug}.json"),
            weights=weights_hash,
            classifier=model_fingerprint(Ensemble([models[number] for number in numbers], rule)),
            members=[identities[number] for number in numbers],
            scope=scope,
        )
        entries[slug] = PoolEntry(numbers, rule, provenance, weights_by_image)
    return entries
