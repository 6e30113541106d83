"""Base classifiers. Every one takes images in [0, 1] and normalizes them in its first layer.

So the noise, the attack and the radius share one unit: pixels of [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from rs.errors import InputError, check_choice
from rs.params import MAX_NUMBERS
from rs.runtime.streams import seeded


class Normalize(nn.Module):
    """First layer of a model: (x - mean) / std per channel.

    The constants belong to the data set, not to the weights, so they are not in the ``state_dict``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        return (x - self.mean) / self.std


class Logits(nn.Linear):
    """Last layer of every network, in float32 or better, whatever the precision of the features.

    Logits in bfloat16 have 8 bits, so the two largest are sometimes equal, and the vote goes to the
    lower class.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Features (N, F) -> logits (N, K)."""
        return _linear(x, self.weight, self.bias)


@torch.fx.wrap  # as one call: the operations of a trace would follow autocast
def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: a 1x1 convolution where the shape changes (option B)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != width:
            shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, width, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + shortcut, inplace=True)


class CifarResNet(nn.Module):
    """ResNet for 32x32 images in three stages (He et al. 2016, section 4.2), option-B shortcuts.

    Attribute names are those of published checkpoints.

    Args:
        shape: (C, H, W) of an image.
        num_classes: K.
        blocks: Number of blocks in each of the three stages.
        widths: Channels of each stage.
        patches: Whether the first layer takes 4x4 patches at stride 2, which costs a quarter: noise
            of std 0.25 leaves little detail finer than two pixels.
    """

    def __init__(
        self,
        shape: Sequence[int],
        num_classes: int,
        blocks: tuple[int, int, int],
        widths: tuple[int, int, int] = (16, 32, 64),
        patches: bool = False,
    ) -> None:
        super().__init__()
        kernel, stride = (4, 2) if patches else (3, 1)
        self.conv1 = nn.Conv2d(shape[0], widths[0], kernel, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.layer1 = self._stage(widths[0], widths[0], blocks[0], 1)
        self.layer2 = self._stage(widths[0], widths[1], blocks[1], 2)
        self.layer3 = self._stage(widths[1], widths[2], blocks[2], 2)
        self.fc = Logits(widths[2], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
        first = BasicBlock(channels, width, stride)
        return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, 32, 32) -> logits (N, K)."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


class SmallNet(nn.Module):
    """Three 3x3 convolutions with batch norm, for images of about 8x8."""

    def __init__(self, shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        if len(shape) != 3:
            raise InputError(f"smallnet must be given the shape (C, H, W), got {tuple(shape)}")
        channels, height, width = shape
        layers: list[nn.Module] = []
        for wider, stride in ((16, 1), (32, 2), (64, 2)):
            convolution = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(wider), nn.ReLU(inplace=True)]
            channels, height, width = wider, -(-height // stride), -(-width // stride)
        self.features = nn.Sequential(*layers)
        self.fc = Logits(channels * height * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> logits (N, K)."""
        return self.fc(self.features(x).flatten(1))


def _resnet50(shape: Sequence[int], num_classes: int) -> nn.Module:
    from torchvision.models import resnet50  # a second to import, and only ImageNet needs it

    network = resnet50(weights=None, num_classes=num_classes)
    network.fc = Logits(network.fc.in_features, num_classes)
    return network


ARCHITECTURES: dict[str, Callable[[Sequence[int], int], nn.Module]] = {
    "resnet110": partial(CifarResNet, blocks=(18, 18, 18)),
    "resnet20": partial(CifarResNet, blocks=(3, 3, 3)),
    "resnet8": partial(CifarResNet, blocks=(1, 1, 1), widths=(32, 64, 128), patches=True),
    # of the size of ResNet-110 (1.9 million), in wide stages that suit a GPU
    "fastnet": partial(CifarResNet, blocks=(2, 1, 1), widths=(128, 192, 192), patches=True),
    "resnet50": _resnet50,
    "smallnet": SmallNet,
}
"""From each name of ``rs.models.Architecture`` to a function that builds the network.

Its arguments are the shape (C, H, W) of an image and the number of classes; the normalization is
not part of it.
"""


USER_NETWORKS: dict[str, dict[str, str]] = {}
"""From the name ``package.module:function`` of each user's network to its code.

That is a hash of each of its source files, by module, which comments and docstrings do not change.
"""


def check_architecture(architecture: str) -> None:
    """Check that an architecture is known.

    Raises:
        InputError: If not; lists the known ones.
    """
    if ":" in architecture and architecture not in ARCHITECTURES:
        got = f", got {', '.join(sorted(USER_NETWORKS))}" if USER_NETWORKS else ""
        name = architecture
        if architecture.startswith("torch"):  # the class of a network that was given to rs.train
            name = "package.module:function, a function of yours that builds this network"
        raise InputError(
            f"the network {architecture} must be given, because a model folder never imports code "
            f"by itself{got}; add --network {name}; or in Python network=, with the name or the "
            "function"
        )
    check_choice("architecture", architecture, tuple(ARCHITECTURES))


def build(
    architecture: str,
    shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int | None = None,
) -> nn.Sequential:
    """Build a classifier: the normalization, then the network.

    Args:
        architecture: A key of :data:`ARCHITECTURES`.
        shape: (C, H, W) of an image.
        num_classes: K.
        mean, std: Normalization constants per channel, in pixels of [0, 1]; empty for none.
        seed: Seed of the initial weights, drawn on the CPU; ``None`` uses torch's global generator.
    Returns:
        An ``nn.Sequential`` with children ``normalize`` and ``network``, on the CPU, in train mode,
        with convolutions in channels-last order, in which they are three to eighteen times faster
        on a CPU, if it runs in that order.
    Raises:
        InputError: If the architecture is not known or does not take images of this shape, or a
            constant is missing.
    """
    check_architecture(architecture)
    if math.prod(shape) > MAX_NUMBERS:
        raise InputError(
            f"an image must have at most {MAX_NUMBERS:,} numbers, got the shape {tuple(shape)}"
        )
    if not len(mean) == len(std) or len(mean) not in (0, shape[0]):
        raise InputError(
            f"mean and std must have one number for each channel of the shape {tuple(shape)}, got "
            f"{len(mean)} and {len(std)}; give those of the data set"
        )
    model = nn.Sequential()
    with seeded(seed):
        model.add_module("normalize", Normalize(mean, std) if mean else nn.Identity())
        model.add_module("network", ARCHITECTURES[architecture](shape, num_classes))
        try:
            if len(shape) == 3:  # only images have channels to put last
                model.to(memory_format=torch.channels_last)
            _try_shape(model, architecture, shape, num_classes)
        # A user's network may take views of its maps, or have weights of five axes.
        except (InputError, RuntimeError):
            model.to(memory_format=torch.contiguous_format)
            _try_shape(model, architecture, shape, num_classes)
    return model


def _try_shape(model: nn.Module, architecture: str, shape: Sequence[int], num_classes: int) -> None:
    """Run the network on one image, which must give logits of the classes."""
    model.eval()
    try:
        with torch.no_grad():
            logits = model(torch.zeros(1, *shape))
    except RuntimeError as error:
        message = (
            f"{architecture} must be given images of a shape it takes, got {tuple(shape)}: {error}"
        )
        raise InputError(" ".join(message.split())) from error
    if logits.shape != (1, num_classes):
        raise InputError(
            f"{architecture} must return one logit for each of {num_classes} classes, got logits "
            f"of shape {tuple(logits.shape)} for one image; name all its classes (--classes FILE, "
            f"one per line), or give it a last layer of {num_classes} outputs"
        )
    model.train()
