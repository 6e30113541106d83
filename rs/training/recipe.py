"""From ``params.yaml`` to the objects of one cell: a data set, a method, a noise level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rs import params
from rs.errors import InputError
from rs.methods import METHODS
from rs.methods.base import Method
from rs.training.settings import Training


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
    if not 0 < sigma < math.inf:
        raise InputError(f"sigma must be positive and finite, got {sigma}; it is the noise std in pixels of [0, 1]")
    where = f"recipes.{dataset}"
    architecture = params.check(Model, params.section(values, "recipes", dataset, "model"), f"{where}.model")
    own = _mapping(values, sigma, dataset, method)
    overrides = params.check(dict[str, Any], own.get("training", {}), f"{where}.{method}.training")
    hyperparameters = {key: value for key, value in own.items() if key != "training"}
    common = _mapping(values, sigma, dataset, "training")
    return Recipe(
        architecture.architecture,
        method,
        params.check(METHODS[method], hyperparameters, f"{where}.{method}"),
        hyperparameters,
        params.check(Training, {**common, **overrides}, f"{where}.training (with {where}.{method}.training)"),
    )


def _mapping(values: dict[str, Any], sigma: float, dataset: str, name: str) -> dict[str, Any]:
    """Section ``recipes.DATASET.NAME`` at a noise level; one that is left empty is an empty mapping."""
    where = f"recipes.{dataset}.{name}"
    found = params.for_sigma(params.section(values, "recipes", dataset, name), sigma, where)
    return params.check(dict[str, Any], {} if found is None else found, where)


@params.validated
class Model:
    """Section ``recipes.DATASET.model``."""

    architecture: str
