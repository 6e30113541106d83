"""What a caller sets in place of the values of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rs.errors import InputError
from rs.recipes import replace_in_recipe


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Settings of one training that replace those of its recipe; ``None`` keeps the recipe's."""

    network: str | None = None  # name of a registered network of the user's
    weights: str | None = None  # file or model folder that the training starts from
    hyperparameters: dict[str, Any] = field(default_factory=dict)  # of the method
    training: dict[str, Any] = field(default_factory=dict)  # of the section ``training``

    def apply(self, values: dict[str, Any], dataset: str, method: str) -> dict[str, Any]:
        """Return parameters whose recipe ``recipes.DATASET`` has these settings.

        Args:
            values: The parameters, as :func:`rs.params.read_params` returns them.
            dataset: Name of the recipe.
            method: The training method.
        """
        model: dict[str, Any] = {}
        if self.network is not None:
            model = {"network": self.network, "weights": None}
        if self.weights is not None:
            model["weights"] = self.weights
        _check_optimizer(self.training)
        if model:
            values = replace_in_recipe(values, dataset, "model", model)
        values = replace_in_recipe(values, dataset, method, self.hyperparameters)
        return replace_in_recipe(values, dataset, f"{method}.training", self.training)


def _check_optimizer(training: dict[str, Any]) -> None:
    """Check that another optimizer than the recipe's has a learning rate of its own."""
    optimizer = training.get("optimizer", "sgd")
    if optimizer != "sgd" and "learning_rate" not in training:
        raise InputError(
            f"the optimizer {optimizer} must have a learning rate of its own, because that of the "
            "recipe is for sgd; give --lr, in Python training={'learning_rate': ...}, such as 0.001"
        )
