"""Weights, or a choice of members, of the largest average certified radius (``rs.statistics.radius_weights``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rs.data.prepared import Images
from rs.ensemble.member_outputs import MemberOutputs
from rs.ensemble.perturbation import margins
from rs.ensemble.spec import EnsembleSpec, FittedWeights
from rs.statistics.radius_weights import DisputedDraws, chosen_weights, radius_weights


def fit_radius(
    member_outputs: MemberOutputs,
    specs: Mapping[str, EnsembleSpec],
    images: Images,
    split: str,
) -> dict[str, EnsembleSpec]:
    """Return ensembles with the weights that fit images of a split best; each as it would be alone."""
    if not specs:
        return {}
    outputs = member_outputs.only({pair for spec in specs.values() for pair in spec.declaration.members}).unperturbed()
    chunks = outputs.chunks(images, outputs.settings.fitting_images(images))
    disputed = DisputedDraws.joined(
        [DisputedDraws.of(margins(chunk.perturbed, chunk.labels), chunk.labels) for chunk in chunks]
    )
    return {slug: _fitted(spec, disputed.of_members(outputs.numbers(spec)), split) for slug, spec in specs.items()}


def _fitted(spec: EnsembleSpec, disputed: DisputedDraws, split: str) -> EnsembleSpec:
    number = spec.combination.chosen
    found = radius_weights(disputed) if number is None else chosen_weights(disputed, number)
    fitted = FittedWeights(
        weights=list(found.weights),
        split=split,
        images=disputed.images,
        used_share=disputed.used_share,
        shrinkage=found.shrinkage,
    )
    return replace(spec, fitted=fitted)
