"""How images are certified: the section ``certify`` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from rs.models.backend import InferenceEngine
from rs.params import NonNegativeCount, validated
from rs.smoothing.classifier import NOISE_OF_8_BIT, Noise, Precision
from rs.smoothing.stopping import Stop
from rs.statistics.certificate import MAX_DRAWS, MIN_ALPHA
from rs.study.subset import Subset

DrawCount = Annotated[int, Field(ge=1, le=MAX_DRAWS)]


@dataclass(frozen=True)
class Draws:
    """The draws of a certificate: how many noisy copies, and which."""

    n0: int  # draws that select the class
    n: int  # fresh draws that bound its probability
    alpha: float  # failure probability of the certificate
    seed: int = 0  # of the noise


@validated
class CertificationSettings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: DrawCount  # draws that select the class
    n: DrawCount  # fresh draws that bound its probability
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, the same for every model
    subset: Subset  # of the test split
    precision: Precision
    engine: InferenceEngine  # plain: as it was trained; the others: optimized for inference; quantized: in int8
    shortcut: bool  # skip the n draws of an image whose selected class is not its label
    noise: Noise = NOISE_OF_8_BIT  # grid: rounded to multiples of 1/255, with which rounding cannot break the theorem
    stop: Stop | None = None  # stop at an answer; n is then the most draws

    @property
    def draws(self) -> Draws:
        """The draws of each certificate."""
        return Draws(self.n0, self.n, self.alpha, self.seed)
