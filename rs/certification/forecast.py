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
from rs.smoothing.settings import CertificationSettings

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
    settings: CertificationSettings,
    clock: Callable[[], float] = time.perf_counter,
) -> Forecast:
    """Measure the rate of one batch, after another one to warm up.

    Args:
        classifier: The smoothed classifier.
        x: One of the images, on its device.
        images: How many there are; processes share them.
        settings: How they are to be certified.
        clock: Returns seconds.
    """
    draws, key = min(_batch(classifier, x), settings.n), (settings.seed, Stream.ESTIMATE, 0)
    classifier.votes(x, draws, *key)
    start = clock()
    classifier.votes(x, draws, *key)
    rate = draws / (clock() - start)
    share = -(-images // processes.rank_and_world_size()[1])
    at_most = settings.shortcut or settings.stop is not None
    return Forecast(share, settings.n0 + settings.n, rate, at_most, classifier.engine == "compiled")


def is_worth_measuring(classifier: SmoothedClassifier, x: Tensor, images: int, settings: CertificationSettings) -> bool:
    """Return whether a certification is long beside what :func:`forecast` takes."""
    return images * (settings.n0 + settings.n) > FEW * _batch(classifier, x)


def _batch(classifier: SmoothedClassifier, x: Tensor) -> int:
    return classifier.batch or default_batch(x)
