"""The inputs of the optimizer steps of one epoch, and their loss as a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rs.data import images as data
from rs.data.prepared import EpochPlan, Images
from rs.methods.base import Step


@dataclass(frozen=True)
class StepInput:
    """What one optimizer step is computed from, on the device of the training."""

    x: Tensor  # images of this process, shape (B, C, H, W)
    y: Tensor  # labels, shape (B,)
    targets: Tensor | None  # class probabilities (B, K), for methods that need them
    key: tuple[int, int, int]  # number of the epoch, of the batch and of the step in the batch


def steps_of_epoch(
    images: Images,
    plan: EpochPlan,
    steps_per_batch: int,
    targets: Tensor | None,
    device: torch.device,
    workers: int,
) -> Iterator[StepInput]:
    """Yield the input of each optimizer step of an epoch.

    A batch makes ``steps_per_batch`` steps of equally many images; the remainder is left out, as is
    a batch that is too small.

    Args:
        images: The training split.
        plan: The epoch and the process.
        steps_per_batch: Steps that a batch makes.
        targets: Class probabilities of all images, shape (N, K), on the device.
        device: Where the steps run.
        workers: Processes that read images from disk.
    """
    order = data.epoch_order(len(images), plan)
    numbers = order.to(device).split(plan.size)
    for batch, (x, y) in enumerate(images.batches(order, plan, device, workers)):
        size = len(x) // steps_per_batch
        if size == 0:
            continue
        for step in range(steps_per_batch):
            part = slice(step * size, (step + 1) * size)
            own_targets = None if targets is None else targets[numbers[batch][part]]
            yield StepInput(x[part], y[part], own_targets, (plan.number, batch, step))


class StepLoss(nn.Module):
    """The loss of a step as one module, for ``DistributedDataParallel`` to wrap.

    Its backward pass is the only one that reaches the parameters: attacks ask for gradients in the
    image alone.

    Args:
        model: The model whose gradients are averaged over processes.
        loss: The loss of a step; it may call the model more than once.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Step]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any, **settings: Any) -> Step:
        """Return the loss of a step."""
        return self.loss(*inputs, **settings)
