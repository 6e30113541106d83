"""The paper's theory of a pool's ensembles in numbers, as means over test images.

Ensembles that differ only in their seeds are represented by the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rs.data.prepared import Images
from rs.ensemble.member_outputs import Chunk, MemberOutputs, margins
from rs.ensemble.spec import EnsembleSpec, FittedWeights, first_of_each
from rs.statistics import ensemble_variance
from rs.statistics.ensemble_weights import moments
from rs.study.ensembles import composition

SPREADS = (
    "ensemble",
    "members",
    "source",
    "images",
    "alpha",
    "beta",
    "variance",
    "within",
    "across",
)
BOUNDS = (
    "ensemble",
    "members",
    "combination",
    "images",
    "bound",
    "bound_minimum",
    "measured",
    "other_class",
)
"""``other_class``: share of images whose weights come from margins of another class than the label.
"""


class ImageWeights(NamedTuple):
    """Weights of an ensemble for several images, and the classes whose margins choose them."""

    weights: NDArray[np.float64]  # (B, L)
    classes: NDArray[np.int64]  # (B,)


class EnsembleTheory:
    """Variances of margins, and lower bounds on the probability of the label, over test images."""

    def __init__(
        self, specs: Mapping[str, EnsembleSpec], averages: Mapping[str, EnsembleSpec]
    ) -> None:
        self.spread_specs = first_of_each(specs, by_combination=False)
        self.bound_specs = first_of_each(averages)
        self._spreads: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}
        self._bounds: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}

    def add(
        self,
        outputs: MemberOutputs,
        images: Images,
        chunk: Chunk,
        image_weights: Mapping[str, ImageWeights],
    ) -> None:
        """Add a chunk of test images to the statistics.

        ``image_weights``: by ensemble, weights (B, L) that were fitted for each image.
        """
        labels = chunk.labels
        unperturbed = outputs.unperturbed(outputs.settings.noises)
        plain = margins(unperturbed.probabilities(images, chunk.indices), labels)
        perturbed = margins(chunk.probabilities, labels)
        for spec in self.spread_specs.values():
            member_ids = outputs.member_ids(spec)
            methods = [member.method for member in spec.members]
            covariances_by_source = {
                "perturbed": moments(perturbed[:, member_ids]).covariances,
                "trained": ensemble_variance.trained_covariances(plain[:, member_ids], methods),
            }
            for source, covariances in covariances_by_source.items():
                key = (composition(spec.declaration.members), spec.declaration.name, source)
                values = _spread(covariances, labels, methods)
                self._spreads.setdefault(key, []).append(values)
        # weights are not judged by the samples that chose them
        fresh = margins(outputs.probabilities(images, chunk.indices, repeat=1), labels)
        for name, spec in self.bound_specs.items():
            weights, classes = image_weights.get(name) or _fixed_weights(spec, labels)
            own_margins = fresh[:, outputs.member_ids(spec)]
            bounds = ensemble_variance.chebyshev_bounds(own_margins, labels, weights)
            columns = [bounds.weighted, bounds.minimum, bounds.measured, classes != labels]
            declared = spec.declaration
            key = (composition(declared.members), declared.name, declared.key)
            self._bounds.setdefault(key, []).append(np.stack(columns, axis=-1))

    def spread_rows(self) -> list[dict[str, Any]]:
        """Return the lines of ``spreads.csv``."""
        return [_means(SPREADS, key, parts) for key, parts in self._spreads.items()]

    def bound_rows(self) -> list[dict[str, Any]]:
        """Return the lines of ``bounds.csv``."""
        return [_means(BOUNDS, key, parts) for key, parts in self._bounds.items()]


def _fixed_weights(spec: EnsembleSpec, labels: NDArray[np.int64]) -> ImageWeights:
    """Return the weights that an ensemble has for all images."""
    count = len(spec.members)
    weights = [1 / count] * count
    if isinstance(spec.fitted, FittedWeights):
        weights = spec.fitted.weights
    return ImageWeights(np.broadcast_to(weights, (len(labels), count)), labels)


def _spread(
    covariances: NDArray[np.float64], labels: NDArray[np.int64], methods: list[str]
) -> NDArray[np.float64]:
    """Return alpha, beta, variance, within and across of each image, (B, 5).

    alpha and beta are means over wrong classes.
    """
    is_wrong = np.arange(covariances.shape[1]) != labels[:, None]  # (B, K)
    alpha = beta = np.full(is_wrong.shape, np.nan)
    if len(methods) > 1:
        alpha, beta = ensemble_variance.spread(covariances)
    columns = []
    for values in (alpha, beta):
        total = np.where(is_wrong, values, 0.0).sum(axis=-1)
        columns.append(total / is_wrong.sum(axis=-1))
    columns += ensemble_variance.mean_covariances(covariances, labels, methods)
    return np.stack(columns, axis=-1)


def _means(
    columns: Sequence[str], key: tuple[str, ...], parts: Sequence[NDArray[np.float64]]
) -> dict[str, Any]:
    """Return a line of a table: its key, the number of images, and means over them."""
    values = np.concatenate(parts)
    means = values.mean(axis=0).tolist()
    numbers = [None if np.isnan(mean) else mean for mean in means]
    return dict(zip(columns, [*key, len(values), *numbers], strict=True))
