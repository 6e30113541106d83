"""Certify a pool, from files to files: every member and every ensemble, from one noise pass."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.certification.certify_model import row_identity, warn_if_n_too_small
from rs.certification.inference import Optimized, optimize_for_inference
from rs.certification.quantize import openvino_identity, quantized_members
from rs.data import images as data
from rs.data.prepared import Images
from rs.ensemble.declare import POOL, PoolSpec, read_pool, read_weights
from rs.ensemble.logit_cache import CacheKey, OutputCache
from rs.ensemble.pool import NoisyPool, PoolEntry, noisy_pool
from rs.ensemble.rules import Cascade, Ensemble, LogitAverage, SoftmaxAverage
from rs.ensemble.spec import EnsembleSpec, first_of_each, load_members
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.params import NonNegativeCount, validated
from rs.runtime import arithmetic, code_fingerprint, processes, scratch
from rs.runtime.device import limit_threads
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import BLOCK
from rs.smoothing.settings import CertificationSettings, SmoothingOptions
from rs.storage import files
from rs.storage.row_writer import write_rows
from rs.study.layout import ALONE, model_name
from rs.study.subset import select

MODULE = "rs/certification/certify_pool.py"
TIMED = 16
"""Images whose certificates a cascade is timed on."""


@validated
class PoolSettings:
    """How to certify a pool; section ``recipes.DATASET.pool`` of params.yaml."""

    cache: bool  # keep the members' logits in the scratch folder, as float16; votes are those of the rounded logits
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
        times: Folder for ``images.csv``, the seconds of each image in the one pass, and ``alone.csv``, the seconds of a
            certificate of each classifier alone.
    Raises:
        InputError: If an input is missing or does not fit the others, or something else would be overwritten.
    """
    alone, device = times / ALONE, options.device or torch.device("cpu")
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
        raise InputError(
            "a pool must be certified with all n draws, got certify.stop; leave it null, or set members and ensembles "
            "to []"
        )
    members, shape, quantized = Ensemble(models, LogitAverage()), images.meta.shape, []
    if certification.engine == "quantized":
        paths = [member.path for member in pool.members]
        quantized = quantized_members(models, paths, folder, pool.sigma, shape)
    optimized = optimize_for_inference(
        members, certification.engine, certification.precision, shape, device, options.batch, quantized
    )
    runner = PoolRunner(optimized, images, indices, pool.sigma, certification, device, settings.cache)
    shared = row_identity(images, certification, pool.sigma, device, optimized.engine, MODULE)
    shared |= {"outputs": "float16"} if settings.cache else {}
    outs = {
        out / f"{name}.tsv": entry.provenance | shared | openvino_identity(runner.networks_of(entry))
        for name, entry in entries.items()
    }
    warn_if_n_too_small(certification.n, certification.alpha)
    counted = {out / f"{name}.tsv" for name, entry in entries.items() if isinstance(entry.rule, Cascade)}
    with write_rows(outs, times / "images.csv", indices, counted) as writer:
        for index in writer.remaining:
            label = int(images.labels[index])
            noisy = runner.noisy_pool(index)
            certificates = noisy.certify(entries, label if certification.shortcut else None)
            rows = (certificates[name].row(index, label, entry.provenance["scope"]) for name, entry in entries.items())
            writer.write(index, dict(zip(outs, rows, strict=True)))
    if processes.rank_and_world_size()[0] == 0 and not (writer.was_complete and alone.exists()):
        # ensembles of other seeds take as long
        timed = first_of_each(specs, lambda declaration: (declaration.kind, declaration.key))
        firsts = {name: entry for name, entry in entries.items() if name not in specs or name in timed}
        first = int(indices[0])
        seconds = [
            {"classifier": name, "seconds": runner.seconds_alone(entry.for_image(first), first, settings.timed)}
            for name, entry in firsts.items()
            if settings.timed
        ]
        files.write_csv(alone, ("classifier", "seconds"), seconds)


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
        InputError: If weights that were solved image by image are missing, for one of the images too, or damaged.
    """
    identities: list[dict[str, Any]] = [
        {"method": member.method, "seed": member.seed, "classifier": model_fingerprint(model)}
        for member, model in zip(pool.members, models, strict=True)
    ]
    entries = {
        model_name(member.method, member.seed): PoolEntry(
            (number,),
            provenance={"model": member.path, "classifier": identities[number]["classifier"], "scope": "model"},
        )
        for number, member in enumerate(pool.members)
    }
    for slug, spec in specs.items():
        numbers, scope = tuple(pool.members.index(member) for member in spec.voting), spec.combination.scope
        source: dict[str, Any] = {"model": str((weights if spec.fitted else ensembles) / f"{slug}.json")}
        weights_by_image = None
        if scope == "per-image":
            path = weights / f"{slug}.tsv"
            weights_by_image = read_weights(path, len(numbers), indices)
            source["weights"] = files.sha256(path)
        rule = SoftmaxAverage() if weights_by_image else spec.rule
        classifier = model_fingerprint(Ensemble([models[number] for number in numbers], rule))
        members = [identities[number] for number in numbers]
        source |= {"classifier": classifier, "members": members, "scope": scope}
        entries[slug] = PoolEntry(numbers, rule, source, weights_by_image)
    return entries


@dataclass(frozen=True)
class PoolRunner:
    """The members of a pool, and how their outputs on noisy images are taken."""

    optimized: Optimized  # the members, as an ensemble
    images: Images
    indices: NDArray[np.int64]  # all images to certify, which the cache is for
    sigma: float
    settings: CertificationSettings
    device: torch.device
    cached: bool  # take the members' logits from a cache on disk, and store them there

    def noisy_pool(self, index: int) -> NoisyPool:
        """Return the members on noisy copies of image ``index``, on which each is evaluated once."""
        x = self._pixels(index)
        if self.cached:
            self._cache.fill(self._members, x, index, self.optimized.batch)
            return self._cache.noisy_pool(index, self.settings.alpha)
        num_classes = len(self.images.meta.classes)
        return noisy_pool(
            self._members, num_classes, self.sigma, x, self.settings.draws, index=index, **self._evaluation
        )

    def seconds_alone(self, entry: PoolEntry, index: int, draws: int) -> float:
        """Estimate the seconds of a certificate of one classifier alone, from the time of ``draws`` draws.

        A cascade takes another time on each image, and on a part of the draws: it is the mean of whole certificates of
        :data:`TIMED` images, evenly spread.
        """
        base = Ensemble(self.networks_of(entry), entry.rule)
        num_classes, seed = len(self.images.meta.classes), self.settings.seed
        classifier = SmoothedClassifier(base, num_classes, self.sigma, undecided=base.undecided, **self._evaluation)
        if isinstance(entry.rule, Cascade):
            indices = [int(index) for index in self.indices[:: -(-len(self.indices) // TIMED)]]
            images = [self._pixels(index) for index in indices]
            classifier.votes(images[0], BLOCK, seed, Stream.SELECT, indices[0])
            start = time.perf_counter()
            for index, x in zip(indices, images, strict=True):
                classifier.certify(x, **vars(self.settings.draws), index=index)
            return (time.perf_counter() - start) / len(indices)
        x, key = self._pixels(index), (seed, Stream.ESTIMATE, index)
        draws = max(draws, self.optimized.batch or 0)  # a compiled network pads a smaller batch
        classifier.votes(x, min(draws, BLOCK), *key)
        start = time.perf_counter()
        classifier.votes(x, draws, *key)
        return (time.perf_counter() - start) / draws * (self.settings.n0 + self.settings.n)

    def networks_of(self, entry: PoolEntry) -> list[nn.Module]:
        """Return the members of an entry, as they run."""
        return [self._members[number] for number in entry.member_ids]

    @property
    def _evaluation(self) -> dict[str, Any]:
        """How networks are evaluated on noise."""
        optimized = self.optimized
        return {"noise": self.settings.noise, "precision": optimized.precision, "batch": optimized.batch}

    @property
    def _members(self) -> list[nn.Module]:
        assert isinstance(self.optimized.module, Ensemble)
        return [*self.optimized.module.members]

    @cached_property
    def _cache(self) -> OutputCache:
        """The members' logits on disk; its size is printed before it is made."""
        key = CacheKey(
            members=[model_fingerprint(member) for member in self._members],
            images=self.images.fingerprint,
            indices=self.indices.tolist(),
            num_classes=len(self.images.meta.classes),
            sigma=self.sigma,
            n0=self.settings.n0,
            n=self.settings.n,
            seed=self.settings.seed,
            noise=self.settings.noise,
            precision=self.optimized.precision,
            device=self.device.type,
            arithmetic=arithmetic.current(),
            code=code_fingerprint.code_hash(MODULE),
            versions=openvino_identity(self._members).get("versions", checkpoint.library_versions()),
        )
        folder = scratch.root() / "outputs" / scratch.key(asdict(key))
        size = OutputCache.size(len(self._members), len(self.indices), key.n0 + key.n, key.num_classes)
        print(f"outputs of {len(self._members)} members: {size / 1e9:.3g} GB in {folder}", file=sys.stderr)
        return OutputCache(folder, key)

    def _pixels(self, index: int) -> Tensor:
        return self.images.pixels(index).to(self.device)
