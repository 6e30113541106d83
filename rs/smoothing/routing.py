"""The smoothed classifier of a router, which chooses one of several smoothed experts for each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.inputs import ImageLike
from rs.statistics.certificate import ABSTAIN, Certificate, RoutedCertificate, router_mode
from rs.statistics.radius import routed_radius


class RoutedClassifier(SmoothedClassifier):
    """A smoothed router, whose classes are noise levels, and a smoothed expert for each of them.

    It is one fixed function of the image: the class that the expert of the router's level predicts. Its votes are those
    of the router.

    Args:
        router: Its class j stands for expert j; of any noise.
        experts: Of increasing noise levels and the same classes.
    Raises:
        InputError: If levels do not increase, or a part has votes for no class.
    """

    stages = 2

    def __init__(self, router: SmoothedClassifier, experts: Sequence[SmoothedClassifier]) -> None:
        options: dict[str, Any] = {name: getattr(router, name) for name in ("precision", "batch", "noise", "engine")}
        super().__init__(router.base, len(experts), router.sigma, **options)
        self.levels, self.experts = [expert.sigma for expert in experts], [*experts]
        if self.levels != sorted({*self.levels}):
            raise InputError(f"experts must be of increasing noise levels, got {self.levels}; give one for each level")
        if any(part.undecided for part in (router, *experts)):
            raise InputError("router and experts must have no votes for no class; leave out ensembles of scope set")
        self.streams = (Stream.ROUTE_SELECT, Stream.ROUTE_ESTIMATE)
        self.bases = [router.base, *(expert.base for expert in experts)]

    def _checked(
        self, x: ImageLike, alpha: float, seed: int, index: int, label: int | None = None, **draws: int
    ) -> Tensor:
        """See :class:`SmoothedClassifier`; a label, which would skip draws, is refused."""
        if label is not None:
            raise InputError("label must be left out: a router and its experts take all draws")
        return super()._checked(x, alpha, seed, index, **draws)

    def _draw(self, x: Tensor, n0: int, n: int, alpha: float, seed: int, index: int, label: int | None) -> Certificate:
        """Return the certificate of the router and the expert that it chooses, with half of alpha each.

        Both draw ``n0`` and ``n`` times, from streams of their own: given the level, the expert's certificate is that
        of the expert alone. :func:`rs.statistics.radius.routed_radius` has the
        proof. A router that abstains certifies nothing: no expert may stand in, so none draws.
        """
        route = super()._draw(x, n0, n, alpha / 2, seed, index, None)
        if route.predict == ABSTAIN:
            no_votes = np.zeros(self.experts[0].num_classes or 0, dtype=np.int64)
            level, radius = 0.0, 0.0
            expert = replace(route, radius=0.0, p_lower=0.0, n0=0, n=0, counts0=no_votes, counts=no_votes)
        else:
            level = self.levels[route.predict]
            expert = self.experts[route.predict]._draw(x, n0, n, alpha / 2, seed, index, None)
            radius = float(routed_radius(route.p_lower, self.sigma, expert.p_lower, level))
        of_system = {"radius": radius, "alpha": alpha, "sigma": self.sigma, "mode": router_mode(self.levels)}
        return RoutedCertificate(
            **{**vars(expert), **of_system, "evaluations": None},
            level=level,
            radius_router=route.radius,
            radius_class=expert.radius,
            counts0_router=route.counts0,
            counts_router=route.counts,
        )

    def certify_until(self, *_: Any, **__: Any) -> Certificate:
        """Refuse to stop early."""
        raise InputError("a router must be certified with all n draws; leave out the rule that stops early")

    def predict(self, *_: Any, **__: Any) -> int:
        """Refuse to predict without a radius."""
        raise InputError("a router must be asked by certify, whose certificate has the class; it has no other test")
