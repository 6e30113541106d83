"""Settings of a training, options of one run, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from rs.errors import InputError
from rs.models import Engine, Precision
from rs.params import MAX_SIDE, Count, NonNegative, NonNegativeCount, Positive, validated
from rs.statistics.certificate import MIN_ALPHA

HISTORY = (
    "epoch", "updates", "learning_rate", "loss", "cross_entropy", "robustness", "accuracy", "gradient_norm",
    "hinge_share", "acr",
)  # fmt: skip
"""Columns of ``history.csv``: means over the steps of an epoch, empty where a method or an epoch has no such number."""

TIMING = ("epoch", "seconds")
"""Columns of ``timing.csv``: training seconds up to the end of the epoch, evaluation excluded."""


@validated
class Training:
    """Settings of a training by any method; section ``recipes.DATASET.training`` of params.yaml."""

    epochs: Count
    batch: Count  # noisy copies in an optimiser step of a chunked method, images in one of the others
    learning_rate: Positive  # the first one of schedule step, the largest one of schedule linear
    schedule: Literal["step", "linear"]
    milestones: list[Count]  # schedule step: epochs after which the learning rate is multiplied by `decay`
    decay: Positive
    ramp: Annotated[float, Field(gt=0, lt=1)]  # schedule linear: share of the training in which the rate rises from 0
    momentum: NonNegative
    weight_decay: NonNegative
    clip_norm: Positive | None  # largest norm of the gradient; null for none
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None  # of the average of weights over steps; null: the last ones
    crop: Annotated[int, Field(ge=0, le=MAX_SIDE)]  # zero padding of the random crop, pixels
    flip: bool  # random horizontal flip
    precision: Precision  # of forward and backward passes; losses are float32 either way
    engine: Engine  # how the network runs (rs.training.attack_backend): the losses are the same but for rounding
    checkpoint_every: Count  # epochs between two checkpoints
    eval_every: NonNegativeCount  # epochs between two quick ACRs; 0 for none
    eval_images: Count  # first images of the evaluation split
    eval_n0: Count  # draws of a quick certificate
    eval_n: Count
    eval_alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """One run of a recipe: what stands on the command line, not in params.yaml."""

    sigma: float  # noise standard deviation, in pixels of [0, 1]
    seed: int  # of every random number
    device: torch.device  # where to train
    workers: int = 0  # processes that read images from disk, for data sets that are not in memory
    seconds: float | None = None  # end with the epoch in which so many seconds have passed, evaluation excluded
    from_scratch: bool = False  # draw the weights of a user's network anew
    on_epoch: Callable[[dict[str, Any]], None] | None = None  # called with the row of the history
    trainable: str = "all"  # "all", "head" (the last linear layer), or a regular expression of parameters' names

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:  # a card holds no other
            raise InputError(f"seed must be at least 0 and below 2^63, got {self.seed}; it names the random numbers")


@dataclass
class Progress:
    """Progress of a training: what a checkpoint holds beside model and velocities."""

    epoch: int = 0  # epochs finished
    updates: int = 0  # optimiser steps taken
    seconds: float = 0.0  # spent in training, evaluation excluded
    history: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
