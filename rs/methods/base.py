"""The interface of training methods, and what a step reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from pydantic import with_config
from torch import Generator, Tensor, nn
from typing_extensions import TypedDict

from rs.params import PIXELS, STRICT, Bounds, Count, NonNegativeCount, Positive, validated

Accuracies = Callable[[Tensor, int], Tensor]
"""From numbers of training images and of samples to the share of correct noisy copies of each."""


@dataclass(frozen=True)
class Step:
    """Loss of one training step and its parts; scalars, on the device."""

    loss: Tensor  # what is minimized
    cross_entropy: Tensor  # its classification term
    robustness: Tensor  # its robustness term, weight included; loss = cross_entropy + robustness
    accuracy: Tensor  # share of noisy copies classified correctly
    hinge_share: Tensor | None = None  # share of images in the radius hinge, if there is one


class Method(Protocol):
    """A training method: hyperparameters and one loss.

    A new method is one file, one line in ``rs.methods.METHODS`` and one section of params.yaml.
    """

    @property
    def steps_per_batch(self) -> int:
        """Number of optimizer steps per batch, each on ``batch // steps_per_batch`` images."""

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, *, sigma: float, rng: Generator, epoch: int
    ) -> Step:
        """Compute the loss of one optimizer step; :class:`NeedsTargets` gives another argument.

        Args:
            model: In train mode; images (N, C, H, W), or other inputs (N, ...) -> logits (N, K).
            x: Images, shape (B, C, H, W), in [0, 1], or other inputs (B, ...).
            y: Labels, shape (B,).
            sigma: Noise standard deviation, in pixels of [0, 1].
            rng: Stream of every random number of this step, on the device of ``x``.
            epoch: Epochs finished so far, for warm-ups.
        """


@validated
class SeveralDraws:
    """Hyperparameter of methods with several noisy copies per image, ``batch`` per batch."""

    draws: Count

    @property
    def steps_per_batch(self) -> int:
        """A step takes ``batch // draws`` images."""
        return self.draws


@validated
class ClippedAttack:
    """The setting of methods whose attack moves inputs and clips them to their bounds."""

    bounds: Bounds = PIXELS  # set by :func:`within`


def within(method: Any, bounds: Bounds) -> Any:
    """Return a method whose attack, if it clips, stays within the bounds of inputs."""
    return replace(method, bounds=bounds) if isinstance(method, ClippedAttack) else method


@with_config(STRICT)
class TargetSettings(TypedDict):
    """How targets are made: a Gaussian network votes on noisy copies of the training images."""

    sigma: Positive  # noise of the network's training and of the copies, in pixels of [0, 1]
    epochs: Count  # of the network's training
    draws: Count  # noisy copies of an image
    seed: NonNegativeCount  # of the network and of the votes


@runtime_checkable
class NeedsTargets(Protocol):
    """A method whose loss has the argument ``targets``: class probabilities (B, K)."""

    @property
    def targets(self) -> TargetSettings:
        """How a training run makes them, unless it is given a file."""


@runtime_checkable
class WeightsImages(Protocol):
    """A method that says before each epoch how often each training image is drawn."""

    def image_weights(self, epoch: int, weights: Tensor, accuracies: Accuracies) -> Tensor | None:
        """Return the probabilities (N,) by which an epoch draws images; ``None`` shuffles them.

        A method can keep nothing else from one epoch to the next: only they are in checkpoints.

        Args:
            epoch: Epochs finished so far.
            weights: Probabilities of the epoch before, equal at first; float64, on the CPU.
            accuracies: Measures the current model, in eval mode, on images without crop or flip,
                with new noise at each call; returns float64 on the CPU.
        """


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the share of correct noisy copies: logits (B, M, K), labels (B,) -> scalar."""
    return (logits.detach().argmax(dim=-1) == y.unsqueeze(1)).float().mean()


def warmed_up(value: float, epoch: int, epochs: int) -> float:
    """Return a linear warm-up: min(value, (epoch + 1) * value / epochs), none for 0 or 1 epochs.

    >>> [warmed_up(1.0, epoch, 4) for epoch in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return value * min(1.0, (epoch + 1) / max(epochs, 1))


def warmed_up_steps(steps: int, epoch: int, epochs: int) -> int:
    """Return the attack steps of an epoch, which rise from 0 to ``steps`` within ``epochs``.

    Each number of steps from 0 to ``steps`` gets an equal share of these epochs.

    >>> [warmed_up_steps(2, epoch, 6) for epoch in range(7)]
    [0, 0, 1, 1, 2, 2, 2]
    """
    if epochs == 0:
        return steps
    return min(steps, (steps + 1) * epoch // epochs)
