"""One cell of the pipeline: the weights of all ensembles at one noise level, and the theory of them in numbers.

OUT/SLUG.json       an ensemble whose weights are solved for all images: its file with the solution
OUT/SLUG.tsv        weights solved image by image: idx, the class whose margins they come from, a weight a member
OUT/spreads.csv     variances and covariances of margins (``rs.reporting.variance_tables``)
OUT/bounds.csv      lower bounds on the probability of the label, and its measured share

Global weights see training images alone. What test images choose (weights of scope per-image, and the theory) never
meets the draws that certify.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rs.data import images as data
from rs.data.format import Images
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.member_outputs import Chunk, Seen, Settings
from rs.ensemble.perturbation import CHOICE, margins
from rs.ensemble.pool import Entry
from rs.ensemble.rules import SoftmaxAverage
from rs.ensemble.spec import EnsembleCard, Solution
from rs.runtime.device import limit_threads
from rs.runtime.streams import Stream, stream
from rs.smoothing.settings import CertificationSettings
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import Moments, algorithm2, clip_to_box, global_weights, moments
from rs.storage import files
from rs.study.ensembles import kind_of
from rs.study.subset import select

K = TypeVar("K")

SPREADS = ("ensemble", "members", "source", "images", "alpha", "beta", "variance", "within", "across")
BOUNDS = ("ensemble", "members", "combination", "images", "bound", "bound_minimum", "measured", "other_class")
"""``other_class``: share of the images whose weights come from the margins of another class than the label."""


def weights_cell(
    ensembles: Path,
    folder: Path,
    settings: Settings,
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
    files.check_replaceable(out, "spreads.csv", "weights", [ensembles, folder])
    files.check_output(seconds, "the seconds of weights", files.begins_with("seconds\n"), option="--seconds")
    pool, cards = read_pool(ensembles)
    train, test = data.load(folder, "train"), data.load(folder, "test")
    limit_threads(test.meta.shape)
    seen = Seen.load(pool, ensembles / POOL, test.meta, settings, device, batch)
    solved = _solve(seen, cards, train, settings) if cards else {}
    study = _Study(seen, cards | solved, certification)
    indices, taken = select(len(test), certification.subset), 0.0
    for chunk, spent in _timed(study.seen.chunks(test, indices) if cards else iter(())):
        taken += spent / (len(indices) * len(study.seen.members))
        study.add(test, chunk)
    with files.replacing(out) as temporary:
        temporary.mkdir()
        for slug, card in solved.items():
            card.write(temporary / f"{slug}.json")
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


def _solve(seen: Seen, cards: Mapping[str, EnsembleCard], train: Images, settings: Settings) -> dict[str, EnsembleCard]:
    """The ensembles whose weights are solved for all images, with the solution."""
    wanted = {slug: card for slug, card in cards.items() if card.how.solved and card.how.scope == "global"}
    if not wanted:
        return {}
    rng = stream(settings.seed, Stream.WEIGHTS, CHOICE)
    chosen = torch.randperm(len(train), generator=rng)[: settings.images].sort().values.numpy()
    found = [moments(margins(chunk.perturbed, chunk.labels)) for chunk in seen.chunks(train, chosen)]
    stats = Moments(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    solved = {}
    for slug, card in wanted.items():
        own = seen.numbers(card)
        some = Moments(stats.means[:, own], stats.covariances[:, :, own][..., own])
        weights, used_share = global_weights(some, train.labels[chosen], card.how.weights)
        solution = Solution(weights=weights.tolist(), images=len(chosen), used_share=used_share)
        solved[slug] = replace(card, solution=solution)
    return solved


class _Study:
    """Per-image weights, and the theory in numbers, collected over chunks of test images.

    Of ensembles that differ in their seeds alone the theory is that of the first one.
    """

    def __init__(self, seen: Seen, cards: Mapping[str, EnsembleCard], certification: CertificationSettings) -> None:
        self.certification = certification
        self.firsts = _firsts((_kind(card), card) for card in cards.values())
        # the theory is about weighted averages of softmax outputs
        averages = {s: c for s, c in cards.items() if c.how.rule == "softmax" and c.how.scope != "set"}
        self.per_image = {slug: card for slug, card in averages.items() if card.how.scope == "per-image"}
        self.weighted = _firsts(((_kind(card), card.combination), card) for card in averages.values())
        used = [*self.firsts.values(), *self.per_image.values(), *self.weighted.values()]
        self.seen = seen.only({(member.method, member.seed) for card in used for member in card.members})
        self.lines = {
            slug: ["\t".join(["idx", "class", *(f"w{i}" for i in range(len(card.members)))])]
            for slug, card in self.per_image.items()
        }
        self.spreads: dict[tuple[str, str, str], list[NDArray]] = {}
        self.bounds: dict[tuple[str, str, str], list[NDArray]] = {}

    def add(self, images: Images, chunk: Chunk) -> None:
        """Take in what the members say of some images."""
        self._spread(chunk, self.seen.probabilities(images, chunk.indices, perturbed=False))
        predicted = self._predicted(images, chunk)
        fresh = self.seen.probabilities(images, chunk.indices, repeat=1)  # weights are not judged by what chose them
        for slug, card in self.per_image.items():
            classes = self._classes(card, chunk, predicted)
            self.lines[slug] += _lines(chunk.indices, classes, self._weights(card, chunk, classes))
        for (kind, combination), card in self.weighted.items():
            classes = self._classes(card, chunk, predicted)
            z = margins(fresh[:, self.seen.numbers(card)], chunk.labels)
            found = ensemble_variance.chebyshev_bounds(z, chunk.labels, self._weights(card, chunk, classes))
            line = np.stack([found.weighted, found.minimum, found.measured, classes != chunk.labels], axis=-1)
            self.bounds.setdefault((kind, card.name, combination), []).append(line)

    def _spread(self, chunk: Chunk, plain: NDArray[np.float64]) -> None:
        perturbed, trained = (margins(p, chunk.labels) for p in (chunk.perturbed, plain))
        for kind, card in self.firsts.items():
            own, methods = self.seen.numbers(card), [member.method for member in card.members]
            for source, s in (
                ("perturbed", moments(perturbed[:, own]).covariances),
                ("trained", ensemble_variance.trained_covariances(trained[:, own], methods)),
            ):
                self.spreads.setdefault((kind, card.name, source), []).append(_spread(s, chunk.labels, methods))

    def _weights(self, card: EnsembleCard, chunk: Chunk, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights of an ensemble for each image, (B, L)."""
        count = len(card.members)
        if card.how.scope == "per-image":
            z = margins(chunk.perturbed[:, self.seen.numbers(card)], classes)
            solved = algorithm2(z, classes, card.how.weights)
            return solved if card.how.low is None else clip_to_box(solved, card.how.low, card.how.high)
        fixed = card.solution.weights if card.solution else card.how.weights
        fixed = np.full(count, 1 / count) if fixed == "equal" else np.asarray(fixed)
        return np.broadcast_to(fixed, (len(classes), count))

    def _classes(
        self, card: EnsembleCard, chunk: Chunk, predicted: Mapping[str, NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The classes whose margins choose the weights, (B,)."""
        return predicted[card.name] if card.how.target == "predicted" else chunk.labels

    def _predicted(self, images: Images, chunk: Chunk) -> dict[str, NDArray[np.int64]]:
        """The class that n0 draws of the plain average select, by ensemble, (B,); where weights need it."""
        wanted = {card.name: card for card in self.per_image.values() if card.how.target == "predicted"}
        if not wanted:
            return {}
        entries = {name: Entry(tuple(self.seen.numbers(wanted[name])), SoftmaxAverage()) for name in sorted(wanted)}
        return self.seen.selected(images, chunk.indices, entries, self.certification)

    def spread_rows(self) -> list[dict[str, Any]]:
        """Means over images, for ``spreads.csv``."""
        return [_means(SPREADS, key, parts) for key, parts in self.spreads.items()]

    def bound_rows(self) -> list[dict[str, Any]]:
        """Means over images, for ``bounds.csv``."""
        return [_means(BOUNDS, key, parts) for key, parts in self.bounds.items()]


def _kind(card: EnsembleCard) -> str:
    return kind_of([(member.method, member.seed) for member in card.members])


def _firsts(named: Iterable[tuple[K, EnsembleCard]]) -> dict[K, EnsembleCard]:
    """The first ensemble of each name, in the order in which the parameters declare them."""
    found: dict[K, EnsembleCard] = {}
    for name, card in named:
        found.setdefault(name, card)
    return found


def _spread(covariances: NDArray[np.float64], labels: NDArray[np.int64], methods: list[str]) -> NDArray[np.float64]:
    """Alpha, beta, variance, within, across of each image, (B, 5); alpha and beta as means over wrong classes."""
    wrong = np.arange(covariances.shape[1]) != labels[:, None]  # (B, K)
    found = ensemble_variance.spread(covariances) if len(methods) > 1 else (np.full(wrong.shape, np.nan),) * 2
    means = [np.where(wrong, values, 0.0).sum(axis=-1) / wrong.sum(axis=-1) for values in found]
    return np.stack([*means, *ensemble_variance.mean_covariances(covariances, labels, methods)], axis=-1)


def _means(columns: Sequence[str], key: tuple[str, ...], parts: Sequence[NDArray]) -> dict[str, Any]:
    values = np.concatenate(parts)
    numbers = [len(values), *(None if np.isnan(mean) else mean for mean in values.mean(axis=0).tolist())]
    return dict(zip(columns, [*key, *numbers], strict=True))


def _lines(indices: Sequence[int], classes: NDArray[np.int64], weights: NDArray[np.float64]) -> list[str]:
    return [
        "\t".join([str(index), str(y), *map(repr, w)])
        for index, y, w in zip(indices, classes.tolist(), weights.tolist(), strict=True)
    ]
