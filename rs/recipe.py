"""From ``params.yaml`` to the objects of one cell: a data set, a method, a noise level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rs import params
from rs.errors import InputError
from rs.methods import METHODS, Method
from rs.train import Training


@dataclass(frozen=True)
class Recipe:
    """How to train one method on one data set at one noise level."""

    architecture: str
    name: str  # of the method
    method: Method
    hyperparameters: dict[str, Any]
    training: Training


def training_recipe(values: dict[str, Any], dataset: str, method: str, sigma: float) -> Recipe:
    """Read ``recipes.DATASET``: its ``model``, its ``training`` and its ``METHOD`` section.

    A method's own ``training`` overrides single values of the common one; every mapping from noise levels becomes its
    value at ``sigma``.

    Raises:
        InputError: If a section, a key or the method is unknown, missing or out of range.
    """
    if method not in METHODS:
        raise InputError(f"the method must be one of {', '.join(METHODS)}; got {method!r}")
    if not sigma > 0:
        raise InputError(f"sigma must be positive, got {sigma}; it is the noise std in pixels of [0, 1]")
    where = f"recipes.{dataset}"
    recipe = params.section(values, "recipes", dataset)
    architecture = params.check(Model, params.section(values, "recipes", dataset, "model"), f"{where}.model")
    own = params.for_sigma(params.section(values, "recipes", dataset, method), sigma, f"{where}.{method}")
    overrides = own.get("training", {}) if isinstance(own, dict) else {}
    hyperparameters = {key: value for key, value in (own or {}).items() if key != "training"}
    common = params.for_sigma(recipe.get("training", {}), sigma, f"{where}.training")
    return Recipe(
        architecture.architecture,
        method,
        params.check(METHODS[method], hyperparameters, f"{where}.{method}"),
        hyperparameters,
        params.check(Training, {**common, **overrides}, f"{where}.training (with {where}.{method}.training)"),
    )


@params.validated
class Model:
    """Section ``recipes.DATASET.model``."""

    architecture: str
