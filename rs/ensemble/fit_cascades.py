"""Fitting the thresholds of cascades, on noisy copies of images that certify nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from rs.data.prepared import Images
from rs.ensemble.cascade import accumulate, top_two_gap
from rs.ensemble.member_outputs import MemberOutputs
from rs.ensemble.spec import EnsembleSpec, FittedThresholds
from rs.statistics.cascade_thresholds import fit_thresholds

Stages = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Of the averages of the first 1, ..., L - 1 members: leads, and where their class is not that of all; (L - 1, N)."""


def fit_cascades(
    member_outputs: MemberOutputs, specs: Mapping[str, EnsembleSpec], images: Images, split: str
) -> dict[str, EnsembleSpec]:
    """Return the cascades whose thresholds are left to be fitted, with thresholds.

    As many noisy copies of an image are drawn as the fit of weights has outputs of it, ``noises * copies``; the members
    are not perturbed, because thresholds are about these members.

    Args:
        member_outputs: The members of the pool.
        specs: Ensembles of the pool, by name.
        images, split: The split to fit on, of which ``WeightSettings.images`` are taken, and its name.
    """
    unfitted = {slug: spec for slug, spec in specs.items() if spec.combination.thresholds == "fitted"}
    if not unfitted:
        return {}
    settings = member_outputs.settings
    draws, chosen = settings.noises * settings.copies, settings.fitting_images(images)
    used = member_outputs.only({pair for spec in unfitted.values() for pair in spec.declaration.members})
    used = replace(used, settings=replace(settings, noises=draws))
    found: dict[str, list[Stages]] = {slug: [] for slug in unfitted}
    for indices in used.parts(images, chosen, draws):
        probabilities = torch.from_numpy(used.probabilities(images, indices, perturbed=False))  # (B, L, n, K)
        for slug, spec in unfitted.items():
            found[slug].append(_stages(probabilities[:, used.numbers(spec)].transpose(0, 1).flatten(1, 2)))
    return {
        slug: replace(spec, fitted=_fitted(spec, found[slug], split, len(chosen), draws))
        for slug, spec in unfitted.items()
    }


def _stages(probabilities: torch.Tensor) -> Stages:
    """Leads, and where the class is another one than at the end, of probabilities (L, N, K)."""
    members, sums = len(probabilities), [accumulate(None, probabilities[0], len(probabilities))]
    for values in probabilities[1:]:
        sums.append(accumulate(sums[-1], values, members))
    classes = torch.stack(sums).max(dim=-1).indices
    found = [top_two_gap(total, asked, members) for asked, total in enumerate(sums[:-1], start=1)]
    return torch.stack(found).numpy(), (classes[:-1] != classes[-1]).numpy()


def _fitted(spec: EnsembleSpec, parts: Sequence[Stages], split: str, images: int, draws: int) -> FittedThresholds:
    share = spec.combination.share
    assert share is not None  # it is left to be fitted
    leads_found, differs = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    fit = fit_thresholds(leads_found, differs, share)
    return FittedThresholds(
        thresholds=[*fit.thresholds],
        split=split,
        images=images,
        draws=draws,
        share=fit.share,
        evaluations=fit.evaluations,
    )
