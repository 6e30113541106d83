"""Settings of certification: of a recipe (section ``certify``), of a command, and of Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from rs.errors import InputError
from rs.models import InferenceEngine
from rs.params import NonNegativeCount, validated
from rs.runtime import PrecisionChoice
from rs.smoothing import Noise
from rs.smoothing.noise import NOISE_OF_8_BIT
from rs.statistics.certificate import MAX_DRAWS, MIN_ALPHA
from rs.statistics.procedures.base import SequentialTest
from rs.statistics.procedures.early import Stop
from rs.statistics.procedures.fixed import FixedTest
from rs.study.subset import Subset

DrawCount = Annotated[int, Field(ge=1, le=MAX_DRAWS)]


@dataclass(frozen=True)
class Draws:
    """The noise samples of each certificate of a pool."""

    n0: int = 100  # samples that select the class
    n: int = 1_000  # further samples that bound its probability
    alpha: float = 0.001  # failure probability of the certificate
    seed: int = 0  # of the noise


@dataclass(frozen=True, kw_only=True)
class SmoothingOptions:
    """What a command states beside the settings: noise level, and where the classifier runs."""

    sigma: float | None = None  # of the certificate, in pixels of [0, 1]; None: the model's
    device: torch.device | None = None  # None: where the model is
    batch: int | None = None  # noisy images evaluated at once; None: chosen
    calibration: Path | None = None  # data set that calibrates int8 networks, if none is on disk


@validated
class CertificationSettings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: DrawCount  # samples that select the class
    n: DrawCount  # further samples that bound its probability
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, the same for every model
    subset: Subset  # of the test split
    precision: PrecisionChoice
    engine: InferenceEngine  # plain: as it was trained; the others: optimized for inference
    shortcut: bool  # skip the n samples of an image whose selected class is not its label
    # grid: rounded to multiples of 1/255, with which rounding cannot break the theorem
    noise: Noise = NOISE_OF_8_BIT
    stop: Stop | None = None  # stop at an answer; n is then the largest number of samples

    def new_test(self, sigma: float) -> SequentialTest:
        """Return the test of one image.

        Raises:
            InputError: If no votes certify one of the radii asked for.
        """
        if self.stop is None:
            return FixedTest(sigma, self.alpha, self.n)
        return self.stop.new_test(sigma, self.alpha, self.n)

    @property
    def takes_all_samples(self) -> bool:
        """Whether every certificate takes all n samples."""
        return self.stop is None

    def check_takes_all_samples(self, key: str) -> None:
        """Check that certificates of several classifiers can share their samples.

        Args:
            key: The key that says otherwise, for the message.
        Raises:
            InputError: If a certificate may stop early.
        """
        if not self.takes_all_samples:
            raise InputError(
                f"{key} must be null where a pool is certified, which needs all n samples; or set "
                "members and ensembles to []"
            )

    @property
    def draws(self) -> Draws:
        """The samples of each certificate."""
        return Draws(self.n0, self.n, self.alpha, self.seed)
