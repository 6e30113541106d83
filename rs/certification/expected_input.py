"""What input a classifier may have been made for, and which of it fits its batch norm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from rs.models import Normalisation

NONE: Normalisation = "none"
"""Name of the normalization that leaves pixels in [0, 1]."""

KNOWN = {
    "-1 to 1": ((0.5,), (0.5,)),
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
}
"""Usual constants of normalizations: mean and std of all channels or of each."""

GROUP = 5
"""Images whose statistics are compared with those of a batch norm at a time."""


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
    first_layers = _normalizations(mean, std)
    others = [
        Alternative("255", "it seems to expect pixels of 0 to 255; multiply by 255 inside", 255.0)
    ]
    if len(mean) == 3:
        remedy = (
            "it seems to expect channels in the other order, as BGR for RGB; put x.flip(1) before "
            "its first layer"
        )
        others.insert(0, Alternative("BGR", remedy, is_bgr=True))
    probes = torch.tensor([0.0, 1.0]).to(mean).expand(len(mean), 1, 2)
    outputs = [probes]
    for has, expects in permutations(first_layers, 2):
        scale = has.std / expects.std
        shift = has.mean - expects.mean * scale
        output = scale * probes + shift
        if not any(torch.allclose(output, other, atol=1e-3) for other in outputs):
            outputs.append(output)
            name = f"{expects.name} instead of {has.name}"
            others.append(Alternative(name, _remedy(has, expects), scale, shift))
    return others


def _normalizations(mean: Tensor, std: Tensor) -> list[Normalization]:
    one = torch.ones_like(mean)
    first_layers = [
        Normalization(NONE, 0 * one, one),
        Normalization("mean-std", mean, std),
        Normalization("centre", mean, one),
    ]
    for name, constants in KNOWN.items():
        if len(constants[0]) in (1, len(mean)):
            known_mean, known_std = torch.tensor(constants).to(mean)[..., None, None] * one
            first_layers.append(Normalization(name, known_mean, known_std))
    return first_layers


def _remedy(has: Normalization, expects: Normalization) -> str:
    """Say what seems to be wrong, and the code or the option that corrects it."""
    option = ""
    if expects.name in get_args(Normalisation):
        option = f" (of rs import: --normalisation {expects.name})"
    if has.name == NONE:
        return (
            f"it seems to expect normalized pixels ({expects.name}); put {expects.code} before its "
            f"first layer{option}"
        )
    if expects.name == NONE:
        return (
            f"it seems to be normalized twice, or once too often ({has.name}); take {has.code} out "
            f"of its first layers{option}"
        )
    return (
        f"its normalization seems to be {has.name} in place of {expects.name}; replace {has.code} "
        f"by {expects.code}{option}"
    )


def _numbers(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values.flatten().tolist()) + "]"


class Fit(NamedTuple):
    """How far the statistics of inputs are from those that a batch norm has of its training."""

    distance: float  # of all images together
    of_groups: Tensor  # of each group of GROUP images


def first_batch_norm(module: nn.Module) -> Any | None:
    """Return the first batch norm that has statistics of a training, or ``None``."""
    for layer in module.modules():
        mean = getattr(layer, "running_mean", None)
        variance = getattr(layer, "running_var", None)
        if not isinstance(mean, Tensor) or not isinstance(variance, Tensor):
            continue
        if mean.any() or (variance != 1).any():
            return layer
    return None


class _ReachedError(Exception):
    """The batch norm is reached: the rest of the network is not needed."""


def fit_of(module: nn.Module, layer: Any, parts: Iterable[Tensor]) -> Fit | None:
    """Compare the input of a batch norm with that of its training.

    The distance is the Kullback-Leibler divergence of normal distributions with these means and
    variances, averaged over channels.

    Args:
        module: The classifier.
        layer: Its batch norm.
        parts: Batches of images.
    Returns:
        The fit; ``None`` if the classifier does not reach the layer.
    """
    moments: list[Tensor] = []

    def keep(_: nn.Module, inputs: Sequence[Tensor]) -> None:
        values = inputs[0].double()
        values = values.reshape(*values.shape[:2], -1)
        moments.append(torch.stack([values.mean(2), values.square().mean(2)], 1))
        raise _ReachedError

    handle = layer.register_forward_pre_hook(keep)
    try:
        for part in parts:
            try:
                module(part)
            except _ReachedError:
                continue
            return None
    finally:
        handle.remove()
    images = torch.cat(moments)
    groups = torch.stack([group.mean(0) for group in images.split(GROUP)])
    return Fit(float(_distance(images.mean(0), layer)), _distance(groups, layer))


def _distance(moments: Tensor, layer: Any) -> Tensor:
    mean = moments[..., 0, :]
    variance = (moments[..., 1, :] - mean.square()).clamp(min=1e-12)
    trained = layer.running_var + layer.eps
    ratio = (variance + layer.eps) / trained
    offset = (mean - layer.running_mean).square() / trained
    return (ratio - 1 - ratio.log() + offset).mean(-1) / 2
