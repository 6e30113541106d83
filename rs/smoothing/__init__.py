"""The smoothed classifier: noise, CERTIFY and PREDICT, its soft form with the losses on it, and
attacks on it.
"""

from importlib import import_module
from typing import Any, Literal

Noise = Literal["gaussian", "grid"]
"""Gaussian numbers in float32, or rounded to multiples of 1/255."""

STOPPING_RULES = {
    "at_radius": "Decide only which of these radii hold, like 0.25,0.5.",
    "acr_error": "Stop once the expected loss of average certified radius is at most this.",
}
"""The rules that end a certificate before all draws, each with its help: settings of
``certify.stop``, and options.
"""


def __getattr__(name: str) -> Any:
    """Import ``SmoothedClassifier`` when it is asked for: torch takes seconds to load."""
    if name != "SmoothedClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("rs.smoothing.classifier").SmoothedClassifier
