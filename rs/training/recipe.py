"""From ``params.yaml`` to what trains one classifier: a data set, a method, a noise level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rs import params
from rs.errors import InputError
from rs.methods import method_class
from rs.methods.base import Method
from rs.models import architectures
from rs.training.settings import Training


@dataclass(frozen=True)
class Recipe:
    """How to train one method on one data set at one noise level."""

    architecture: str  # of this project, or the name of a registered network of the user's
    name: str  # of the method
    method: Method
    hyperparameters: dict[str, Any]  # of the method, as the parameters hold them
    training: Training
    weights: str | None = None  # safetensors file that the training starts from


def training_recipe(values: dict[str, Any], dataset: str, method: str, sigma: float) -> Recipe:
    """Return the recipe of a method at a noise level: ``model``, ``training`` and ``METHOD`` of ``recipes.DATASET``.

    ``rs.params.merge_recipe`` merges each with the defaults, as for what DVC sees of a training.

    Args:
        values: The parameters, as ``rs.params.read_params`` returns them.
        dataset: Name of the recipe.
        method: Key of ``rs.methods.METHODS``.
        sigma: Noise standard deviation, in pixels of [0, 1].
    Raises:
        InputError: If a section, a key, the architecture or the method is unknown, missing or out of range.
    """
    kind = method_class(method)
    if not 0 < sigma < math.inf:
        raise InputError(f"sigma must be positive and finite, got {sigma}; it is the noise std in pixels of [0, 1]")
    where, sections = f"recipes.{dataset}", params.merge_recipe(values, dataset, method, sigma)
    (network, network_origins), (hyperparameters, origins), (training, training_origins) = sections.values()
    model = params.validate(Model, network, f"{where}.model", network_origins)
    architecture = model.network or model.architecture
    architectures.check_architecture(architecture)
    recipe = Recipe(
        architecture=architecture,
        name=method,
        method=params.validate(kind, hyperparameters, f"{where}.{method}", origins),
        hyperparameters=hyperparameters,
        training=params.validate(Training, training, f"{where}.training", training_origins),
        weights=model.weights,
    )
    batch, steps = recipe.training.batch, recipe.method.steps_per_batch
    if batch < steps:
        raise InputError(
            f"params.yaml: {training_origins['batch']}.batch must be at least the draws of {method}, {steps}, because "
            f"a step takes batch // draws images; got {batch}"
        )
    return recipe


@params.validated
class Model:
    """The network; section ``recipes.DATASET.model`` of params.yaml."""

    architecture: str
    network: str | None = None  # package.module:function of the user's own, in place of an architecture
    weights: str | None = None  # safetensors file that its training starts from; null: the weights that it returns
