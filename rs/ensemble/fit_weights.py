"""One cell of the pipeline: the weights of all ensembles at one noise level, and the theory of them in numbers.

OUT/SLUG.json       an ensemble whose weights are solved for all images: its file with these weights; or a cascade with
                    its thresholds (``rs.ensemble.fit_cascades``)
OUT/SLUG.tsv        weights solved image by image: idx, the class whose margins they come from, a weight a member
OUT/spreads.csv     variances and covariances of margins (``rs.reporting.tables.variance_tables``)
OUT/bounds.csv      lower bounds on the probability of the label, and its measured share

Global weights see training images alone, or those of a validation split. What test images choose (weights of scope
per-image, and the theory) never meets the draws that certify.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rs.data import images as data
from rs.data.prepared import Images
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.fit_cascades import fit_cascades
from rs.ensemble.fit_radius import fit_radius
from rs.ensemble.member_outputs import Chunk, MemberOutputs, WeightSettings
from rs.ensemble.perturbation import margins
from rs.ensemble.pool import PoolEntry
from rs.ensemble.rules import SoftmaxAverage
from rs.ensemble.spec import EnsembleSpec, FittedWeights, first_of_each
from rs.runtime.device import limit_threads
from rs.smoothing.settings import CertificationSettings
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import Moments, clip_to_box, global_weights, moments, per_image_weights
from rs.storage import files
from rs.study.ensembles import BOUND_WEIGHTS
from rs.study.subset import select

SPREADS = ("ensemble", "members", "source", "images", "alpha", "beta", "variance", "within", "across")
BOUNDS = ("ensemble", "members", "combination", "images", "bound", "bound_minimum", "measured", "other_class")
"""``other_class``: share of the images whose weights come from the margins of another class than the label."""


def fit_weights(
    ensembles: Path,
    folder: Path,
    settings: WeightSettings,
    certification: CertificationSettings,
    *,
    device: torch.device,
    batch: int | None,
    out: Path,
    seconds: Path,
) -> None:
    """Solve the weights of all ensembles in the folder ``ensembles``; write them into the folder ``out``, all or none.

    Args:
        ensembles: What ``rs.ensemble.declare`` wrote.
        folder: The prepared data set.
        settings: How weights are solved for.
        certification: Its test images, and the n0 draws whose class weights of scope per-image are solved for.
        out: The folder to make.
        seconds: File for the seconds that the margins of one image take, of one member.
    Raises:
        InputError: If ``out`` or ``seconds`` is something else, or members are not those of the files, or of other
            images.
    """
    pool, specs = read_pool(ensembles)
    of, suffixes = {"dataset": pool.dataset, "sigma": pool.sigma}, (".csv", ".json", ".tsv")
    files.check_replaceable(out, "spreads.csv", "weights", [ensembles, folder], suffixes=suffixes, of=of)
    files.check_output(seconds, "the seconds of weights", files.begins_with("seconds\n"), option="--seconds")
    train, test = data.load_images(folder, "train"), data.load_images(folder, "test")
    limit_threads(test.meta.shape)
    member_outputs = MemberOutputs.load(pool, ensembles / POOL, test.meta, settings, device, batch)
    of_bound, largest = _solved(specs)
    split = "validation" if "validation" in train.meta.sizes else "train"  # best are images that no member has seen
    images = train if split == "train" else data.load_images(folder, split)
    fitted = _fit_bound(member_outputs, of_bound, images, split)
    fitted |= fit_radius(member_outputs, largest, images, split)
    fitted |= fit_cascades(member_outputs, specs, images, split)
    study = _Study(member_outputs, specs | fitted, certification)
    indices, taken = select(len(test), certification.subset), 0.0
    for chunk, spent in _timed(study.member_outputs.chunks(test, indices) if specs else iter(())):
        taken += spent / (len(indices) * len(study.member_outputs.members))
        study.add(test, chunk)
    with files.replacing(out) as temporary:
        temporary.mkdir()
        for slug, spec in fitted.items():
            spec.write(temporary / f"{slug}.json")
        for slug, lines in study.lines.items():
            files.write_text(temporary / f"{slug}.tsv", "\n".join(lines) + "\n")
        files.write_csv(temporary / "spreads.csv", SPREADS, study.spread_rows())
        files.write_csv(temporary / "bounds.csv", BOUNDS, study.bound_rows())
    files.write_text(seconds, f"seconds\n{taken:.6f}\n")


def _timed(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, float]]:
    """Chunks, and the seconds that the outputs of the perturbed copies took: nearly all of the cost of weights."""
    start = time.perf_counter()
    for chunk in chunks:
        yield chunk, time.perf_counter() - start
        start = time.perf_counter()


def _solved(specs: Mapping[str, EnsembleSpec]) -> tuple[dict[str, EnsembleSpec], dict[str, EnsembleSpec]]:
    """The ensembles whose weights are solved for all images: by the paper's bound, and by the radius."""
    solved = {
        slug: spec
        for slug, spec in specs.items()
        if spec.combination.weights_solved and spec.combination.scope == "global"
    }
    of_bound = {slug: spec for slug, spec in solved.items() if spec.combination.weights in BOUND_WEIGHTS}
    return of_bound, {slug: spec for slug, spec in solved.items() if slug not in of_bound}


def _fit_bound(
    member_outputs: MemberOutputs, unfitted: Mapping[str, EnsembleSpec], images: Images, split: str
) -> dict[str, EnsembleSpec]:
    """Ensembles with the weights that make the paper's bound the largest."""
    if not unfitted:
        return {}
    chosen = member_outputs.settings.fitting_images(images)
    parts = [moments(margins(chunk.perturbed, chunk.labels)) for chunk in member_outputs.chunks(images, chosen)]
    stats = Moments(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    fitted = {}
    for slug, spec in unfitted.items():
        numbers = member_outputs.numbers(spec)
        some = Moments(stats.means[:, numbers], stats.covariances[:, :, numbers][..., numbers])
        form = cast(str, spec.combination.weights)  # it is solved
        weights, used_share = global_weights(some, images.labels[chosen], form)
        fit = FittedWeights(
            weights=weights.tolist(), split=split, images=len(chosen), used_share=used_share, shrinkage=0.0
        )
        fitted[slug] = replace(spec, fitted=fit)
    return fitted


class _Study:
    """Per-image weights, and the theory in numbers, collected over chunks of test images.

    Of ensembles that differ in their seeds alone the theory is that of the first one.
    """

    def __init__(
        self,
        member_outputs: MemberOutputs,
        specs: Mapping[str, EnsembleSpec],
        certification: CertificationSettings,
    ) -> None:
        self.certification = certification
        self.firsts = first_of_each(specs, lambda declaration: declaration.kind)
        # the theory is about weighted averages of softmax outputs
        averages = {
            slug: spec
            for slug, spec in specs.items()
            if spec.combination.rule == "softmax" and spec.combination.scope != "set"
        }
        self.bounded = first_of_each(averages, lambda declaration: (declaration.kind, declaration.key))
        per_image = [slug for slug, spec in averages.items() if spec.combination.scope == "per-image"]
        self.averages = {slug: spec for slug, spec in averages.items() if slug in {*self.bounded, *per_image}}
        used = [*self.firsts.values(), *self.averages.values()]
        self.member_outputs = member_outputs.only({pair for spec in used for pair in spec.declaration.members})
        self.lines = {
            slug: ["\t".join(["idx", "class", *(f"w{i}" for i in range(len(averages[slug].members)))])]
            for slug in per_image
        }
        self.spreads: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}
        self.bounds: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}

    def add(self, images: Images, chunk: Chunk) -> None:
        """Take in the outputs on some images."""
        self._spread(chunk, self.member_outputs.probabilities(images, chunk.indices, perturbed=False))
        predicted = self._predicted(images, chunk)
        # weights are not judged by the draws that chose them
        fresh = self.member_outputs.probabilities(images, chunk.indices, repeat=1)
        for slug, spec in self.averages.items():
            target = spec.combination.target
            classes = predicted[spec.declaration.name] if target == "predicted" else chunk.labels
            weights = self._weights(spec, chunk, classes)
            if slug in self.lines:
                self.lines[slug] += _lines(chunk.indices, classes, weights)
            if slug in self.bounded:
                z = margins(fresh[:, self.member_outputs.numbers(spec)], chunk.labels)
                bounds = ensemble_variance.chebyshev_bounds(z, chunk.labels, weights)
                columns = [bounds.weighted, bounds.minimum, bounds.measured, classes != chunk.labels]
                key = (spec.declaration.kind, spec.declaration.name, spec.declaration.key)
                self.bounds.setdefault(key, []).append(np.stack(columns, axis=-1))

    def _spread(self, chunk: Chunk, plain: NDArray[np.float64]) -> None:
        perturbed, trained = (margins(p, chunk.labels) for p in (chunk.perturbed, plain))
        for spec in self.firsts.values():
            numbers, methods = self.member_outputs.numbers(spec), [member.method for member in spec.members]
            for source, covariances in (
                ("perturbed", moments(perturbed[:, numbers]).covariances),
                ("trained", ensemble_variance.trained_covariances(trained[:, numbers], methods)),
            ):
                key = (spec.declaration.kind, spec.declaration.name, source)
                self.spreads.setdefault(key, []).append(_spread(covariances, chunk.labels, methods))

    def _weights(self, spec: EnsembleSpec, chunk: Chunk, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights of an ensemble for each image, (B, L); ``classes`` (B,) are those whose margins choose them."""
        count, combination = len(spec.members), spec.combination
        if combination.scope == "per-image":
            z = margins(chunk.perturbed[:, self.member_outputs.numbers(spec)], classes)
            solved = per_image_weights(z, classes, cast(str, combination.weights))  # those of this scope are solved
            if combination.low is None or combination.high is None:
                return solved
            return clip_to_box(solved, combination.low, combination.high)
        fixed = spec.fitted.weights if isinstance(spec.fitted, FittedWeights) else combination.weights
        weights = np.full(count, 1 / count) if fixed == "equal" else np.asarray(fixed)
        return np.broadcast_to(weights, (len(classes), count))

    def _predicted(self, images: Images, chunk: Chunk) -> dict[str, NDArray[np.int64]]:
        """The class that n0 draws of the plain average select, by ensemble, (B,); where weights need it."""
        averages = self.averages.values()
        needed = {spec.declaration.name: spec for spec in averages if spec.combination.target == "predicted"}
        if not needed:
            return {}
        entries = {
            name: PoolEntry(tuple(self.member_outputs.numbers(needed[name])), SoftmaxAverage())
            for name in sorted(needed)
        }
        return self.member_outputs.selected(images, chunk.indices, entries, self.certification)

    def spread_rows(self) -> list[dict[str, Any]]:
        """Means over images, for ``spreads.csv``."""
        return [_means(SPREADS, key, parts) for key, parts in self.spreads.items()]

    def bound_rows(self) -> list[dict[str, Any]]:
        """Means over images, for ``bounds.csv``."""
        return [_means(BOUNDS, key, parts) for key, parts in self.bounds.items()]


def _spread(covariances: NDArray[np.float64], labels: NDArray[np.int64], methods: list[str]) -> NDArray[np.float64]:
    """Alpha, beta, variance, within, across of each image, (B, 5); alpha and beta as means over wrong classes."""
    wrong = np.arange(covariances.shape[1]) != labels[:, None]  # (B, K)
    alpha_beta = ensemble_variance.spread(covariances) if len(methods) > 1 else (np.full(wrong.shape, np.nan),) * 2
    means = [np.where(wrong, values, 0.0).sum(axis=-1) / wrong.sum(axis=-1) for values in alpha_beta]
    return np.stack([*means, *ensemble_variance.mean_covariances(covariances, labels, methods)], axis=-1)


def _means(columns: Sequence[str], key: tuple[str, ...], parts: Sequence[NDArray[np.float64]]) -> dict[str, Any]:
    values = np.concatenate(parts)
    numbers = [len(values), *(None if np.isnan(mean) else mean for mean in values.mean(axis=0).tolist())]
    return dict(zip(columns, [*key, *numbers], strict=True))


def _lines(indices: Sequence[int], classes: NDArray[np.int64], weights: NDArray[np.float64]) -> list[str]:
    return [
        "\t".join([str(index), str(y), *map(repr, w)])
        for index, y, w in zip(indices, classes.tolist(), weights.tolist(), strict=True)
    ]
