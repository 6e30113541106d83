"""Three linear classifiers, entries of a pool of them, and their certificates."""

from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from rs.ensemble.base import Cascade, LogitAverage, SoftmaxAverage
from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
from rs.ensemble.rules import HardVote, KConsensus, MaxMargin
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.settings import Draws
from tests.support.helpers import tiny_images

SIGMA, N0, N, ALPHA = 0.5, 30, 330, 0.01
DRAWS = Draws(N0, N, ALPHA, seed=1)
ENTRIES = {
    "first": PoolEntry((0,)),
    "last": PoolEntry((2,)),
    "average": PoolEntry((0, 1, 2), SoftmaxAverage()),
    "weighted": PoolEntry((2, 0), SoftmaxAverage([0.3, 0.7])),
    "logits": PoolEntry((0, 1, 2), LogitAverage()),
    "vote": PoolEntry((0, 1, 2), HardVote()),
    "mme": PoolEntry((1, 2), MaxMargin()),
    "consensus": PoolEntry((0, 1, 2), KConsensus(2)),
    "cascade": PoolEntry((0, 1, 2), Cascade([0.9, 0.5])),
    "turned": PoolEntry((2, 0), Cascade([0.7])),
}


def member(pixel, gain, shift):
    """Return a linear classifier of slope ``gain``: class 1 where a pixel exceeds ``shift``."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].weight[:, pixel] = torch.tensor([-gain, gain])
        model[1].bias.copy_(torch.tensor([gain * shift, -gain * shift]))
    return model


def members():
    """Return members that look at three pixels of the left half, where the noise decides."""
    return [member(0, 2.0, 0.5), member(1, 3.0, 0.7), member(4, 4.0, 0.9)]


def image(index=0):
    return tiny_images().pixels(index)


def as_bytes(certificate):
    return {
        key: value.tobytes() if isinstance(value, np.ndarray) else repr(value)
        for key, value in asdict(certificate).items()
    }


def pool(models, entries=ENTRIES, index=0, label=None, **settings):
    smoothed = SmoothedClassifier(MemberLogits(models), 2, SIGMA, **settings)
    return NoisyPool(smoothed, image(index), DRAWS, index).certify(entries, label)


class Counting(nn.Module):
    """Counts the images that it evaluates."""

    def __init__(self, base):
        super().__init__()
        self.base, self.images = base, 0

    def forward(self, x):
        self.images += len(x)
        return self.base(x)
