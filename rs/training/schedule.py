"""How far a training is, and the learning rate there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rs.training.recipe import Training


@dataclass(frozen=True)
class Schedule:
    """The length of a training and its learning rate, as a function of the share that is done."""

    settings: Training
    seconds: float | None  # length of the training, in place of the epochs of the settings

    def share(self, epochs: float, seconds: float) -> float:
        """Return the share of the training that is done; at 1 the training is over.

        Args:
            epochs: Epochs done, which count unless the seconds are limited.
            seconds: Seconds of training done.
        """
        if self.seconds is None:
            return epochs / self.settings.epochs
        if self.seconds == 0:
            return 1.0
        return min(1.0, seconds / self.seconds)

    def learning_rate(self, epochs: float, seconds: float) -> float:
        """Return the learning rate after so many epochs and seconds of training.

        Schedule ``step`` multiplies the rate by ``decay`` at each milestone. Schedule ``linear``
        raises it from 0 during the share ``ramp`` of the training, then lowers it to 0. Schedule
        ``cosine`` rises as ``linear`` does, then falls as half a wave of the cosine.
        """
        settings = self.settings
        share = self.share(epochs, seconds)
        if settings.schedule == "step":
            epochs_done = share * settings.epochs
            passed = [milestone for milestone in settings.milestones if milestone <= epochs_done]
            return settings.learning_rate * settings.decay ** len(passed)
        rising = share / settings.ramp
        falling = (1 - share) / (1 - settings.ramp)
        if settings.schedule == "cosine" and share > settings.ramp:
            falling = (1 - math.cos(math.pi * falling)) / 2
        return settings.learning_rate * min(rising, falling)
