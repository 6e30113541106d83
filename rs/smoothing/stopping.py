"""Settings of certification that stops early."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from rs.params import Count, NonNegative, Positive, validated
from rs.statistics.sequential import Decider, ExpectedRadius, RadiusSequence, at_radii

Radii = Annotated[
    list[NonNegative], Field(min_length=1), BeforeValidator(lambda given: given if isinstance(given, list) else [given])
]


@validated
class Stop:
    """When to stop before n draws, which become the maximum; section ``certify.stop`` of a recipe.

    Exactly one of ``at_radius``, ``tolerance`` and ``acr_error`` is given: the question is which of those radii are
    certified, what the radius is to within the tolerance, or what the average radius is to within that error.
    """

    at_radius: Radii | None  # pixels of [0, 1], increasing; or one alone
    tolerance: Positive | None  # radius to give away, pixels of [0, 1]
    beta: Annotated[float, Field(gt=0, lt=1)]  # probability of giving up although the radius holds
    step: Annotated[Count, Field(multiple_of=100)]  # minimum number of draws between two looks
    acr_error: Positive | None = None  # what the average radius may fall short of that of all draws, pixels of [0, 1]

    def __post_init__(self) -> None:
        if sum(question is not None for question in (self.at_radius, self.tolerance, self.acr_error)) != 1:
            raise ValueError("one of at_radius, tolerance and acr_error must be given, and no two")

    def run(self, sigma: float, alpha: float, budget: int) -> Decider | RadiusSequence:
        """Return a fresh run for one image, with at most ``budget`` draws."""
        if self.at_radius is not None:
            return at_radii(self.at_radius, sigma, alpha, budget, beta=self.beta, step=self.step)
        if self.acr_error is not None:
            return ExpectedRadius(sigma, self.acr_error, alpha, budget, beta=self.beta, step=self.step)
        assert self.tolerance is not None  # one of the three is given
        return RadiusSequence(sigma, self.tolerance, alpha, budget, beta=self.beta, step=self.step)
