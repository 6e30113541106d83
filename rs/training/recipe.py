"""From ``params.yaml`` to what trains one classifier: a data set, a method, a noise level; and
options of one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from rs import params
from rs.errors import InputError
from rs.methods import method_class
from rs.methods.base import Method
from rs.models import Engine, PrecisionChoice, architectures
from rs.params import MAX_SIDE, Count, NonNegative, NonNegativeCount, Positive, validated
from rs.statistics.certificate import MIN_ALPHA


@validated
class Model:
    """The network; section ``recipes.DATASET.model`` of params.yaml."""

    architecture: str | None = None
    network: str | None = (
        None  # package.module:function of the user's own, in place of an architecture
    )
    # file or model folder that training starts from, {seed} for its own; null: those it is built
    # with
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.architecture is None and self.network is None:
            raise ValueError("one of architecture, network must be given")


@validated
class Training:
    """Settings of a training by any method; section ``recipes.DATASET.training`` of params.yaml."""

    epochs: Count
    batch: (
        Count  # noisy copies in an optimiser step of a chunked method, images in one of the others
    )
    learning_rate: Positive  # the first one of schedule step, the largest one of schedule linear
    schedule: Literal["step", "linear"]
    milestones: list[
        Count
    ]  # schedule step: epochs after which the learning rate is multiplied by `decay`
    decay: Positive
    ramp: Annotated[
        float, Field(gt=0, lt=1)
    ]  # schedule linear: share of the training in which the rate rises from 0
    momentum: NonNegative
    nesterov: bool
    weight_decay: NonNegative
    clip_norm: Positive | None  # largest norm of the gradient; null for none
    ema_decay: (
        Annotated[float, Field(gt=0, lt=1)] | None
    )  # of the average of weights over steps; null: the last ones
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


@dataclass(frozen=True)
class Recipe:
    """How to train one method on one data set at one noise level."""

    architecture: str  # of this project, or the name of a registered network of the user's
    name: str  # of the method
    method: Method
    hyperparameters: dict[str, Any]  # of the method, as the parameters hold them
    training: Training
    weights: str | None = None  # safetensors file or model folder that the training starts from


def training_recipe(values: dict[str, Any], dataset: str, method: str, sigma: float) -> Recipe:
    """Return the recipe of a method at a noise level: ``model``, ``training`` and ``METHOD`` of
    ``recipes.DATASET``.

    ``rs.params.merge_recipe`` merges each with the defaults, as for what DVC sees of a training.

    Args:
        values: The parameters, as ``rs.params.read_params`` returns them.
        dataset: Name of the recipe.
        method: Key of ``rs.methods.METHODS``.
        sigma: Noise standard deviation, in pixels of [0, 1].
    Raises:
        InputError: If a section, a key, the architecture or the method is unknown, missing or out
            of range.
    """
    kind = method_class(method)
    where, sections = f"recipes.{dataset}", params.merge_recipe(values, dataset, method, sigma)
    (network, network_origins), (hyperparameters, origins), (training, training_origins) = (
        sections.values()
    )
    model = params.validate(Model, network, f"{where}.model", network_origins)
    architecture = model.network or model.architecture or ""  # one is given
    architectures.check_architecture(architecture)
    # of a user's images all have targets, so none can be held out
    unmeasured = model.network is not None and hasattr(kind, "needs_targets")
    not_measured = {"eval_every": 0} if unmeasured else {}
    return Recipe(
        architecture=architecture,
        name=method,
        method=params.validate(kind, hyperparameters, f"{where}.{method}", origins),
        hyperparameters=hyperparameters,
        training=params.validate(
            Training, training | not_measured, f"{where}.training", training_origins
        ),
        weights=model.weights,
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """One run of a recipe: what stands on the command line, not in params.yaml."""

    sigma: float  # noise standard deviation, in pixels of [0, 1]
    seed: int  # of every random number
    device: torch.device  # where to train
    workers: int = 0  # processes that read images from disk, for data sets that are not in memory
    seconds: float | None = None  # train for this long instead of epochs, evaluation excluded
    from_scratch: bool = False  # draw the weights of a user's network anew
    on_epoch: Callable[[dict[str, Any]], None] | None = None  # called with the row of the history
    targets: Path | None = (
        None  # file of the targets, for methods that need them (rs.training.image_votes)
    )
    trainable: str = (
        "all"  # "all", "head" (the last linear layer), or a regular expression of parameters' names
    )

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:  # a card holds no other
            raise InputError(
                f"seed must be at least 0 and below 2^63, got {self.seed}; it names the random "
                "numbers"
            )
