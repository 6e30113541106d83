"""The networks of a training step: the model for the loss, a folded or compiled one for attacks.

An attack needs gradients in the image alone, of the network in eval mode. There each batch norm is
an affine map, so it is folded into the convolution before it, and the weights are constants: less
to compute, and less to store for the backward pass. The folded network shares the parameters of the
model, and folds their current values in each pass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from rs.models import Engine
from rs.models.backend import (
    WARM_UP_PASSES,
    check_folding,
    compiled,
    copy_network,
    fold_norms,
    raised_compile_limit,
    warn_of_fallback,
)

Network = Callable[[Tensor], Tensor]
"""From images (N, C, H, W) to logits (N, K)."""


def training_network(
    model: nn.Module,
    engine: Engine,
    shape: Sequence[int],
    *,
    compile_training: bool = True,
    micro_batch: int | None = None,
) -> nn.Module:
    """Return the network that is passed to a method's loss.

    Args:
        model: The model that is trained; in train mode.
        engine: ``plain`` returns the model itself, ``folded`` folds it for attacks, ``compiled``
            also compiles both, for the shape of the first noisy images, with CUDA graphs on a GPU.
        shape: (C, H, W) of an image.
        compile_training: Whether ``compiled`` compiles the network of the loss too.
        micro_batch: The most images that the network takes at once; ``None`` for all. Nothing is
            then compiled: a CUDA graph overwrites what its last pass returned.
    Returns:
        A network that is the model in train mode, and the folded one in eval mode.
    """
    network = model
    if engine == "compiled" and micro_batch is None:
        network = TrainingNetwork(
            OneShape(model) if compile_training else model,
            lambda: OneShape(frozen(model, shape)),
        )
    elif engine != "plain":
        network = TrainingNetwork(model, lambda: frozen(model, shape))
    if micro_batch is not None:
        network = MicroBatches(network, model, micro_batch)
    return network


def begin_step(device: torch.device) -> None:
    """Declare the outputs of earlier steps unused: CUDA graphs overwrite them."""
    if device.type == "cuda":  # elsewhere there are no graphs, and this imports the compiler
        torch.compiler.cudagraph_mark_step_begin()


def freeze_norms(model: nn.Module) -> None:
    """Put batch norms with frozen parameters into eval mode, which freezes their statistics too."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and _is_frozen(module):
            module.eval()


def has_trained_norm(model: nn.Module) -> bool:
    """Return whether a batch norm of the network stays in train mode."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return not all(map(_is_frozen, norms))


def _is_frozen(norm: nn.Module) -> bool:
    are_trained = [value.requires_grad for value in norm.parameters()]
    return bool(are_trained) and not any(are_trained)


class TrainingNetwork(nn.Module):
    """Two networks that share parameters: one for the loss and, in eval mode, one for attacks.

    Args:
        trained: The network of the loss.
        make_attacked: Makes the other one, which methods without attacks never need.
    """

    def __init__(self, trained: Network, make_attacked: Callable[[], Network]) -> None:
        super().__init__()
        # In tuples they are not registered as children, so each of them keeps its own mode.
        self._trained = (trained,)
        self._attacked: tuple[Network, ...] = ()
        self._make_attacked = make_attacked

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        if self.training:
            return self._trained[0](x)
        if not self._attacked:
            self._attacked = (self._make_attacked(),)
        return self._attacked[0](x)


class MicroBatches(nn.Module):
    """A network that takes a few images at a time and stores no activations of the others.

    The backward pass computes each part again (Chen et al. 2016, arXiv:1604.06174): the memory is
    that of one part, for about a third more time. Logits and gradients are those of all images at
    once, up to rounding, except where layers in train mode depend on the other images (batch norm)
    or on random numbers (dropout).

    Args:
        network: As :func:`training_network` returns it.
        model: The model in it, whose batch norms move their statistics once per part.
        size: The most images of a part.
    """

    def __init__(self, network: nn.Module, model: nn.Module, size: int) -> None:
        super().__init__()
        self.network = network
        self.size = size
        self._model = (model,)  # In a tuple it is not registered as a child.

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        if len(x) <= self.size:
            return self.network(x)
        logits = []
        for part in x.tensor_split(math.ceil(len(x) / self.size)):
            logits.append(
                checkpoint(self.network, part, use_reentrant=False, context_fn=self._contexts)
            )
        return torch.cat(logits)

    def _contexts(self) -> tuple[Any, Any]:
        """Return the contexts of a pass and of its repetition."""
        modules = [*self.modules(), *self._model[0].modules()]
        return nullcontext(), _repeated([(module, module.training) for module in modules])


@contextmanager
def _repeated(modes: Sequence[tuple[nn.Module, bool]]) -> Iterator[None]:
    """Give modules the modes of an earlier pass, and copies of their statistics to move."""
    current = [(module, module.training, module._buffers) for module, _ in modes]
    for module, mode in modes:
        module.training = mode
        module._buffers = copy.deepcopy(module._buffers)
    try:
        yield
    finally:
        for module, mode, buffers in current:
            module.training = mode
            module._buffers = buffers


class OneShape:
    """A network that is compiled for the shape of its first input that needs gradients."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._shape: torch.Size | None = None
        self._compiled: Network = module

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        if not torch.is_grad_enabled():
            return self.module(x)
        if self._shape is None:
            self._compile(x)
        return self._compiled(x) if x.shape == self._shape else self.module(x)

    def _compile(self, x: Tensor) -> None:
        """Compile, and run both passes, because a compiler fails only at the first call."""
        self._shape = x.shape
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            fast = compiled(self.module, x.device)
            with raised_compile_limit():
                for _ in range(WARM_UP_PASSES if x.is_cuda else 1):
                    begin_step(x.device)
                    fast(x.detach().requires_grad_(x.requires_grad)).sum().backward()
                    self.module.zero_grad(set_to_none=True)
            self._compiled = fast
        except Exception as error:  # compilers raise arbitrary exceptions
            warn_of_fallback("is not compiled", error)
            # Clear the layers that a pass reached before it failed.
            self.module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                # The trial moved the statistics of batch norm. Writing equal values would spoil a
                # graph that uses the buffer.
                if not torch.equal(buffer, buffers[name]):
                    buffer.copy_(buffers[name])


def frozen(model: nn.Module, shape: Sequence[int]) -> nn.Module:
    """Return the network in eval mode, with its batch norms folded, for gradients in images.

    It shares parameters and statistics with ``model`` and follows them; it adds nothing to their
    gradients. It is compared with the model in float64. A network that ``torch.fx`` cannot trace,
    or traces wrongly, keeps its batch norms, with a warning on stderr.

    Args:
        model: Left as it is.
        shape: (C, H, W) of an image.
    """
    if any(isinstance(module, _BatchNorm) for module in model.modules()):
        try:
            check_folding(model, shape, _fold)
            return _fold(model)
        except Exception as error:  # tracing may raise anything
            warn_of_fallback("is attacked with its batch norms, which is slower", error)
    return _constant_copy(model)


def _constant_copy(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode that shares the memory of the model's parameters, as constants."""
    memo: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy_network(model, memo).eval()


def _fold(model: nn.Module) -> nn.Module:
    return fold_norms(_constant_copy(model), FoldedConv)


class FoldedConv(nn.Module):
    """A convolution and its batch norm in eval mode, as one convolution of their weights now."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """Return (s W) * x + s (c - mean) + b, with s = gamma / sqrt(var + eps)."""
        conv = self.conv
        norm = self.norm
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError(
                "a batch norm must have running statistics to be an affine map, but it has none"
            )
        scale = torch.rsqrt(norm.running_var + norm.eps)
        if norm.weight is not None:
            scale = norm.weight * scale
        shift = (0.0 if conv.bias is None else conv.bias) - norm.running_mean
        shift = shift * scale + (0.0 if norm.bias is None else norm.bias)
        weight = conv.weight * scale[:, None, None, None]
        return F.conv2d(x, weight, shift, conv.stride, conv.padding, conv.dilation, conv.groups)
