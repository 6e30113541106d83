"""Engines of certification and training: checks of folding and compiling."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rs.models import Precision

if TYPE_CHECKING:
    from torch.fx import GraphModule

MAX_ROUNDING = 1e-9
"""Largest relative difference of logits that counts as rounding in float64, for networks of a
hundred layers.
"""

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
    exact, device = copy.deepcopy(module).eval().double(), device_of(module)
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        device
    )
    with torch.no_grad():
        expected = exact(x)
        folded = fold(exact)(x)
    difference, largest = float((folded - expected).abs().max()), float(expected.abs().max())
    if not difference <= MAX_ROUNDING * largest:
        raise ValueError(
            f"folded, it is another function, by {difference:.2g} of logits up to {largest:.2g}"
        )


def trace(module: nn.Module) -> GraphModule:
    """Trace a network with ``torch.fx``, but not into layers without weights: folding changes none.

    ``Normalize`` of torchvision checks its input, which cannot be traced.
    """
    from torch import fx  # which takes time to import, and the plain engine does without

    class Tracer(fx.Tracer):
        def is_leaf_module(self, layer: nn.Module, name: str) -> bool:
            return super().is_leaf_module(layer, name) or not layer.state_dict()

    return fx.GraphModule(module, Tracer().trace(module))


def device_of(module: nn.Module, x: Tensor | None = None) -> torch.device:
    """Return the device of a network's first parameter or buffer; if it has neither, that of ``x``,
    or the CPU.
    """
    return next(
        chain(module.parameters(), module.buffers()), torch.empty(0) if x is None else x
    ).device


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
    """Compile a network for inputs of fixed shapes, with CUDA graphs on a GPU; the compiler runs at
    the first call.

    ``frozen`` treats the weights as constants; it has an effect on a CPU only.
    """
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_not_about_cuda)
    options: dict[str, Any] = (
        {"triton.cudagraphs": True} if device.type == "cuda" else {"freezing": frozen}
    )
    return torch.compile(module, dynamic=False, options=options)


def _is_not_about_cuda(record: logging.LogRecord) -> bool:
    """Drop the compiler's warning that CUDA is installed on a machine without a GPU."""
    return not str(record.msg).startswith("No CUDA runtime is found")


@contextmanager
def unlimited() -> Iterator[None]:
    """Raise the limit of compiled networks.

    All networks of one class share one forward function, and torch compiles eight versions of it by
    default; further ones silently run uncompiled.
    """
    with torch._dynamo.config.patch(
        recompile_limit=MAX_COMPILED_NETWORKS,
        accumulated_recompile_limit=MAX_COMPILED_NETWORKS,
        fail_on_recompile_limit_hit=True,
    ):
        yield


def warn(what: str, error: Exception) -> None:
    """Write a warning to stderr: what does not work for this network, and why."""
    reason = " ".join(str(error).split())[:200]
    print(f"warning: this network {what} ({type(error).__name__}: {reason})", file=sys.stderr)
