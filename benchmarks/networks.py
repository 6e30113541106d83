"""Networks as a user has them: functions without arguments, whose normalisation is inside."""

from __future__ import annotations

from torch import nn
from torchvision.transforms import Normalize

from rs.models.architectures import ARCHITECTURES

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of CIFAR-10's pixels (Cohen et al. 2019, code)."""


def resnet8() -> nn.Module:
    """Return a ResNet-8 of ten classes for 3 x 32 x 32 pixels, with random weights."""
    return nn.Sequential(Normalize(MEAN, STD), ARCHITECTURES["resnet8"]((3, 32, 32), 10))
