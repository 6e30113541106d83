"""When certification has drawn enough, as the parameters say it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rs.params import Count, NonNegative, Positive, validated
from rs.statistics.sequential import Decider, RadiusSequence, at_radius


@validated
class Stop:
    """Stop at an answer instead of after n draws, which become the most; section ``certify.stop`` of a recipe.

    Either ``at_radius`` or ``tolerance`` is given: whether that radius is certified, or the radius but for so much.
    """

    at_radius: NonNegative | None  # pixels of [0, 1]
    tolerance: Positive | None  # radius to give away, pixels of [0, 1]
    rule: Literal["cumulative", "betting"]  # of at_radius (``rs.statistics.sequential``)
    beta: Annotated[float, Field(gt=0, lt=1)]  # chance to give up needlessly
    step: Annotated[Count, Field(multiple_of=100)]  # draws between two looks, at least

    def __post_init__(self) -> None:
        if (self.at_radius is None) == (self.tolerance is None):
            raise ValueError("one of at_radius and tolerance must be given, and not both")

    def run(self, sigma: float, alpha: float, budget: int) -> Decider | RadiusSequence:
        """Begin on an image."""
        how = {"beta": self.beta, "step": self.step}
        if self.at_radius is not None:
            return at_radius(self.at_radius, sigma, alpha, budget, rule=self.rule, **how)
        return RadiusSequence(sigma, self.tolerance, alpha, budget, **how)

    def mode(self, budget: int) -> str:
        """What a row says of itself: ``at-radius:R:BUDGET`` or ``within:TOLERANCE:BUDGET``.

        >>> Stop(at_radius=0.5, tolerance=None, rule="cumulative", beta=0.001, step=100).mode(100_000)
        'at-radius:0.5:100000'
        """
        asked = f"at-radius:{self.at_radius!r}" if self.at_radius is not None else f"within:{self.tolerance!r}"
        return f"{asked}:{budget}"
