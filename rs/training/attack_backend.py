"""The networks of a training step: the model itself for the loss, a folded or compiled one for
attacks.

An attack needs gradients in the image alone, of the network in eval mode. There each batch norm is
an affine map, so it is folded into the convolution before it, and the weights are constants: less
to compute, and less to store for the backward pass. The folded network shares the parameters of the
model, and folds their current values in each pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rs.models import Engine
from rs.models.backend import (
    WARM_UP_PASSES,
    check_folding,
    compiled,
    fold_norms,
    raised_compile_limit,
    warn_of_fallback,
)


def training_network(
    model: nn.Module, engine: Engine, shape: Sequence[int], *, compile_training: bool = True
) -> nn.Module:
    """Return the network that is passed to a method's loss.

    Args:
        model: The model that is trained; in train mode.
        engine: ``plain`` returns the model itself, ``folded`` folds it for attacks, ``compiled``
            also compiles both, for the shape of the first noisy images, with CUDA graphs on a GPU.
        shape: (C, H, W) of an image.
        compile_training: Whether ``compiled`` compiles the network of the loss too.
    Returns:
        A network that is the model in train mode, and the folded one in eval mode.
    """
    if engine == "plain":
        return model
    attacked = frozen(model, shape)
    if engine == "folded":
        return TrainingNetwork(model, attacked)
    return TrainingNetwork(OneShape(model) if compile_training else model, OneShape(attacked))


def begin_step(device: torch.device) -> None:
    """Declare the outputs of earlier steps unused: CUDA graphs overwrite them."""
    if device.type == "cuda":  # elsewhere there are no graphs, and this imports the compiler
        torch.compiler.cudagraph_mark_step_begin()


def freeze_norms(model: nn.Module) -> None:
    """Put batch norms whose parameters are not trained into eval mode, so that they keep their
    statistics too.
    """
    for module in model.modules():
        parameters = [*module.parameters(recurse=False)]
        if (
            isinstance(module, _BatchNorm)
            and parameters
            and not any(value.requires_grad for value in parameters)
        ):
            module.eval()


class TrainingNetwork(nn.Module):
    """Two networks that share parameters: one for the loss, in train mode, one for attacks, in eval
    mode.
    """

    def __init__(self, trained: nn.Module, attacked: nn.Module) -> None:
        super().__init__()
        self._networks = (attacked, trained)  # not registered: each of them stays in its own mode

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        return self._networks[self.training](x)


class OneShape(nn.Module):
    """A network that is compiled for the shape of its first input under gradients; other inputs run
    uncompiled.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._shape: torch.Size | None = None
        self._compiled: tuple[Callable[[Tensor], Tensor]] = (
            module,
        )  # in a tuple: not registered as a child

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        if not torch.is_grad_enabled():
            return self.module(x)
        if self._shape is None:
            self._compile(x)
        return self._compiled[0](x) if x.shape == self._shape else self.module(x)

    def _compile(self, x: Tensor) -> None:
        """Compile and run forward and backward passes, because a compiler fails at the first call."""
        self._shape = x.shape
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            fast = compiled(self.module, x.device)
            with raised_compile_limit():
                for _ in range(WARM_UP_PASSES if x.is_cuda else 1):
                    begin_step(x.device)
                    fast(x.detach().requires_grad_(x.requires_grad)).sum().backward()
                    self.module.zero_grad(set_to_none=True)
            self._compiled = (fast,)
        except Exception as error:  # a compiler fails in as many ways as there are compilers
            warn_of_fallback("is not compiled", error)
            self.module.zero_grad(
                set_to_none=True
            )  # of the layers that a pass reached before it failed
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                if not torch.equal(
                    buffer, buffers[name]
                ):  # writing would spoil a graph that uses it
                    buffer.copy_(buffers[name])  # the trial moved the statistics of batch norm


def frozen(model: nn.Module, shape: Sequence[int]) -> nn.Module:
    """Return the network in eval mode with its batch norms folded, for gradients in the image
    alone.

    It shares parameters and statistics with ``model`` and follows them; it adds nothing to their
    gradients. It is compared with the model in float64. A network that ``torch.fx`` cannot trace,
    or traces wrongly, keeps its batch norms, with a warning on stderr.

    Args:
        model: Left as it is.
        shape: (C, H, W) of an image.
    """
    try:
        check_folding(model, shape, _fold)
        return _fold(model)
    except Exception as error:  # of networks of every kind, which tracing may break in every way
        warn_of_fallback("is attacked with its batch norms, which is slower", error)
        return _constant_copy(model)


def _constant_copy(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode that shares the memory of the model's parameters, as constants."""
    constants = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(
        model, constants | {id(buffer): buffer for buffer in model.buffers()}
    ).eval()


def _fold(model: nn.Module) -> nn.Module:
    return fold_norms(_constant_copy(model), FoldedConv)


class FoldedConv(nn.Module):
    """A convolution and its batch norm in eval mode, as one convolution with their current weights."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """Return (s W) * x + s (c - mean) + b, with s = gamma / sqrt(var + eps)."""
        conv, norm, mean, variance = (
            self.conv,
            self.norm,
            self.norm.running_mean,
            self.norm.running_var,
        )
        if mean is None or variance is None:
            raise ValueError(
                "a batch norm must have running statistics to be an affine map, but it has none"
            )
        scale = torch.rsqrt(variance + norm.eps)
        scale = scale if norm.weight is None else norm.weight * scale
        shift = (0.0 if conv.bias is None else conv.bias) - mean
        shift = shift * scale + (0.0 if norm.bias is None else norm.bias)
        weight = conv.weight * scale[:, None, None, None]
        return F.conv2d(x, weight, shift, conv.stride, conv.padding, conv.dilation, conv.groups)
