"""How images are certified: the section ``certify`` of a recipe, and the options of the commands
that certify.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field

from rs.models import InferenceEngine, PrecisionChoice
from rs.params import Count, NonNegative, NonNegativeCount, Positive, validated
from rs.smoothing import STOPPING_RULES, Noise
from rs.smoothing.noise import BLOCK, NOISE_OF_8_BIT
from rs.statistics.certificate import MAX_DRAWS, MIN_ALPHA
from rs.statistics.sequential import Decider, ExpectedRadius
from rs.study.subset import Subset

DrawCount = Annotated[int, Field(ge=1, le=MAX_DRAWS)]


@dataclass(frozen=True)
class Draws:
    """The draws of a certificate; options of these names, and of ``SmoothedClassifier.certify``."""

    n0: int = 100  # draws that select the class
    n: int = 1_000  # fresh draws that bound its probability
    alpha: float = 0.001  # failure probability of the certificate
    seed: int = 0  # of the noise


@dataclass(frozen=True, kw_only=True)
class SmoothingOptions:
    """How a base classifier is smoothed and runs; options of these names, and of
    ``rs.load(...).smooth``.
    """

    sigma: float | None = (
        None  # noise level of the certificate, in pixels of [0, 1]; None: that of the model
    )
    device: torch.device | None = None  # None: where the model is
    noise: Noise | None = None  # None: grid for images of 8-bit pixels
    precision: PrecisionChoice = "auto"  # tf32 on a CUDA device, float32 on a CPU
    engine: InferenceEngine = "plain"  # how the base classifier is optimized for inference
    batch: int | None = None  # noisy images at once; None: chosen
    calibration: Path | None = (
        None  # data set for calibrating int8 networks, where a model folder has none
    )


def _listed(radii: Any) -> Any:
    """Return one radius as a list of it."""
    return radii if isinstance(radii, list) else [radii]


@validated
class Stop:
    """When to stop before n draws, which become the maximum; section ``certify.stop`` of a recipe.

    Exactly one of ``rs.smoothing.STOPPING_RULES`` is given: the question is which of those radii
    are certified, or what the average radius is to within that error.
    """

    beta: Annotated[float, Field(gt=0, lt=1)]  # probability of giving up although the radius holds
    step: Annotated[Count, Field(multiple_of=BLOCK)]  # minimum number of draws between two looks
    # increasing, pixels of [0, 1]
    at_radius: (
        Annotated[list[NonNegative], Field(min_length=1), BeforeValidator(_listed)] | None
    ) = None
    acr_error: Positive | None = (
        None  # what the average radius may fall short of that of all draws, pixels of [0, 1]
    )

    def __post_init__(self) -> None:
        if sum(getattr(self, rule) is not None for rule in STOPPING_RULES) != 1:
            raise ValueError(f"one of {', '.join(STOPPING_RULES)} must be given, and no two")

    def run(self, sigma: float, alpha: float, budget: int) -> Decider | ExpectedRadius:
        """Return a fresh run for one image, with at most ``budget`` draws."""
        if self.at_radius is not None:
            return Decider(self.at_radius, sigma, alpha, budget, beta=self.beta, step=self.step)
        assert self.acr_error is not None  # one of the two is given
        return ExpectedRadius(sigma, self.acr_error, alpha, budget, beta=self.beta, step=self.step)


@validated
class CertificationSettings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: DrawCount  # draws that select the class
    n: DrawCount  # fresh draws that bound its probability
    alpha: Annotated[float, Field(ge=MIN_ALPHA, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, the same for every model
    subset: Subset  # of the test split
    precision: PrecisionChoice
    # plain: as it was trained; the others: optimized for inference; quantized: in int8
    engine: InferenceEngine
    shortcut: bool  # skip the n draws of an image whose selected class is not its label
    # grid: rounded to multiples of 1/255, with which rounding cannot break the theorem
    noise: Noise = NOISE_OF_8_BIT
    stop: Stop | None = None  # stop at an answer; n is then the most draws

    @property
    def draws(self) -> Draws:
        """The draws of each certificate."""
        return Draws(self.n0, self.n, self.alpha, self.seed)
