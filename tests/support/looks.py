"""Tests that look several times, by enumeration."""

import numpy as np
from scipy import stats


def crossing_probability(crossed, times, p):
    """The exact probability that ``crossed(k, check)`` holds at some look, by following the law of
    the count k.
    """
    law, total = np.ones(1), 0.0  # law[k] = P(k successes so far, and no crossing)
    for check, new in enumerate(np.diff(times, prepend=0)):
        law = np.convolve(law, stats.binom.pmf(np.arange(new + 1), new, p))
        out = crossed(np.arange(len(law)), check)
        total += law[out].sum()
        law[out] = 0
    return total
