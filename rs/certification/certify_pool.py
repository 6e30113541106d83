"""One cell of the pipeline: every member and every ensemble of a pool, certified from one noise pass.

OUT/METHOD-SEED.tsv and .json     rows of a member, and what made them
OUT/SLUG.tsv and .json            rows of an ensemble
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.certification import certify_images
from rs.certification.certify_model import circumstances
from rs.certification.inference import arrange
from rs.data import images as data
from rs.data.format import Images
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.logit_cache import CacheKey, OutputCache
from rs.ensemble.pool import PoolEntry, certify_entries
from rs.ensemble.pool_entries import pool_entries
from rs.ensemble.rules import Ensemble, LogitAverage
from rs.ensemble.spec import first_of_each, load_members
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.backend import Engine
from rs.params import NonNegativeCount, validated
from rs.runtime import code_fingerprint, processes, scratch
from rs.runtime.device import suit_threads
from rs.runtime.streams import Stream
from rs.smoothing.classifier import Precision, SmoothedClassifier
from rs.smoothing.noise import BLOCK
from rs.smoothing.settings import CertificationSettings
from rs.statistics.certificate import Certificate
from rs.storage import files, row_writer
from rs.study.subset import select


@validated
class PoolSettings:
    """How a pool is certified; section ``recipes.DATASET.pool`` of params.yaml."""

    cache: bool  # keep the members' logits in the work folder, as float16; then votes are those of the rounded logits
    timed: NonNegativeCount  # draws on which each classifier alone is timed; 0 for none


def certify_pool(
    ensembles: Path,
    weights: Path,
    folder: Path,
    settings: PoolSettings,
    certification: CertificationSettings,
    *,
    device: torch.device,
    batch: int | None,
    out: Path,
    times: Path,
) -> None:
    """Certify the pool in the folder ``ensembles`` on the test split of the data set in ``folder``.

    Args:
        ensembles: What ``rs.ensemble.declare`` wrote.
        weights: What ``rs.ensemble.fit_weights`` wrote.
        out: Folder for the rows and sidecars.
        times: Folder for ``images.csv``, the seconds of each image in the one pass, and ``alone.csv``, the seconds of a
            certificate of each classifier alone.
    Raises:
        InputError: If something else would be overwritten, or as what is called says.
    """
    alone = times / "alone.csv"
    files.check_output(alone, "the seconds of classifiers", files.begins_with("classifier,seconds\n"), option="--times")
    pool, specs = read_pool(ensembles)
    images = data.load(folder, "test")
    suit_threads(images.meta.shape)
    models, _ = load_members(pool.members, pool.dataset, pool.sigma, ensembles / POOL, images.meta)
    entries = pool_entries(pool, specs, models, ensembles, weights)
    out.mkdir(parents=True, exist_ok=True)
    times.mkdir(parents=True, exist_ok=True)
    if not entries:
        return
    if certification.stop is not None:
        raise InputError(
            "a pool must be certified with all n draws, got certify.stop; leave it null, or set members and ensembles "
            "to []"
        )
    indices = select(len(images), certification.subset)
    engine, runs_as = _engine(models, images, pool.sigma, certification, device, batch)
    shared = circumstances(images, certification, pool.sigma, device, runs_as, "stages/certify_ensembles.py")
    shared |= {"outputs": "float16"} if settings.cache else {}
    outs = {out / f"{name}.tsv": entry.provenance | shared for name, entry in entries.items()}
    for entry, index in itertools.product(entries.values(), map(int, indices)):
        entry.for_image(index)  # an image without weights is refused before the work begins

    def made(left: NDArray[np.int64]) -> Iterator[Mapping[Path, dict[str, Any]]]:
        certify = engine.from_cache(indices) if settings.cache else engine.directly
        for index in map(int, left):
            certificates, label = certify(entries, index), int(images.labels[index])
            yield {
                out / f"{name}.tsv": certificates[name].row(index, label, entry.provenance["scope"])
                for name, entry in entries.items()
            }

    certify_images.warn_if_hopeless(certification.n, certification.alpha)
    if (row_writer.rows_to(outs, times / "images.csv", indices, made) or not alone.exists()) and processes.place()[
        0
    ] == 0:
        # ensembles of other seeds take as long
        timed = first_of_each(specs, lambda declaration: (declaration.kind, declaration.key))
        firsts = {name: entry for name, entry in entries.items() if name not in specs or name in timed}
        _write_times(alone, engine, firsts, indices, settings.timed)


def _engine(
    models: list[nn.Module],
    images: Images,
    sigma: float,
    how: CertificationSettings,
    device: torch.device,
    batch: int | None,
) -> tuple[_Engine, Engine]:
    """The members arranged to run, and how they run in the end."""
    both = Ensemble(models, LogitAverage())
    made = arrange(both, how.engine, how.precision, images.meta.shape, device, batch)
    return _Engine([*made.module.members], images, sigma, how, device, made.precision, made.batch), made.engine


@dataclass(frozen=True)
class _Engine:
    """Certifies all classifiers of a pool on one image."""

    models: list[nn.Module]  # as they run, on the device
    images: Images
    sigma: float
    how: CertificationSettings
    device: torch.device
    precision: Precision  # of autocast
    batch: int | None

    def directly(self, entries: Mapping[str, PoolEntry], index: int) -> dict[str, Certificate]:
        """From one evaluation of every member on every draw."""
        return certify_entries(
            self.models,
            entries,
            len(self.images.meta.classes),
            self.sigma,
            self._pixels(index),
            self.how.draws,
            index=index,
            label=self._label(index),
            precision=self.precision,
            batch=self.batch,
        )

    def from_cache(
        self, indices: NDArray[np.int64]
    ) -> Callable[[Mapping[str, PoolEntry], int], dict[str, Certificate]]:
        """From logits on disk, which are made where they are not there yet; says their size beforehand."""
        key = CacheKey(
            [checkpoint.fingerprint(model) for model in self.models],
            self.images.fingerprint,
            indices.tolist(),
            len(self.images.meta.classes),
            self.sigma,
            self.how.n0,
            self.how.n,
            self.how.seed,
            self.precision,
            self.device.type,
            code_fingerprint.version("stages/certify_ensembles.py"),
            checkpoint.versions(),
        )
        folder = scratch.root() / "outputs" / scratch.key(asdict(key))
        size = OutputCache.size(len(self.models), len(indices), key.n0 + key.n, key.num_classes)
        print(f"outputs of {len(self.models)} members: {size / 1e9:.3g} GB in {folder}", file=sys.stderr)
        cache = OutputCache(folder, key)

        def certified(entries: Mapping[str, PoolEntry], index: int) -> dict[str, Certificate]:
            cache.fill(self.models, self._pixels(index), index, self.batch)
            return cache.certify(entries, index, self.how.alpha, label=self._label(index))

        return certified

    def seconds_alone(self, entry: PoolEntry, index: int, draws: int) -> float:
        """Seconds of a certificate of one classifier alone, from those of ``draws`` draws, as a share of n0 + n."""
        base = Ensemble([self.models[number] for number in entry.members], entry.rule)
        classifier = SmoothedClassifier(
            base,
            len(self.images.meta.classes),
            self.sigma,
            precision=self.precision,
            batch=self.batch,
            undecided=base.undecided,
        )
        x, key = self._pixels(index), (self.how.seed, Stream.ESTIMATE, index)
        draws = max(draws, self.batch or 0)  # a compiled network fills a smaller batch up
        classifier.votes(x, min(draws, BLOCK), *key)
        start = time.perf_counter()
        classifier.votes(x, draws, *key)
        return (time.perf_counter() - start) / draws * (self.how.n0 + self.how.n)

    def _pixels(self, index: int) -> Tensor:
        return self.images.pixels(index).to(self.device)

    def _label(self, index: int) -> int | None:
        return int(self.images.labels[index]) if self.how.shortcut else None


def _write_times(
    path: Path, engine: _Engine, entries: Mapping[str, PoolEntry], indices: NDArray[np.int64], draws: int
) -> None:
    first = int(indices[0])
    rows = [
        {"classifier": name, "seconds": engine.seconds_alone(entry.for_image(first), first, draws)}
        for name, entry in entries.items()
        if draws
    ]
    files.write_csv(path, ("classifier", "seconds"), rows)
