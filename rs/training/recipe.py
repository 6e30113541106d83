"""From ``params.yaml`` to the recipe of one classifier, and the options of one training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import Field, with_config
from typing_extensions import TypedDict

from rs import params, recipes
from rs.errors import InputError
from rs.methods import method_class
from rs.methods.base import Method, NeedsTargets
from rs.models import Engine, architectures
from rs.models.denoised import DENOISER_METHODS
from rs.params import (
    MAX_SIDE,
    PIXELS,
    STRICT,
    Bounds,
    Count,
    NonNegative,
    NonNegativeCount,
    Positive,
    validated,
)
from rs.runtime import PrecisionChoice
from rs.statistics.certificate import MIN_ALPHA


@validated
class Model:
    """The network; section ``recipes.DATASET.model`` of params.yaml."""

    architecture: str | None = None
    # package.module:function of the user's own, in place of an architecture
    network: str | None = None
    # file or model folder that training starts from; {seed} stands for the seed of the training;
    # null: the weights that the network is built with
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.architecture is None and self.network is None:
            raise ValueError("one of architecture, network must be given")


Share = Annotated[float, Field(gt=0, lt=1)]


OptimizerName = Literal["sgd", "adamw", "muon"]


@with_config(STRICT)
class WarmStart(TypedDict):
    """A short run of ``gaussian``, almost without noise, that training starts from."""

    sigma: Positive  # in pixels of [0, 1]; 0.001 is a quarter of a gray level
    epochs: Count


@validated
class Training:
    """Settings of training by any method; section ``recipes.DATASET.training`` of params.yaml."""

    epochs: Count
    # noisy copies in an optimizer step of a chunked method, images in one of the others
    batch: Count
    learning_rate: Positive  # the first one of schedule step, the largest one of the others
    schedule: Literal["step", "linear", "cosine"]
    # schedule step: epochs after which the learning rate is multiplied by `decay`
    milestones: list[Count]
    decay: Positive
    ramp: Share  # schedules linear, cosine: share of the training in which the rate rises from 0
    momentum: NonNegative  # of sgd
    nesterov: bool  # of sgd
    weight_decay: NonNegative  # of adamw and muon: not of norms and biases
    clip_norm: Positive | None  # largest norm of the gradient; null for none
    ema_decay: Share | None  # of the average of weights over steps; null: the last weights
    crop: Annotated[int, Field(ge=0, le=MAX_SIDE)]  # zero padding of the random crop, pixels
    flip: bool  # random horizontal flip
    precision: PrecisionChoice  # of forward and backward passes; losses are float32 either way
    # how the network runs (rs.training.attack_backend): the losses are equal up to rounding
    engine: Engine
    checkpoint_every: Count  # epochs between two checkpoints
    eval_every: NonNegativeCount  # epochs between two quick ACRs; 0 for none
    eval_images: Count  # spread evenly over the evaluation split
    eval_n0: Count  # draws of a quick certificate
    eval_n: Count
    eval_alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]
    warm_start: WarmStart | None = None  # null: from the weights that the network is built with
    optimizer: OptimizerName = "sgd"
    micro_batch: Count | None = None  # noisy images that the network takes at once; null: all

    def card(self) -> dict[str, Any]:
        """Return the settings for a card; a warm start has more to say, in an entry of its own."""
        settings = asdict(self)
        del settings["warm_start"]
        # What the cards of earlier versions do not state.
        if self.optimizer == "sgd":
            del settings["optimizer"]
        if self.micro_batch is None:
            del settings["micro_batch"]
        return settings


@dataclass(frozen=True)
class Recipe:
    """How to train one method on one data set at one noise level."""

    architecture: str  # of this project, or the name of a registered network of the user's
    name: str  # of the method
    sigma: float  # in pixels of [0, 1]
    method: Method
    hyperparameters: dict[str, Any]  # of the method, as the parameters hold them
    training: Training
    weights: str | None = None  # safetensors file or model folder that the training starts from
    warm_start: Recipe | None = None  # of a short training that comes before, as its start
    targets: Recipe | None = None  # of the network whose votes are the targets of the images

    def pretraining_card(self) -> dict[str, Any]:
        """Return what the card of a later training run says of this one."""
        return {"sigma": self.sigma, **self.training.card()}


def training_recipe(
    values: dict[str, Any], dataset: str, method: str, sigma: float, *, nearest: bool = False
) -> Recipe:
    """Return the recipe of a method at a noise level: ``model``, ``training`` and ``METHOD`` of
    ``recipes.DATASET``.

    ``rs.recipes.merge_recipe`` merges each with the defaults, as for the fingerprint of a cell.

    Args:
        values: The parameters, as ``rs.params.read_params`` returns them.
        dataset: Name of the recipe.
        method: Key of ``rs.methods.METHODS``.
        sigma: Noise standard deviation, in pixels of [0, 1].
        nearest: Whether the nearest noise level counts for values that have none for ``sigma``.
    Raises:
        InputError: If a section, a key, the architecture or the method is unknown, missing or out
            of range.
    """
    recipe = _recipe_without_pretraining(values, dataset, method, sigma, nearest)
    warm_start = recipe.training.warm_start
    if warm_start is not None:
        recipe = replace(recipe, warm_start=_pretraining(values, dataset, **warm_start))
    if isinstance(recipe.method, NeedsTargets):
        targets = recipe.method.targets
        network = _pretraining(values, dataset, targets["sigma"], targets["epochs"])
        recipe = replace(recipe, targets=network)
    return recipe


def _pretraining(values: dict[str, Any], dataset: str, sigma: float, epochs: int) -> Recipe:
    """Return a short training by the recipe's ``gaussian``, which a stop in any epoch continues."""
    recipe = _recipe_without_pretraining(values, dataset, params.PRETRAINING, sigma, nearest=True)
    training = replace(
        recipe.training,
        epochs=epochs,
        eval_every=0,
        checkpoint_every=1,
        warm_start=None,
    )
    return replace(recipe, training=training)


def _recipe_without_pretraining(
    values: dict[str, Any], dataset: str, method: str, sigma: float, nearest: bool
) -> Recipe:
    kind = method_class(method)
    where = f"recipes.{dataset}"
    sections = recipes.merge_recipe(values, dataset, method, sigma, nearest=nearest)
    network, network_origins = sections["model"]
    hyperparameters, origins = sections[method]
    training, training_origins = sections["training"]
    model = params.validate(Model, network, f"{where}.model", network_origins)
    architecture = model.network or model.architecture or ""  # one is given
    if model.network is None:  # a network may be registered later
        architectures.check_architecture(architecture)
    settings = params.validate(Training, training, f"{where}.training", training_origins)
    if settings.micro_batch is not None and method in DENOISER_METHODS:
        raise InputError(
            f"micro_batch must be null for {method}, got {settings.micro_batch}; lower batch"
        )
    return Recipe(
        architecture=architecture,
        name=method,
        sigma=sigma,
        method=params.validate(kind, hyperparameters, f"{where}.{method}", origins),
        hyperparameters=hyperparameters,
        training=settings,
        weights=model.weights,
    )


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
        network: Name of a registered user network; ``None`` keeps that of the recipe.
        weights: File or model folder that the training starts from; ``None`` keeps the recipe's.
    Raises:
        InputError: If adamw or muon has no learning rate of its own.
    """
    optimizer = training.get("optimizer", "sgd")
    is_known = optimizer in get_args(OptimizerName)
    if is_known and optimizer != "sgd" and "learning_rate" not in training:
        raise InputError(
            f"the optimizer {optimizer} must have a learning rate of its own, because that of the "
            "recipe is for sgd; give --lr, in Python training={'learning_rate': ...}, such as 0.001"
        )
    model: dict[str, str | None] = {}
    if network is not None:
        model = {"network": network, "weights": None}
    if weights is not None:
        model["weights"] = weights
    values = recipes.replace_in_recipe(values, dataset, "model", model)
    values = recipes.replace_in_recipe(values, dataset, method, hyperparameters or {})
    return recipes.replace_in_recipe(values, dataset, f"{method}.training", training)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one training run that are on the command line, not in params.yaml."""

    sigma: float  # noise standard deviation, in pixels of [0, 1]
    seed: int  # of every random number
    device: torch.device  # where to train
    workers: int = 0  # processes that read images from disk, for data sets that are not in memory
    seconds: float | None = None  # train for this long instead of epochs, evaluation excluded
    from_scratch: bool = False  # draw the weights of a user's network anew
    on_epoch: Callable[[dict[str, Any]], None] | None = None  # called with the row of the history
    # "all", "head" (the last linear layer), or a regular expression of parameters' names
    trainable: str = "all"
    bounds: Bounds = PIXELS  # of the inputs

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:  # a card holds no other
            raise InputError(
                f"seed must be at least 0 and below 2^63, got {self.seed}; it names the random "
                "numbers"
            )
