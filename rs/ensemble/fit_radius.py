"""Weights, or a choice of members, of the largest average certified radius (``rs.statistics.radius_weights``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rs.data.format import Images, Meta
from rs.ensemble.member_outputs import MemberOutputs
from rs.ensemble.perturbation import margins
from rs.ensemble.spec import EnsembleSpec, FittedWeights
from rs.statistics.radius_weights import Contests, chosen_weights, radius_weights


def fitting_split(meta: Meta) -> str:
    """Return the split that weights are fitted to: of images that no member was trained on, where there is one."""
    return "validation" if "validation" in meta.sizes else "train"


def fit_radius(
    member_outputs: MemberOutputs,
    specs: Mapping[str, EnsembleSpec],
    images: Images,
    chosen: NDArray[np.int64],
    split: str,
) -> dict[str, EnsembleSpec]:
    """Return ensembles with the weights that fit the images ``chosen`` of a split best; each as it would be alone."""
    if not specs:
        return {}
    outputs = member_outputs.only({pair for spec in specs.values() for pair in spec.declaration.members}).unperturbed()
    chunks = outputs.chunks(images, chosen)
    contests = Contests.joined([Contests.of(margins(chunk.perturbed, chunk.labels), chunk.labels) for chunk in chunks])
    return {slug: _fitted(spec, contests.of_members(outputs.numbers(spec)), split) for slug, spec in specs.items()}


def _fitted(spec: EnsembleSpec, contests: Contests, split: str) -> EnsembleSpec:
    number = spec.combination.chosen
    found = radius_weights(contests) if number is None else chosen_weights(contests, number)
    fitted = FittedWeights(
        weights=list(found.weights),
        split=split,
        images=contests.images,
        used_share=contests.used_share,
        shrinkage=found.shrinkage,
    )
    return replace(spec, fitted=fitted)
