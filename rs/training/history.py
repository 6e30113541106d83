"""What a training run reports: numbers of each step, rows of its history, and quick ACRs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rs.data.prepared import Images
from rs.methods.base import Step
from rs.runtime.device import precision_on
from rs.runtime.streams import Stream, derived_seed
from rs.smoothing.classifier import SmoothedClassifier
from rs.training.recipe import RunOptions, Training

STEP_NUMBERS = ("loss", "cross_entropy", "robustness", "accuracy", "gradient_norm", "hinge_share")
"""Numbers of one step."""

HISTORY = ("epoch", "updates", "learning_rate", *STEP_NUMBERS, "acr")
"""Columns of ``history.csv``: means over an epoch, empty if it does not have the number."""

TIMING = ("epoch", "seconds")
"""Columns of ``timing.csv``: training seconds up to the end of the epoch, evaluation excluded."""


@dataclass
class Progress:
    """Progress of a training run: what a checkpoint holds besides model and optimizer."""

    epoch: int = 0  # epochs finished
    updates: int = 0  # optimizer steps taken
    seconds: float = 0.0  # spent in training, evaluation excluded
    history: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)

    def describe(self) -> str:
        """Return what the last epoch gave, for a line of progress."""
        row = self.history[-1]
        texts = [f"loss {row['loss']:.3f}"]
        if row["accuracy"] is not None:
            texts.append(f"accuracy under noise {row['accuracy']:.1%}")
        if row["acr"] is not None:
            texts.append(f"ACR {row['acr']:.3f}")
        return ", ".join(texts)


def step_numbers(result: Step, norm: Tensor) -> Tensor:
    """Return the numbers of one step, shape (6,): :data:`STEP_NUMBERS`."""
    hinge = result.hinge_share
    if hinge is None:
        hinge = torch.full_like(result.loss, math.nan)
    values = (result.loss, result.cross_entropy, result.robustness, result.accuracy, norm, hinge)
    return torch.stack([value.detach().float() for value in values])


def named_means(values: Sequence[float]) -> dict[str, Any]:
    """Return means of :data:`STEP_NUMBERS` by name; ``None`` for those that a method lacks."""
    means: dict[str, Any] = {}
    for name, value in zip(STEP_NUMBERS, values, strict=True):
        is_missing = name in ("hinge_share", "accuracy") and math.isnan(value)
        means[name] = None if is_missing else value
    return means


def quick_acr(model: nn.Module, images: Images, settings: Training, options: RunOptions) -> float:
    """Return the ACR of a few noise samples on images that are spread evenly over the split.

    Its seed is derived, so a choice by it has not seen the noise of a certificate.
    """
    classifier = SmoothedClassifier(
        model,
        images.meta.num_classes,
        options.sigma,
        precision=precision_on(options.device, settings.precision),
        noise="gaussian",
        bounds=options.bounds,
    )
    seed = derived_seed(options.seed, Stream.EVALUATE)
    scores = []  # their mean is metrics.acr, whose module takes half a second to import
    count = min(settings.eval_images, len(images))
    for index in np.linspace(0, len(images) - 1, count).astype(int).tolist():
        label = int(images.labels[index])
        certificate = classifier.certify(
            images.pixels(index),
            settings.eval_n0,
            settings.eval_n,
            settings.eval_alpha,
            seed=seed,
            index=index,
            label=label,
        )
        scores.append(certificate.radius * (certificate.predict == label))
    return float(np.mean(scores))
