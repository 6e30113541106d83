"""Settings of certification: the section ``certify`` of a recipe."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rs.models.backend import Engine
from rs.params import Count, NonNegativeCount, validated
from rs.smoothing.classifier import Precision
from rs.smoothing.stopping import Stop
from rs.study.subset import Subset


@validated
class CertificationSettings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: Count  # draws that select the class
    n: Count  # fresh draws that bound its probability
    alpha: Annotated[float, Field(gt=0, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, which is the same for every model
    subset: Subset  # of the test split
    precision: Precision
    engine: Engine  # plain: the network as it was trained; folded or compiled: optimized for inference
    shortcut: bool  # skip the n draws of an image whose selected class is not its label
    stop: Stop | None = None  # stop early; n is then the maximum

    def __post_init__(self) -> None:
        if self.stop is not None and self.shortcut:
            raise ValueError("stop and shortcut must not come together: their rows are not comparable")
