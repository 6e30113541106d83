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
from rs.ensemble.pool import Entry, certify_pool
from rs.ensemble.pool_entries import Candidate, combined, single_models
from rs.ensemble.rules import Ensemble, LogitAverage
from rs.ensemble.spec import EnsembleCard, load_members
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
class Settings:
    """How a pool is certified; section ``recipes.DATASET.pool`` of params.yaml."""

    cache: bool  # keep the members' logits in the work folder, as float16; then votes are those of the rounded logits
    timed: NonNegativeCount  # draws on which each classifier alone is timed; 0 for none


def pool_cell(
    ensembles: Path,
    weights: Path,
    folder: Path,
    settings: Settings,
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
    pool, cards = read_pool(ensembles)
    images = data.load(folder, "test")
    suit_threads(images.meta.shape)
    models, _ = load_members(pool.members, pool.dataset, pool.sigma, ensembles / POOL, images.meta)
    candidates = single_models(pool.members, models)
    candidates |= combined(pool.members, models, cards, ensembles, weights)
    out.mkdir(parents=True, exist_ok=True)
    times.mkdir(parents=True, exist_ok=True)
    if not candidates:
        return
    if certification.stop is not None:
        raise InputError(
            "a pool must be certified with all n draws, got certify.stop; leave it null, or set members and ensembles "
            "to []"
        )
    indices = select(len(images), certification.subset)
    engine, runs_as = _engine(models, images, pool.sigma, certification, device, batch)
    shared = circumstances(images, certification, pool.sigma, device, runs_as, "rs/certification/certify_pool.py")
    shared |= {"outputs": "float16"} if settings.cache else {}
    outs = {out / f"{name}.tsv": one.who | shared for name, one in candidates.items()}
    for one, index in itertools.product(candidates.values(), map(int, indices)):
        one.at(index)  # an image without weights is refused before the work begins

    def made(left: NDArray[np.int64]) -> Iterator[Mapping[Path, dict[str, Any]]]:
        certified = engine.from_cache(indices) if settings.cache else engine.directly
        for index in map(int, left):
            found = certified({name: one.at(index) for name, one in candidates.items()}, index)
            label = int(images.labels[index])
            yield {
                out / f"{name}.tsv": found[name].row(index, label, one.who["scope"]) for name, one in candidates.items()
            }

    certify_images.warn_if_hopeless(certification.n, certification.alpha)
    if (row_writer.rows_to(outs, times / "images.csv", indices, made) or not alone.exists()) and processes.place()[
        0
    ] == 0:
        _write_times(alone, engine, _firsts(candidates, cards), indices, settings.timed)


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

    def directly(self, entries: Mapping[str, Entry], index: int) -> dict[str, Certificate]:
        """From one evaluation of every member on every draw."""
        return certify_pool(
            self.models,
            entries,
            len(self.images.meta.classes),
            self.sigma,
            self._pixels(index),
            self.how.n0,
            self.how.n,
            self.how.alpha,
            seed=self.how.seed,
            index=index,
            label=self._label(index),
            precision=self.precision,
            batch=self.batch,
        )

    def from_cache(self, indices: NDArray[np.int64]) -> Callable[[Mapping[str, Entry], int], dict[str, Certificate]]:
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
            code_fingerprint.version("rs/certification/certify_pool.py"),
            checkpoint.versions(),
        )
        folder = scratch.root() / "outputs" / scratch.key(asdict(key))
        size = OutputCache.size(len(self.models), len(indices), key.n0 + key.n, key.num_classes)
        print(f"outputs of {len(self.models)} members: {size / 1e9:.3g} GB in {folder}", file=sys.stderr)
        cache = OutputCache(folder, key)

        def certified(entries: Mapping[str, Entry], index: int) -> dict[str, Certificate]:
            cache.fill(self.models, self._pixels(index), index, self.batch)
            return cache.certify(entries, index, self.how.alpha, label=self._label(index))

        return certified

    def seconds_alone(self, entry: Entry, index: int, draws: int) -> float:
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


def _firsts(candidates: Mapping[str, Candidate], cards: Mapping[str, EnsembleCard]) -> dict[str, Candidate]:
    """The classifiers whose time is that of all of their kind: those of other seeds take as long."""
    kinds = {
        slug: (card.combination, *(member.method for member in card.members)) for slug, card in reversed(cards.items())
    }
    firsts = {kind: slug for slug, kind in kinds.items()}
    return {name: one for name, one in candidates.items() if name not in cards or firsts[kinds[name]] == name}


def _write_times(
    path: Path, engine: _Engine, candidates: Mapping[str, Candidate], indices: NDArray[np.int64], draws: int
) -> None:
    first = int(indices[0])
    rows = [
        {"classifier": name, "seconds": engine.seconds_alone(one.at(first), first, draws)}
        for name, one in candidates.items()
        if draws
    ]
    files.write_csv(path, ("classifier", "seconds"), rows)
