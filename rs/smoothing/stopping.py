"""Settings of certification that stops early."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rs.params import Count, NonNegative, Positive, validated
from rs.statistics.sequential import Decider, RadiusSequence, at_radius


@validated
class Stop:
    """When to stop before n draws, which become the maximum; section ``certify.stop`` of a recipe.

    Exactly one of ``at_radius`` and ``tolerance`` is given: the question is whether that radius is certified, or what
    the radius is to within the tolerance.
    """

    at_radius: NonNegative | None  # pixels of [0, 1]
    tolerance: Positive | None  # radius to give away, pixels of [0, 1]
    rule: Literal["cumulative", "betting"]  # of at_radius (``rs.statistics.sequential``)
    beta: Annotated[float, Field(gt=0, lt=1)]  # probability of giving up although the radius holds
    step: Annotated[Count, Field(multiple_of=100)]  # minimum number of draws between two looks

    def __post_init__(self) -> None:
        if (self.at_radius is None) == (self.tolerance is None):
            raise ValueError("one of at_radius and tolerance must be given, and not both")

    def run(self, sigma: float, alpha: float, budget: int) -> Decider | RadiusSequence:
        """Return a fresh run for one image, with at most ``budget`` draws."""
        if self.at_radius is not None:
            return at_radius(self.at_radius, sigma, alpha, budget, rule=self.rule, beta=self.beta, step=self.step)
        assert self.tolerance is not None  # one of the two is given
        return RadiusSequence(sigma, self.tolerance, alpha, budget, beta=self.beta, step=self.step)
