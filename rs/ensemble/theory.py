"""The paper's theory of a pool's ensembles in numbers, as means over test images.

Of ensembles that differ in their seeds alone it is the theory of the first one.
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
"""``other_class``: share of the images whose weights come from the margins of another class than
the label.
"""


class ImageWeights(NamedTuple):
    """Weights of an ensemble for each of several images, and the classes whose margins choose them."""

    weights: NDArray[np.float64]  # (B, L)
    classes: NDArray[np.int64]  # (B,)


class EnsembleTheory:
    """Variances of margins, and lower bounds on the probability of the label, collected over chunks
    of test images.
    """

    def __init__(
        self, specs: Mapping[str, EnsembleSpec], averages: Mapping[str, EnsembleSpec]
    ) -> None:
        self.spread_specs = first_of_each(specs, lambda declaration: declaration.kind)
        self.bound_specs = first_of_each(
            averages, lambda declaration: (declaration.kind, declaration.key)
        )
        self._spreads: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}
        self._bounds: dict[tuple[str, str, str], list[NDArray[np.float64]]] = {}

    def add(
        self,
        outputs: MemberOutputs,
        images: Images,
        chunk: Chunk,
        image_weights: Mapping[str, ImageWeights],
    ) -> None:
        """Take in the outputs on some images; ``image_weights`` are those solved image by image, by
        ensemble.
        """
        plain = margins(
            outputs.unperturbed(outputs.settings.noises).probabilities(images, chunk.indices),
            chunk.labels,
        )
        perturbed = margins(chunk.probabilities, chunk.labels)
        for spec in self.spread_specs.values():
            member_ids, methods = (
                outputs.member_ids(spec),
                [member.method for member in spec.members],
            )
            for source, covariances in (
                ("perturbed", moments(perturbed[:, member_ids]).covariances),
                ("trained", ensemble_variance.trained_covariances(plain[:, member_ids], methods)),
            ):
                key = (spec.declaration.kind, spec.declaration.name, source)
                self._spreads.setdefault(key, []).append(
                    _spread(covariances, chunk.labels, methods)
                )
        # weights are not judged by the draws that chose them
        fresh = margins(outputs.probabilities(images, chunk.indices, repeat=1), chunk.labels)
        for slug, spec in self.bound_specs.items():
            weights, classes = image_weights.get(slug) or _fixed_weights(spec, chunk.labels)
            bounds = ensemble_variance.chebyshev_bounds(
                fresh[:, outputs.member_ids(spec)], chunk.labels, weights
            )
            columns = [bounds.weighted, bounds.minimum, bounds.measured, classes != chunk.labels]
            key = (spec.declaration.kind, spec.declaration.name, spec.declaration.key)
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
    weights = np.asarray(
        spec.fitted.weights if isinstance(spec.fitted, FittedWeights) else [1 / count] * count
    )
    return ImageWeights(np.broadcast_to(weights, (len(labels), count)), labels)


def _spread(
    covariances: NDArray[np.float64], labels: NDArray[np.int64], methods: list[str]
) -> NDArray[np.float64]:
    """Return alpha, beta (as means over wrong classes), variance, within and across of each image,
    (B, 5).
    """
    wrong = np.arange(covariances.shape[1]) != labels[:, None]  # (B, K)
    alpha_beta = (
        ensemble_variance.spread(covariances)
        if len(methods) > 1
        else (np.full(wrong.shape, np.nan),) * 2
    )
    means = [
        np.where(wrong, values, 0.0).sum(axis=-1) / wrong.sum(axis=-1) for values in alpha_beta
    ]
    return np.stack(
        [*means, *ensemble_variance.mean_covariances(covariances, labels, methods)], axis=-1
    )


def _means(
    columns: Sequence[str], key: tuple[str, ...], parts: Sequence[NDArray[np.float64]]
) -> dict[str, Any]:
    """Return a line of a table: what it is of, the number of images, and means over them."""
    values = np.concatenate(parts)
    numbers = [
        len(values),
        *(None if np.isnan(mean) else mean for mean in values.mean(axis=0).tolist()),
    ]
    return dict(zip(columns, [*key, *numbers], strict=True))
