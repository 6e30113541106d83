"""The interface of training methods, and what a step reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Generator, Tensor, nn


@dataclass(frozen=True)
class Step:
    """Loss of one training step and its parts; scalars, on the device."""

    loss: Tensor  # what is minimised
    cross_entropy: Tensor  # its classification term
    robustness: Tensor  # its robustness term, weight included; loss = cross_entropy + robustness
    accuracy: Tensor  # share of noisy copies classified correctly
    hinge_share: Tensor | None = None  # share of images in the radius hinge, for the methods that have one


class Method(Protocol):
    """A training method: hyper-parameters and one loss. Adding one is one file, one dict line, one params section."""

    @property
    def steps_per_batch(self) -> int:
        """Number of optimiser steps that a batch makes, each on ``batch // steps_per_batch`` distinct images."""

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int) -> Step:
        """Compute the loss of one optimiser step.

        Args:
            model: In train mode; images in [0, 1] (N, C, H, W) -> logits (N, K).
            x: Images, shape (B, C, H, W), in [0, 1].
            y: Labels, shape (B,).
            sigma: Noise standard deviation, in pixels of [0, 1].
            rng: Stream of every random number of this step, on the device of ``x``.
            epoch: Epochs finished so far, for warm-ups.
        """


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the share of draws classified correctly: logits (B, M, K), labels (B,) -> scalar."""
    return (logits.detach().argmax(dim=-1) == y.unsqueeze(1)).float().mean()


def warmed_up(value: float, epoch: int, epochs: int) -> float:
    """Return a linear warm-up: min(value, (epoch + 1) * value / epochs); 0 or 1 epochs mean none.

    >>> [warmed_up(1.0, epoch, 4) for epoch in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return value * min(1.0, (epoch + 1) / max(epochs, 1))
