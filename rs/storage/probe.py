"""Logits of fixed images, which tell networks apart whose weights no fingerprint sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PROBE_TOLERANCE = 1e-4
"""Largest difference of equal logits in float32, relative to the largest logit."""


def are_close(
    logits: Sequence[Sequence[float]],
    expected: Sequence[Sequence[float]],
    tolerance: float = PROBE_TOLERANCE,
) -> bool:
    """Return whether logits are equal up to the rounding of another processor or version of torch.

    Args:
        logits: Of some images, (N, K).
        expected: Of the same images.
        tolerance: Largest difference, relative to the largest logit.
    """
    if [len(row) for row in logits] != [len(row) for row in expected]:
        return False
    reference = np.array(expected)
    largest = np.abs(np.array(logits) - reference).max(initial=0.0)
    return bool(largest <= tolerance * np.abs(reference).max(initial=0.0))
