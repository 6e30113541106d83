"""How long a certification takes on this machine, from two batches of forward passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rs.runtime import processes
from rs.runtime.progress import duration
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier, default_batch
from rs.smoothing.settings import Draws

LONG = 60.0
"""Seconds above which a certification says beforehand how long it takes."""

FEW = 20
"""Batches up to which a certification does not measure itself: that would take a tenth of its time or more."""


@dataclass(frozen=True)
class Forecast:
    """How long a certification takes: images x draws / rate."""

    images: int  # of the process that has the most
    draws: int  # of an image
    rate: float  # draws a second, of one process
    at_most: bool  # some draws may not be needed
    compiled: bool  # the network is compiled first

    @property
    def seconds(self) -> float:
        """Seconds of forward passes."""
        return self.images * self.draws / self.rate

    def __str__(self) -> str:
        """Return one line for people.

        >>> print(Forecast(500, 100_100, 2780.0, at_most=False, compiled=True))
        500 images of 100,100 draws, 2,780 draws a second: about 5.0 h on this machine; compilation is extra
        """
        rate = f"{self.rate:,.0f}" if self.rate >= 10 else f"{self.rate:.1f}"
        how_long = f"{'at most' if self.at_most else 'about'} {duration(self.seconds)} on this machine"
        extra = "; compilation is extra" if self.compiled else ""
        return f"{self.images:,} images of {self.draws:,} draws, {rate} draws a second: {how_long}{extra}"


def forecast(
    classifier: SmoothedClassifier,
    x: Tensor,
    images: int,
    draws: Draws,
    at_most: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Forecast:
    """Measure the rate of one batch, after another one to warm up.

    Args:
        classifier: The smoothed classifier.
        x: One of the images, on its device.
        images: How many there are; processes share them.
        draws: Of each certificate.
        at_most: Whether some of them may not be needed.
        clock: Returns seconds.
    """
    size = min(_batch(classifier, x), max(draws.n0, draws.n))
    key = (draws.seed, Stream.ESTIMATE, 0)
    classifier.votes(x, size, *key)
    start = clock()
    classifier.votes(x, size, *key)
    rate = size / (clock() - start)
    share = -(-images // processes.rank_and_world_size()[1])
    return Forecast(share, draws.n0 + draws.n, rate, at_most, classifier.engine == "compiled")


def is_worth_measuring(classifier: SmoothedClassifier, x: Tensor, images: int, draws: Draws) -> bool:
    """Return whether a certification is long beside what :func:`forecast` takes."""
    return images * (draws.n0 + draws.n) > FEW * _batch(classifier, x)


def _batch(classifier: SmoothedClassifier, x: Tensor) -> int:
    return classifier.batch or default_batch(x)
