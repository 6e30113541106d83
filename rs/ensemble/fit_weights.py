"""One cell of the pipeline: the weights of all ensembles at one noise level, and their theory.

OUT/NAME.json     an ensemble with weights for all images, or a cascade with its thresholds
OUT/NAME.tsv      weights of each image: idx, the class whose margins they come from, the weights
OUT/spreads.csv   variances and covariances of margins (``rs.ensemble.theory``)
OUT/bounds.csv    lower bounds on the probability of the label, and its measured share

Global weights are fitted to the images of a validation split, or to training images if there is
none. What depends on test images (weights of scope per-image, and the theory) is independent of
the samples that certify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from rs.data import images as data
from rs.data.meta import read_meta
from rs.data.prepared import Images
from rs.ensemble.cascade import accumulate, top_two_gap
from rs.ensemble.declare import POOL, read_pool
from rs.ensemble.member_outputs import Chunk, MemberOutputs, WeightSettings, margins
from rs.ensemble.spec import EnsembleSpec, Fitted, FittedThresholds, FittedWeights
from rs.ensemble.theory import BOUNDS, SPREADS, EnsembleTheory, ImageWeights
from rs.runtime.device import limit_threads
from rs.smoothing.settings import CertificationSettings
from rs.statistics.cascade_thresholds import fit_thresholds
from rs.statistics.ensemble_weights import Moments, global_weights, moments, per_image_weights
from rs.statistics.radius_weights import DisputedDraws, radius_weights
from rs.storage import files
from rs.study.ensembles import BOUND_WEIGHTS, Combination
from rs.study.subset import select

Specs = Mapping[str, EnsembleSpec]
"""Ensembles by name."""


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
    """Fit the weights of all ensembles in a folder, and write them into another one: all or none.

    Args:
        ensembles: Folder that ``rs.ensemble.declare`` wrote.
        folder: The prepared data set.
        settings: How weights are fitted.
        certification: Its test images, and the n0 samples that select the classes for weights of
            scope per-image.
        device, batch: Where, and on how many noisy images at once, members are evaluated.
        out: The folder to make.
        seconds: File for the seconds per image and member, with the SHA-256 of bounds.csv.
    Raises:
        InputError: If ``out`` or ``seconds`` is something else, or members are not those of the
            files, or of other images.
    """
    pool, specs = read_pool(ensembles)
    files.check_output(
        out, "a folder of weights", files.is_made(out, "spreads.csv"), inputs=[ensembles, folder]
    )
    files.check_output(seconds, "a file", option="--seconds")
    split, images = fitting_split(folder)
    test = data.load_images(folder, "test")
    limit_threads(test.meta.shape)
    outputs = MemberOutputs.load(pool, ensembles / POOL, test.meta, settings, device, batch)
    fitted = fit_for_all_images(outputs, specs, images, split)
    specs = specs | fitted
    averages = {}  # of softmax outputs, which the theory is about
    for name, spec in specs.items():
        if spec.combination.rule == "softmax":
            averages[name] = spec
    theory = EnsembleTheory(specs, averages)
    per_image = PerImageWeights(averages, certification)
    used = theory.spread_specs | theory.bound_specs | per_image.specs
    outputs = outputs.only(used.values())
    indices = select(len(test), certification.subset)
    taken = 0.0
    if specs:
        for chunk in outputs.chunks(test, indices):
            taken += chunk.seconds / (len(indices) * len(outputs.members))
            theory.add(outputs, test, chunk, per_image.fit(outputs, test, chunk))
    with files.replacing(out) as temporary:
        temporary.mkdir()
        for name, spec in fitted.items():
            spec.write(temporary / f"{name}.json")
        for name, lines in per_image.lines.items():
            files.write_text(temporary / f"{name}.tsv", "\n".join(lines) + "\n")
        files.write_csv(temporary / "spreads.csv", SPREADS, theory.spread_rows())
        files.write_csv(temporary / "bounds.csv", BOUNDS, theory.bound_rows())
    measured = {"seconds": f"{taken:.6f}", "bounds": files.sha256(out / "bounds.csv")}
    files.write_csv(seconds, tuple(measured), [measured])


def fitting_split(folder: Path) -> tuple[str, Images]:
    """Return the split to which weights are fitted, by preference one no member was trained on."""
    split = "train"
    if "validation" in read_meta(folder).sizes:
        split = "validation"
    return split, data.load_images(folder, split)


# -------------------------------------------------------------------------------------------------
# once for all images


def fit_for_all_images(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, EnsembleSpec]:
    """Return the ensembles with weights or thresholds for all images, which are fitted here."""
    groups: dict[Callable[..., dict[str, Fitted]], dict[str, EnsembleSpec]] = {}
    for name, spec in specs.items():
        if spec.is_fitted_for_all_images:
            groups.setdefault(_fit_of(spec.combination), {})[name] = spec
    fitted: dict[str, Fitted] = {}
    for fit, group in groups.items():
        fitted |= fit(outputs, group, images, split)
    return {name: replace(specs[name], fitted=values) for name, values in fitted.items()}


def _fit_of(combination: Combination) -> Callable[..., dict[str, Fitted]]:
    """Return the function that fits the weights or thresholds of a combination."""
    if combination.thresholds is not None:
        return _fit_thresholds
    if combination.weights in BOUND_WEIGHTS:
        return _fit_bound
    return _fit_radius


def _fit_bound(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, Fitted]:
    """Return the weights of the largest bound of the paper."""
    indices = outputs.settings.fitting_images(images)
    means = []
    covariances = []
    for chunk in outputs.chunks(images, indices):
        part = moments(margins(chunk.probabilities, chunk.labels))
        means.append(part.means)
        covariances.append(part.covariances)
    pool_moments = Moments(np.concatenate(means), np.concatenate(covariances))
    fitted: dict[str, Fitted] = {}
    for name, spec in specs.items():
        own_moments = pool_moments.of_members(outputs.member_ids(spec))
        kind = cast(str, spec.combination.weights)
        weights, used_share = global_weights(own_moments, images.labels[indices], kind)
        fitted[name] = FittedWeights(
            weights=weights.tolist(),
            split=split,
            images=len(indices),
            used_share=used_share,
            shrinkage=0.0,
        )
    return fitted


def _fit_radius(
    outputs: MemberOutputs, specs: Specs, images: Images, split: str
) -> dict[str, Fitted]:
    """Return the weights of the largest average certified radius.

    The weights of an ensemble do not depend on the other ensembles.
    """
    outputs = outputs.only(specs.values()).unperturbed(outputs.settings.draws)
    parts = []
    for chunk in outputs.chunks(images, outputs.settings.fitting_images(images)):
        chunk_margins = margins(chunk.probabilities, chunk.labels)
        parts.append(DisputedDraws.of(chunk_margins, chunk.labels))
    disputed = DisputedDraws.joined(parts)
    fitted: dict[str, Fitted] = {}
    for name, spec in specs.items():
        draws = disputed.of_members(outputs.member_ids(spec))
        weights, shrinkage = radius_weights(draws)
        fitted[name] = FittedWeights(
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

    Each image has ``noises * copies`` samples, as many as the outputs to which weights are fitted.
    The members are not perturbed, because thresholds are about these members.
    """
    draws = outputs.settings.noises * outputs.settings.copies
    outputs = outputs.only(specs.values()).unperturbed(draws)
    indices = outputs.settings.fitting_images(images)
    gaps: dict[str, list[torch.Tensor]] = {name: [] for name in specs}
    differs: dict[str, list[torch.Tensor]] = {name: [] for name in specs}
    for chunk in outputs.chunks(images, indices):
        by_member = torch.from_numpy(chunk.probabilities).transpose(0, 1)  # (L, B, n, K)
        probabilities = by_member.flatten(1, 2)  # (L, B n, K)
        for name, spec in specs.items():
            chunk_gaps, chunk_differs = _stages(probabilities[outputs.member_ids(spec)])
            gaps[name].append(chunk_gaps)
            differs[name].append(chunk_differs)
    fitted: dict[str, Fitted] = {}
    for name, spec in specs.items():
        fit = fit_thresholds(
            torch.cat(gaps[name], dim=1).numpy(),
            torch.cat(differs[name], dim=1).numpy(),
            cast(float, spec.combination.share),
        )
        fitted[name] = FittedThresholds(
            thresholds=list(fit.thresholds),
            split=split,
            images=len(indices),
            draws=draws,
            share=fit.share,
            evaluations=fit.evaluations,
        )
    return fitted


def _stages(probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gaps of averages of the first members, and where their class is not the final one.

    (L, N, K) -> (L - 1, N) each, for the first 1, ..., L - 1 members.
    """
    count = len(probabilities)
    totals: list[torch.Tensor] = []
    for values in probabilities:
        totals.append(accumulate(totals[-1] if totals else None, values, count))
    classes = torch.stack(totals).max(dim=-1).indices
    gaps = [top_two_gap(total, number, count) for number, total in enumerate(totals[:-1], start=1)]
    return torch.stack(gaps), classes[:-1] != classes[-1]


# -------------------------------------------------------------------------------------------------
# image by image


class PerImageWeights:
    """Weights of scope per-image: fitted for each test image, and kept as lines of their files.

    Args:
        specs: Ensembles by name; those of another scope are ignored.
        certification: The n0 samples that select the class, if their target is the predicted one.
    """

    def __init__(self, specs: Specs, certification: CertificationSettings) -> None:
        self.certification = certification
        self.specs: dict[str, EnsembleSpec] = {}
        self.lines: dict[str, list[str]] = {}
        for name, spec in specs.items():
            if spec.combination.scope == "per-image":
                columns = [f"w{number}" for number in range(len(spec.members))]
                self.specs[name] = spec
                self.lines[name] = ["\t".join(["idx", "class", *columns])]

    def fit(self, outputs: MemberOutputs, images: Images, chunk: Chunk) -> dict[str, ImageWeights]:
        """Return the weights of the images of a chunk by ensemble, and add them to the lines."""
        fitted = {}
        for name, spec in self.specs.items():
            combination = spec.combination
            classes = chunk.labels
            if combination.target == "predicted":
                classes = outputs.selected_classes(spec, images, chunk.indices, self.certification)
            own_margins = margins(chunk.probabilities[:, outputs.member_ids(spec)], classes)
            weights = per_image_weights(own_margins, classes, cast(str, combination.weights))
            fitted[name] = ImageWeights(weights, classes)
            for row, index in enumerate(chunk.indices):
                fields = [index, classes[row], *weights[row].tolist()]
                self.lines[name].append("\t".join(map(str, fields)))
        return fitted
