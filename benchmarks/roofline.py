"""How near to the machine's limits: what it can compute and move, and what a forward pass asks of
it.

The traffic of a pass is what its operations read and write, as if nothing stayed in a cache; of a
compiled one, what its convolutions and matrix products read and write, as if all else were fused
into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.common import timed

if TYPE_CHECKING:
    import torch
    from torch import nn


class Ceilings(NamedTuple):
    """What the machine does at best, measured."""

    bandwidth: float  # bytes a second, of a copy
    peak: dict[str, float]  # operations a second of a matrix product, by precision

    def __str__(self) -> str:
        peaks = ", ".join(
            f"{value / 1e12:.3g} T operations/s in {name}" for name, value in self.peak.items()
        )
        return f"measured limits: copies at {self.bandwidth / 1e9:,.0f} GB/s, {peaks}"


class Work(NamedTuple):
    """What a pass asks for, an image."""

    operations: float
    bytes: float


def ceilings(device: torch.device) -> Ceilings:
    """Measure them: a copy of some hundred MB; the faster of a product of square matrices and a
    wide convolution.
    """
    import torch
    import torch.nn.functional as F

    side, numbers, images = (8192, 2**28, 256) if device.type == "cuda" else (2048, 2**26, 8)
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * source.nbytes / _quickest(lambda: target.copy_(source), device)
    peak = {}
    for precision in ("float32", "bfloat16"):
        how = {"device": device, "dtype": getattr(torch, precision)}
        a = torch.ones(side, side, **how)
        x = torch.ones(images, 256, 32, 32, **how).to(memory_format=torch.channels_last)
        w = torch.ones(256, 256, 3, 3, **how).to(memory_format=torch.channels_last)
        with torch.inference_mode():
            product = 2 * side**3 / _quickest(lambda a=a: a @ a, device)
            seconds = _quickest(lambda x=x, w=w: F.conv2d(x, w, padding=1), device)
        peak[precision] = max(product, 2 * x.numel() * w.numel() / 256 / seconds)
    if device.type == "cpu":
        a = torch.ones(side, side, dtype=torch.int8)
        peak["int8"] = 2 * side**3 / _quickest(lambda: torch._int_mm(a, a), device)
    return Ceilings(bandwidth, peak)


def _quickest(way: Callable[[], object], device: torch.device, rounds: int = 7) -> float:
    return min(timed(way, device.type) for _ in range(rounds))


def work(module: nn.Module, x: torch.Tensor, *, fused: bool = False) -> Work:
    """What a forward pass of ``module`` on noisy images (N, C, H, W) asks for, an image."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    class Traffic(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            name = function.overloadpacket.__name__
            if function.is_view or (fused and name not in ("convolution", "addmm", "mm")):
                return out
            tensors = [
                leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)
            ]
            Traffic.total += sum(tensor.nbytes for tensor in tensors)
            return out

    with torch.no_grad(), FlopCounterMode(display=False) as counter, Traffic():
        module(x)
    return Work(counter.get_total_flops() / len(x), Traffic.total / len(x))


def attainable(ceiling: Ceilings, precision: str, asked: Work) -> float:
    """Images a second that the roofline allows: the slower of computing and moving."""
    return min(ceiling.peak[precision] / asked.operations, ceiling.bandwidth / asked.bytes)
