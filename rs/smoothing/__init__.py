"""The smoothed classifier: noise, CERTIFY and PREDICT, soft smoothing and its losses, attacks."""

from typing import Literal

Noise = Literal["gaussian", "grid"]
"""Gaussian numbers in float32, or rounded to multiples of 1/255."""
