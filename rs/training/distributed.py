"""One training by several processes, step for step the training of one.

Each process has its part of the images of a step, with all their noisy copies. Statistics of batch norm are those of
the images of all, and gradients are averaged with the weight of each part, so the step is that of one process but for
rounding. Gradients go in one message: what ``DistributedDataParallel`` gains by sending them in pieces during the
backward pass is little for networks this small, and it would count the backward passes of attacks for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rs.errors import InputError


@dataclass(frozen=True)
class Part:
    """Which images of a step a process has."""

    whole: int  # images in the step
    first: int  # number of the process's first image
    images: int
    weight: float  # of the process's means in the mean over processes
    copies: int  # how many processes have each image


def part(images: int, rank: int, world: int) -> Part:
    """Part of process ``rank`` of ``world`` in a step of ``images``; where they are too few, each has them all.

    >>> part(10, 0, 4), part(10, 1, 4)
    (Part(whole=10, first=0, images=2, weight=0.8, copies=1), Part(whole=10, first=2, images=3, weight=1.2, copies=1))
    """
    if images < world:
        return Part(images, 0, images, 1.0, world)
    first, end = images * rank // world, images * (rank + 1) // world
    return Part(images, first, end - first, (end - first) * world / images, 1)


def average(tensors: Sequence[Tensor]) -> None:
    """Replace tensors, of the same shapes in every process, by their mean over the processes, in place."""
    total = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(total)
    total /= dist.get_world_size()
    for tensor, mean in zip(tensors, total.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def agree(value: int, what: str, device: torch.device) -> None:
    """Check that all processes have the same number.

    Raises:
        InputError: If they have not; in every process.
    """
    found = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=device)
    found[dist.get_rank()] = value
    dist.all_reduce(found)
    if len(set(found.tolist())) > 1:
        raise InputError(f"all processes must see the same folder of unfinished work, got {what}: {found.tolist()}")


class SharedBatchNorm(nn.BatchNorm2d):
    """``nn.BatchNorm2d`` whose statistics in train mode are those of the images of all processes together.

    ``torch.nn.SyncBatchNorm`` is that on GPUs, and refuses CPUs.
    """

    copies = 1  # how many processes have each image of this step

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape; N may differ between processes."""
        if not self.training:
            return super().forward(x)
        count, mean, var = _statistics(x, self.copies)
        with torch.no_grad():
            self._follow(count, mean, var)
        scale = torch.rsqrt(var + self.eps) * self.weight
        made = (x.float() - _channels(mean)) * _channels(scale) + _channels(self.bias)
        return made.to(x.dtype)

    def _follow(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics, the variance without bias, as ``nn.BatchNorm2d`` does."""
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (count / (count - 1)), self.momentum)


def share_statistics(model: nn.Module) -> nn.Module:
    """Replace each batch norm of ``model`` by a shared one with the same parameters and buffers, in place.

    Raises:
        ValueError: If there is one without parameters, or without a momentum, as no network of this project has.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, _shared(child))
    return model


def count_copies(model: nn.Module, copies: int) -> None:
    """Tell the shared batch norms of ``model`` how many processes have each image of the step that comes."""
    for module in model.modules():
        if isinstance(module, SharedBatchNorm):
            module.copies = copies


def _shared(norm: nn.BatchNorm2d) -> SharedBatchNorm:
    if not (norm.affine and norm.track_running_stats and norm.momentum is not None):
        raise ValueError(f"a batch norm must have parameters, running statistics and a momentum, got {norm}")
    made = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, device="meta")
    made._parameters, made._buffers, made.training = norm._parameters, norm._buffers, norm.training
    return made


def _channels(values: Tensor) -> Tensor:
    return values[:, None, None]


def _statistics(x: Tensor, copies: int) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean and biased variance (C,) of the pixels of each channel, over all processes, with gradients.

    Each process takes its own mean and variance, and the moments are put together in float64, in which the difference
    of squares loses nothing that matters.
    """
    var, mean = torch.var_mean(x.float(), dim=(0, 2, 3), correction=0)
    count = torch.full((1,), x.numel() / x.shape[1], dtype=torch.float64, device=x.device)
    moments = torch.cat([count, count * mean, count * (var + mean * mean.double())])
    count, first, second = _Sum.apply(moments).split([1, len(mean), len(mean)])
    mean = first / count
    return (count / copies).float(), mean.float(), (second / count - mean * mean).float()


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: object, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total
