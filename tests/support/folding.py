"""Comparing networks whose batch norms are folded with those that they were."""

from tests.support.helpers import SHAPE, smallnet
from tests.support.networks import lived_in

ROUNDING = 20 * 576 * 2**-53
"""Of float64 in resnet20, the deepest here: 20 layers, each a sum of up to 64 * 3 * 3 terms."""


def tiny():
    return lived_in(smallnet(), SHAPE)


def close(found, expected, bound=ROUNDING):
    return (found - expected).abs().max() <= bound * expected.abs().max()
