"""What the engines of certification and training share: folding and compiling."""

from __future__ import annotations

import copy
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from rs.runtime import Precision

if TYPE_CHECKING:
    from torch.fx import GraphModule

MAX_ROUNDING = 1e-9
"""Largest relative difference of logits in float64 that counts as rounding, at a hundred layers."""

MAX_COMPILED_NETWORKS = 1000
"""Largest number of networks that one process compiles."""

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
}
"""Types of weights and activations."""

WARM_UP_PASSES = 3
"""Passes that warm up, record and replay a CUDA graph; each of them may fail."""


def copy_network(network: nn.Module, copies: dict[int, Any] | None = None) -> nn.Module:
    """Return a deep copy of a network, also of one whose layers compute weights before each pass.

    Weight normalization and pruning keep the weights of the last pass as an attribute. Torch does
    not copy a tensor that a gradient is computed through; the copy gets its numbers.

    Args:
        network: Left as it is.
        copies: What the copy holds in place of some objects, by their ``id``.
    """
    memo = dict(copies or {})
    for module in network.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    copied = copy.deepcopy(network, memo)
    for parameter in copied.parameters():
        if not parameter.is_leaf:  # torch copies those of TorchScript through the gradient
            parameter.detach_().requires_grad_()
    return copied


def check_folding(
    module: nn.Module, shape: Sequence[int], fold: Callable[[nn.Module], Callable[[Tensor], Tensor]]
) -> None:
    """Check in float64, on four images, that folding changes logits by rounding only.

    Args:
        module: Left as it is.
        shape: (C, H, W) of an image.
        fold: Maps a copy of the module, in eval mode and float64, to the folded network.
    Raises:
        ValueError: If the logits differ by more; and whatever ``fold`` raises.
    """
    exact = copy_network(module).eval().double()
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(4, *shape, generator=rng, dtype=torch.float64).to(device_of(module))
    with torch.no_grad():
        expected = exact(x)
        folded = fold(exact)(x)
    difference = float((folded - expected).abs().max())
    largest = float(expected.abs().max())
    if not difference <= MAX_ROUNDING * largest:
        raise ValueError(
            f"folded, it is another function, by {difference:.2g} of logits up to {largest:.2g}"
        )


def fold_norms(
    model: nn.Module, merge: Callable[[nn.Conv2d, nn.BatchNorm2d], nn.Module]
) -> GraphModule:
    """Trace a network, and merge each convolution with the batch norm that follows it.

    A convolution whose output goes elsewhere too, or a layer that is called twice or has hooks,
    stays.

    Args:
        model: In eval mode; the result shares its parameters.
        merge: Makes one layer of a convolution and its batch norm.
    Returns:
        The network as ``torch.fx`` traces it, in eval mode.
    """
    traced = trace(model)
    modules = dict(traced.named_modules())
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        source: Any = node.args[0] if node.args else None
        if not (_calls(node, nn.BatchNorm2d, modules) and _calls(source, nn.Conv2d, modules)):
            continue
        is_pair = len(source.users) == calls[source.target] == calls[node.target] == 1
        conv: Any = modules[source.target]
        # Weight normalization and pruning compute the weights in a hook.
        if is_pair and not conv._forward_pre_hooks:
            merged: Any = merge(conv, cast(Any, modules[node.target]))
            traced.set_submodule(source.target, merged)
            node.replace_all_uses_with(source)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced.eval()


def _calls(node: Any, kind: type[nn.Module], modules: dict[str, nn.Module]) -> bool:
    is_call = getattr(node, "op", None) == "call_module"
    return is_call and isinstance(modules[node.target], kind)


def trace(module: nn.Module) -> GraphModule:
    """Trace a network with ``torch.fx``, but not into layers without weights: folding changes none.

    ``Normalize`` of torchvision checks its input, which cannot be traced.
    """
    from torch import fx  # which takes time to import, and the plain engine does without

    class Tracer(fx.Tracer):
        def is_leaf_module(self, layer: nn.Module, name: str) -> bool:
            return super().is_leaf_module(layer, name) or not layer.state_dict()

    return fx.GraphModule(module, Tracer().trace(module))


def split_normalization(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return the normalization and the network of a model of this project.

    Another model is returned as the network, with an identity.
    """
    names = [name for name, _ in module.named_children()]
    if isinstance(module, nn.Sequential) and names == ["normalize", "network"]:
        return module[0], module[1]
    return nn.Identity(), module


def device_of(module: nn.Module, x: Tensor | None = None) -> torch.device:
    """Return the device of a network's parameters or buffers, else that of ``x``, or the CPU."""
    fallback = torch.empty(0) if x is None else x
    return next(chain(module.parameters(), module.buffers()), fallback).device


def layout(device: torch.device, dtype: torch.dtype) -> torch.memory_format:
    """Return the order of values in memory in which convolutions are fastest.

    Channels last, except in float32 on a GPU: without TF32, cuDNN computed ResNet-110 12 times
    slower in that order, at a batch of 2,700 on an H100 (benchmarks/results). Whether it rounds to
    TF32 is what torch is set to at the moment (``rs.runtime.device.products``).
    """
    backends: Any = torch.backends  # its types have gaps
    rounds = backends.cudnn.conv.fp32_precision == "tf32"
    first = device.type == "cuda" and dtype == torch.float32 and not rounds
    return torch.contiguous_format if first else torch.channels_last


def compiled(
    module: nn.Module, device: torch.device, *, frozen: bool = False
) -> Callable[[Tensor], Tensor]:
    """Compile a network for inputs of fixed shapes, with CUDA graphs on a GPU.

    The compiler runs at the first call. ``frozen`` treats the weights as constants; it has an
    effect on a CPU only.
    """
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_not_about_cuda)
    options: dict[str, Any] = {"freezing": frozen}
    if device.type == "cuda":
        options = {"triton.cudagraphs": True}
    return torch.compile(module, dynamic=False, options=options)


def _is_not_about_cuda(record: logging.LogRecord) -> bool:
    """Drop the compiler's warning that CUDA is installed on a machine without a GPU."""
    return not str(record.msg).startswith("No CUDA runtime is found")


def raised_compile_limit() -> AbstractContextManager[Any]:
    """Return a context with a higher limit of compiled networks.

    All networks of one class share one forward function, and torch compiles eight versions of it by
    default; further ones silently run uncompiled.
    """
    return torch._dynamo.config.patch(
        recompile_limit=MAX_COMPILED_NETWORKS,
        accumulated_recompile_limit=MAX_COMPILED_NETWORKS,
        fail_on_recompile_limit_hit=True,
    )


def warn_of_fallback(what: str, error: Exception) -> None:
    """Write a warning to stderr: what does not work for this network, and why."""
    reason = " ".join(str(error).split())[:200]
    print(f"warning: this network {what} ({type(error).__name__}: {reason})", file=sys.stderr)
