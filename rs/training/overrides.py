"""What a caller sets in place of the values of a recipe."""

from __future__ import annotations

from typing import Any

from rs.errors import InputError
from rs.recipes import replace_in_recipe


def override(
    values: dict[str, Any],
    dataset: str,
    method: str,
    *,
    training: dict[str, Any],
    hyperparameters: dict[str, Any] | None = None,
    network: str | None = None,
    weights: str | None = None,
) -> dict[str, Any]:
    """Return parameters whose recipe ``recipes.DATASET`` has other settings.

    Args:
        values: The parameters, as :func:`rs.params.read_params` returns them.
        dataset: Name of the recipe.
        method: The training method.
        training: Of the section ``training``.
        hyperparameters: Of the method.
        network: Name of a registered network of the user's; ``None`` keeps that of the recipe.
        weights: File or model folder that the training starts from; ``None`` keeps the recipe's.
    Raises:
        InputError: If another optimizer than the recipe's has no learning rate of its own.
    """
    optimizer = training.get("optimizer", "sgd")
    if optimizer != "sgd" and "learning_rate" not in training:
        raise InputError(
            f"the optimizer {optimizer} must have a learning rate of its own, because that of the "
            "recipe is for sgd; give --lr, in Python training={'learning_rate': ...}, such as 0.001"
        )
    if network is not None:
        start = {"network": network, "weights": None}
        values = replace_in_recipe(values, dataset, "model", start)
    if weights is not None:
        values = replace_in_recipe(values, dataset, "model", {"weights": weights})
    values = replace_in_recipe(values, dataset, method, hyperparameters or {})
    return replace_in_recipe(values, dataset, f"{method}.training", training)
