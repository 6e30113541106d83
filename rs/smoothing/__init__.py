"""The smoothed classifier: noise, CERTIFY and PREDICT, soft smoothing and its losses, attacks."""

from importlib import import_module
from typing import Any, Literal

Noise = Literal["gaussian", "grid"]
"""Gaussian numbers in float32, or rounded to multiples of 1/255."""


def __getattr__(name: str) -> Any:
    """Import ``SmoothedClassifier`` on first use: torch takes seconds to load."""
    if name != "SmoothedClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("rs.smoothing.classifier").SmoothedClassifier
