"""One cell of the pipeline: the weights of all ensembles at one noise level, and the theory of them
in numbers.

OUT/SLUG.json       an ensemble whose weights are solved for all images: its file with these
weights; or a cascade with
                    its thresholds
OUT/SLUG.tsv        weights solved image by image: idx, the class whose margins they come from, a
weight a member OUT/spreads.csv     variances and covariances of margins (``rs.ensemble.theory``)
OUT/bounds.csv      lower bounds on the probability of the label, and its measured share

Global weights see training images alone, or those of a validation split. What test images choose
(weights of scope per-image, and the theory) never meets the draws that certify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from rs.data import images as data
from rs.data.prepared import Images
from rs.ensemble.base import SoftmaxAverage
from rs.ensemble.cascade import accumulate, top_two_gap
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.member_outputs import Chunk, MemberOutputs, WeightSettings, margins
from rs.ensemble.pool import PoolEntry
from rs.ensemble.spec import EnsembleSpec, Fitted, FittedThresholds, FittedWeights
from rs.ensemble.theory import BOUNDS, SPREADS, EnsembleTheory, ImageWeights
from rs.runtime.device import limit_threads
from rs.smoothing.settings import CertificationSettings
from rs.statistics.cascade_thresholds import fit_thresholds
from rs.statistics.ensemble_weights import (
    Moments,
    clip_to_box,
    global_weights,
    moments,
    per_image_weights,
)
from rs.statistics.radius_weights import DisputedDraws, chosen_weights, radius_weights
from rs.storage import files
from rs.study.ensembles import BOUND_WEIGHTS, Combination
from rs.study.subset import select

Specs = Mapping[str, EnsembleSpec]
"""Ensembles by the names of their files."""


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
    """Solve the weights of all ensembles in the folder ``ensembles``; write them into the folder
    ``out``, all or none.

    Args:
        ensembles: What ``rs.ensemble.declare`` wrote.
        folder: The prepared data set.
        settings: How weights are solved for.
        certification: Its test images, and the n0 draws whose class weights of scope per-image are
            solved for.
        out: The folder to make.
        seconds: File for the seconds that the margins of one image take, of one member; with the
            SHA-256 of bounds.csv.
    Raises:
        InputError: If ``out`` or ``seconds`` is something else, or members are not those of the
            files, or of other images.
    """
    pool, specs = read_pool(ensembles)
    files.check_output(
        out, "a folder of weights", files.is_made(out, "spreads.csv"), inputs=[ensembles, folder]
    )
    files.check_output(seconds, "a file", option="--seconds")
    train, test = data.load_images(folder, "train"), data.load_images(folder, "test")
    limit_threads(test.meta.shape)
    outputs = MemberOutputs.load(pool, ensembles / POOL, test.meta, settings, device, batch)
    split = (
        "validation" if "validation" in train.meta.sizes else "train"
    )  # best are images that no member has seen
    images = train if split == "train" else data.load_images(folder, split)
    fitted = _fit_for_all_images(outputs, specs, images, split)
    specs = specs | fitted
    averages = {  # of softmax outputs, which the theory is about
        slug: spec
        for slug, spec in specs.items()
        if spec.combination.rule == "softmax" and spec.combination.scope != "set"
    }
    theory, per_image = EnsembleTheory(specs, averages), PerImageWeights(averages, certification)
    used = [theory.spread_specs, theory.bound_specs, per_image.specs]
    outputs = outputs.only([spec for group in used for spec in group.values()])
    indices, taken = select(len(test), certification.subset), 0.0
    for chunk in outputs.chunks(test, indices) if specs else ():
        taken += chunk.seconds / (len(indices) * len(outputs.members))
        theory.add(outputs, test, chunk, per_image.solve(outputs, test, chunk))
    with files.replacing(out) as temporary:
        temporary.mkdir()
        for slug, spec in fitted.items():
            spec.write(temporary / f"{slug}.json")
        for slug, lines in per_image.lines.items():
            files.write_text(temporary / f"{slug}.tsv", "\n".join(lines) + "\n")
        files.write_csv(temporary / "spreads.csv", SPREADS, theory.spread_rows())
        files.write_csv(temporary / "bounds.csv", BOUNDS, theory.bound_rows())
    measured = {"seconds": f"{taken:.6f}", "bounds": files.sha256(out / "bounds.csv")}
    files.write_csv(seconds, tuple(measured), [measured])


# -------------------------------------------------------------------------------------------------
# once for all images


def _fit_for_all_images(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, EnsembleSpec]:
    """Return the ensembles whose weights or thresholds are fitted once for all images, with these."""
    groups: dict[Callable[..., dict[str, Fitted]], dict[str, EnsembleSpec]] = {}
    for slug, spec in specs.items():
        if spec.combination.solved and spec.combination.scope != "per-image":
            groups.setdefault(_fit_of(spec.combination), {})[slug] = spec
    fitted: dict[str, Fitted] = {}
    for fit, group in groups.items():
        fitted |= fit(outputs, group, images, split)
    return {slug: replace(specs[slug], fitted=solution) for slug, solution in fitted.items()}


def _fit_of(combination: Combination) -> Callable[..., dict[str, Fitted]]:
    """Return the function that fits what a combination leaves to be solved."""
    if combination.thresholds is not None:
        return _fit_thresholds
    return _fit_bound if combination.weights in BOUND_WEIGHTS else _fit_radius


def _fit_bound(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, Fitted]:
    """Return the weights that make the paper's bound the largest."""
    chosen = outputs.settings.fitting_images(images)
    parts = [
        moments(margins(chunk.probabilities, chunk.labels))
        for chunk in outputs.chunks(images, chosen)
    ]
    means, covariances = (np.concatenate(part) for part in zip(*parts, strict=True))
    fitted: dict[str, Fitted] = {}
    for slug, spec in specs.items():
        ids = outputs.member_ids(spec)
        stats = Moments(means[:, ids], covariances[:, :, ids][..., ids])
        weights, used_share = global_weights(
            stats, images.labels[chosen], cast(str, spec.combination.weights)
        )
        fitted[slug] = FittedWeights(
            weights=weights.tolist(),
            split=split,
            images=len(chosen),
            used_share=used_share,
            shrinkage=0.0,
        )
    return fitted


def _fit_radius(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, Fitted]:
    """Return the weights, or choices of members, of the largest average certified radius; each as
    it would be alone.
    """
    outputs = outputs.only(specs.values()).unperturbed(outputs.settings.draws)
    chunks = outputs.chunks(images, outputs.settings.fitting_images(images))
    disputed = DisputedDraws.joined(
        [
            DisputedDraws.of(margins(chunk.probabilities, chunk.labels), chunk.labels)
            for chunk in chunks
        ]
    )
    fitted: dict[str, Fitted] = {}
    for slug, spec in specs.items():
        draws, budget = disputed.of_members(outputs.member_ids(spec)), spec.combination.chosen
        weights, shrinkage = (
            radius_weights(draws) if budget is None else chosen_weights(draws, budget)
        )
        fitted[slug] = FittedWeights(
            weights=list(weights),
            split=split,
            images=draws.images,
            used_share=draws.used_share,
            shrinkage=shrinkage,
        )
    return fitted


def _fit_thresholds(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, Fitted]:
    """Return the thresholds of cascades.

    As many noisy copies of an image are drawn as the fit of weights has outputs of it, ``noises *
    copies``; the members are not perturbed, because thresholds are about these members.
    """
    draws = outputs.settings.noises * outputs.settings.copies
    outputs = outputs.only(specs.values()).unperturbed(draws)
    chosen = outputs.settings.fitting_images(images)
    parts: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {slug: [] for slug in specs}
    for chunk in outputs.chunks(images, chosen):
        probabilities = (
            torch.from_numpy(chunk.probabilities).transpose(0, 1).flatten(1, 2)
        )  # (L, B n, K)
        for slug, spec in specs.items():
            parts[slug].append(_stages(probabilities[outputs.member_ids(spec)]))
    fitted: dict[str, Fitted] = {}
    for slug, spec in specs.items():
        gaps, differs = (torch.cat(part, dim=1).numpy() for part in zip(*parts[slug], strict=True))
        fit = fit_thresholds(
            gaps, differs, cast(float, spec.combination.share)
        )  # it is left to be fitted
        fitted[slug] = FittedThresholds(
            thresholds=[*fit.thresholds],
            split=split,
            images=len(chosen),
            draws=draws,
            share=fit.share,
            evaluations=fit.evaluations,
        )
    return fitted


def _stages(probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gaps of averages of the first 1, ..., L - 1 members, and where their class is not
    that of all.

    (L, N, K) -> (L - 1, N) each.
    """
    count, totals = len(probabilities), [accumulate(None, probabilities[0], len(probabilities))]
    for values in probabilities[1:]:
        totals.append(accumulate(totals[-1], values, count))
    classes = torch.stack(totals).max(dim=-1).indices
    gaps = [top_two_gap(total, asked, count) for asked, total in enumerate(totals[:-1], start=1)]
    return torch.stack(gaps), classes[:-1] != classes[-1]


# -------------------------------------------------------------------------------------------------
# image by image


class PerImageWeights:
    """Weights of scope per-image: solved for each test image, and kept as the lines of their files.

    Args:
        specs: Ensembles by the names of their files; those of another scope are left out.
        certification: The n0 draws whose class weights are solved for, where their target is the
            predicted class.
    """

    def __init__(self, specs: Specs, certification: CertificationSettings) -> None:
        self.specs = {
            slug: spec for slug, spec in specs.items() if spec.combination.scope == "per-image"
        }
        self.certification = certification
        self.lines = {
            slug: [
                "\t".join(["idx", "class", *(f"w{number}" for number in range(len(spec.members)))])
            ]
            for slug, spec in self.specs.items()
        }

    def solve(
        self, outputs: MemberOutputs, images: Images, chunk: Chunk
    ) -> dict[str, ImageWeights]:
        """Return the weights of some images by ensemble, after adding them to the lines."""
        predicted = self._predicted(outputs, images, chunk)
        solved = {}
        for slug, spec in self.specs.items():
            combination = spec.combination
            classes = (
                predicted[spec.declaration.name]
                if combination.target == "predicted"
                else chunk.labels
            )
            z = margins(chunk.probabilities[:, outputs.member_ids(spec)], classes)
            weights = per_image_weights(
                z, classes, cast(str, combination.weights)
            )  # those of this scope are solved
            if combination.low is not None and combination.high is not None:
                weights = clip_to_box(weights, combination.low, combination.high)
            solved[slug] = ImageWeights(weights, classes)
            for index, target, values in zip(
                chunk.indices, classes.tolist(), weights.tolist(), strict=True
            ):
                self.lines[slug].append("\t".join([str(index), str(target), *map(repr, values)]))
        return solved

    def _predicted(
        self, outputs: MemberOutputs, images: Images, chunk: Chunk
    ) -> dict[str, NDArray[np.int64]]:
        """Return the class that n0 draws of the plain average select, by ensemble, (B,); where
        weights need it.
        """
        entries = {
            spec.declaration.name: PoolEntry(tuple(outputs.member_ids(spec)), SoftmaxAverage())
            for spec in self.specs.values()
            if spec.combination.target == "predicted"
        }
        return outputs.select(images, chunk.indices, entries, self.certification) if entries else {}
