"""Inputs that a classifier may have been made for, and how to correct a wrong one."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from rs.models import FirstLayer

NONE: FirstLayer = "none"
"""Name of the normalization that leaves pixels in [0, 1]."""

KNOWN = {
    1: {
        "MNIST": ([0.1307], [0.3081]),
        "ImageNet": ([0.449], [0.226]),
    },
    3: {
        "ImageNet": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        "CIFAR-10": ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.201]),
    },
}
"""Mean and std of usual normalizations, by the number of channels."""


class Normalization(NamedTuple):
    """The first layer (x - mean) / std of a classifier."""

    name: str
    mean: Tensor  # (C, 1, 1), as std
    std: Tensor

    @property
    def code(self) -> str:
        """The layer as code."""
        return f"torchvision.transforms.Normalize({_numbers(self.mean)}, {_numbers(self.std)})"


class Alternative(NamedTuple):
    """Input that a classifier may expect instead of the images: scale * x + shift, or BGR."""

    name: str
    remedy: str
    scale: Tensor | float = 1.0
    shift: Tensor | float = 0.0
    is_bgr: bool = False

    @property
    def is_smaller(self) -> bool:
        """Whether it has less contrast, and so less noise, than the images."""
        return float(torch.as_tensor(self.scale).mean()) < 1

    def of(self, x: Tensor) -> Tensor:
        """Return images (N, C, H, W) as this input."""
        return x.flip(1) if self.is_bgr else self.scale * x + self.shift


AS_IT_IS = Alternative("as it is", "")

BGR = Alternative(
    "BGR",
    "it seems to expect channels in the other order, BGR instead of RGB; put x.flip(1) before its "
    "first layer",
    is_bgr=True,
)

LEVELS = Alternative("255", "it seems to expect pixels of 0 to 255; multiply by 255 inside", 255.0)


def alternatives(mean: Tensor, std: Tensor) -> list[Alternative]:
    """Return what a classifier may expect instead of its input.

    Its first layer may have each of the usual normalizations, and be made for each other one. The
    input that corrects it is then std (x - mean') / std' + mean, with ' for the one that it is made
    for. A normalization that is applied twice is one that is not expected. Of equal inputs the
    first is kept, and those without a normalization in the network come first.

    Args:
        mean: Mean of the data set, shape (C, 1, 1).
        std: Its standard deviation, as ``mean``.
    """
    others = [BGR, LEVELS] if len(mean) == 3 else [LEVELS]
    probes = torch.tensor([0.0, 1.0]).to(mean).expand(len(mean), 1, 2)
    outputs = [probes]
    for has, expects in permutations(_normalizations(mean, std), 2):
        scale = has.std / expects.std
        shift = has.mean - expects.mean * scale
        output = scale * probes + shift
        if not any(torch.allclose(output, other, atol=1e-3) for other in outputs):
            outputs.append(output)
            name = f"{expects.name} instead of {has.name}"
            others.append(Alternative(name, _remedy(name, has, expects), scale, shift))
    return others


def _normalizations(mean: Tensor, std: Tensor) -> list[Normalization]:
    ones = torch.ones_like(mean)
    first_layers = [
        Normalization(NONE, 0 * ones, ones),
        Normalization("mean-std", mean, std),
        Normalization("centre", mean, ones),
        Normalization("-1 to 1", ones / 2, ones / 2),
    ]
    for name, constants in KNOWN.get(len(mean), {}).items():
        known_mean, known_std = torch.tensor(constants).to(mean)[..., None, None]
        first_layers.append(Normalization(name, known_mean, known_std))
    return first_layers


def _remedy(name: str, has: Normalization, expects: Normalization) -> str:
    """Say what seems to be wrong, and the code or the option that corrects it."""
    change = f"replace {has.code} by {expects.code}"
    if has.name == NONE:
        change = f"put {expects.code} before its first layer"
    if expects.name == NONE:
        change = f"it may be applied twice: remove {has.code} from its first layers"
    if expects.name in get_args(FirstLayer):
        change += f" (of rs import: --normalization {expects.name})"
    return f"it seems to expect the normalization {name}; {change}"


def _numbers(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values.flatten().tolist()) + "]"
