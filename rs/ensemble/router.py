"""A router on disk: a JSON file that makes a router of noise levels and an expert for each one classifier.

    {"rule": "router", "router": {"path": "models/router", "sigma": 1.0},
     "experts": [{"path": "models/0.25/advmacer/0", "sigma": 0.25}, ...]}

An expert is a model folder or the file of an ensemble. Experts are in the order of the router's classes, which are
named after their noise levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from rs.errors import InputError
from rs.params import FilePath, Positive, validated


@validated
class RoutedPart:
    """A router or an expert, and the noise that it is smoothed with."""

    path: FilePath  # from the folder that commands run in
    sigma: Positive  # in pixels of [0, 1]


@validated
class RouterSpec:
    """What a routed classifier is: all there is in its file."""

    rule: Literal["router"]
    router: RoutedPart
    experts: Annotated[list[RoutedPart], Field(min_length=2)]


class RoutedModules(nn.Module):
    """A router and its experts before smoothing, as one module with one fingerprint."""

    def __init__(self, router: nn.Module, experts: Sequence[nn.Module], sigmas: Sequence[float]) -> None:
        super().__init__()
        self.router, self.experts, self.sigmas = router, nn.ModuleList(experts), [*sigmas]

    def forward(self, x: Tensor) -> Tensor:
        """Refuse to be a base classifier: parts have noise of their own."""
        raise InputError(
            "a router with its experts is no network; give it to rs certify or rs predict, and here its parts"
        )
