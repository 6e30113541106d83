"""The optimizers, their learning rate and gradients, and the average of weights over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from rs.errors import InputError
from rs.training.recipe import Training


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def optimizers_of(
    parameters: Sequence[nn.Parameter], settings: Training
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of parameters; the trainer sets their learning rate before each step.

    ``sgd`` decays all parameters, as published training runs do. ``adamw`` decays those of two axes
    or more, which norms and biases are not. ``muon`` (Jordan et al. 2024) takes the matrices, with
    a learning rate that has the scale of AdamW's, and leaves the others to ``adamw``.
    """
    if settings.optimizer == "sgd":
        sgd = torch.optim.SGD(
            parameters,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov and settings.momentum > 0,  # torch refuses it without
        )
        return [sgd]
    optimizers: list[torch.optim.Optimizer] = []
    others = parameters
    if settings.optimizer == "muon":
        matrices = [parameter for parameter in parameters if parameter.ndim == 2]
        others = [parameter for parameter in parameters if parameter.ndim != 2]
        muon = torch.optim.Muon(
            [{"params": matrices}],  # in a group, which may be empty
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        optimizers.append(muon)
    decayed = [parameter for parameter in others if parameter.ndim > 1]
    not_decayed = [parameter for parameter in others if parameter.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    return [*optimizers, torch.optim.AdamW(groups, lr=settings.learning_rate)]


def learning_rate_at(settings: Training, share: float) -> float:
    """Return the learning rate after a share of the training.

    Schedule ``step`` multiplies the rate by ``decay`` at each milestone. Schedule ``linear`` raises
    it from 0 during the share ``ramp`` of the training, then lowers it to 0. Schedule ``cosine``
    rises as ``linear`` does, then falls as half a wave of the cosine.
    """
    if settings.schedule == "step":
        epochs_done = share * settings.epochs
        passed = [milestone for milestone in settings.milestones if milestone <= epochs_done]
        return settings.learning_rate * settings.decay ** len(passed)
    rising = share / settings.ramp
    falling = (1 - share) / (1 - settings.ramp)
    if settings.schedule == "cosine" and share > settings.ramp:
        falling = (1 - math.cos(math.pi * falling)) / 2
    return settings.learning_rate * min(rising, falling)


def take_step(optimizers: Sequence[torch.optim.Optimizer], learning_rate: float) -> None:
    """Move all parameters by one step of their optimizer, with this learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()


def gradients_of(model: nn.Module) -> list[Tensor]:
    """Return the gradients of the parameters that are trained.

    Raises:
        InputError: If the loss does not depend on one of them.
    """
    gradients = []
    without = []
    for name, parameter in trained_parameters(model).items():
        if parameter.grad is None:
            without.append(name)
        else:
            gradients.append(parameter.grad)
    if without:
        raise InputError(
            f"the loss must depend on every parameter that is trained, but {len(without)} have no "
            f"gradient, first {without[0]}; leave such layers out of the network, or name the "
            "others with --trainable"
        )
    return gradients


def move_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move averaged weights and running statistics toward a model: w <- decay w + (1 - decay) w'.

    All floating-point tensors move in one operation, which does not wait for a GPU. (torch's
    ``AveragedModel`` copies its counter to the GPU in each step, and that copy waits.)

    Args:
        average: A copy of the model, changed in place.
        model: The model after a step.
        decay: Weight of the average so far, in (0, 1).
    """
    update = get_ema_multi_avg_fn(decay)
    for is_float in (True, False):
        averaged = _tensors(average, is_float)
        if averaged:
            update(averaged, _tensors(model, is_float), None)


def _tensors(module: nn.Module, is_float: bool) -> list[Tensor]:
    tensors = [*module.parameters(), *module.buffers()]
    return [tensor for tensor in tensors if tensor.is_floating_point() == is_float]
