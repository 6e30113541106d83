"""Networks as a user has them: functions without arguments, whose normalisation is inside."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.transforms import Normalize

from rs.models.architectures import ARCHITECTURES

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Mean and standard deviation of CIFAR-10's pixels (Cohen et al. 2019, code)."""


def resnet8() -> nn.Module:
    """Return a ResNet-8 of ten classes for 3 x 32 x 32 pixels, with random weights."""
    return nn.Sequential(Normalize(MEAN, STD), ARCHITECTURES["resnet8"]((3, 32, 32), 10))


def resnet18() -> nn.Module:
    """Return torchvision's ResNet-18 of ten classes, with random weights."""
    from torchvision.models import resnet18

    return nn.Sequential(Normalize(MEAN, STD), resnet18(num_classes=10))


def vit_tiny() -> nn.Module:
    """Return timm's ViT-tiny of ten classes for 3 x 32 x 32 pixels in patches of 8 x 8, with random
    weights.
    """
    from timm import create_model

    network = create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=10)
    return nn.Sequential(Normalize(MEAN, STD), network)


class Grey(nn.Sequential):
    """A network of three convolutions for grey images."""

    def __init__(self) -> None:
        layers = []
        for before, after in [(1, 32), (32, 64), (64, 128)]:
            layers += [
                nn.Conv2d(before, after, 3, 2, 1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 10) of images (N, 1, H, W) in [0, 1]."""
        return super().forward((x - 0.5) / 0.25)
