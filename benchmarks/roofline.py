"""How near to the machine's limits: what it can compute and move, and what a forward pass asks of it.

The traffic of a pass is what its operations read and write, as if nothing stayed in a cache; of a compiled one, what
its convolutions and matrix products read and write, as if all else were fused into them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.common import wait

if TYPE_CHECKING:
    import torch
    from torch import nn


class Ceilings(NamedTuple):
    """What the machine does at best, measured."""

    bandwidth: float  # bytes a second, of a copy
    peak: dict[str, float]  # operations a second of a matrix product, by precision

    def __str__(self) -> str:
        peaks = ", ".join(f"{value / 1e12:.3g} T operations/s in {name}" for name, value in self.peak.items())
        return f"measured limits: copies at {self.bandwidth / 1e9:,.0f} GB/s, {peaks}"


class Work(NamedTuple):
    """What a pass asks for, an image."""

    operations: float
    bytes: float


def ceilings(device: torch.device) -> Ceilings:
    """Measure them: a copy of some hundred MB; the faster of a product of square matrices and a wide convolution."""
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
    seconds = []
    for _ in range(rounds):
        wait(device.type)
        begun = time.perf_counter()
        way()
        wait(device.type)
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


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
            tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
            Traffic.total += sum(tensor.nbytes for tensor in tensors)
            return out

    with torch.no_grad(), FlopCounterMode(display=False) as counter, Traffic():
        module(x)
    return Work(counter.get_total_flops() / len(x), Traffic.total / len(x))


def attainable(ceiling: Ceilings, precision: str, asked: Work) -> float:
    """Images a second that the roofline allows: the slower of computing and moving."""
    return min(ceiling.peak[precision] / asked.operations, ceiling.bandwidth / asked.bytes)


HEAD = (
    "processor", "network", "threads", "way", "faster than the field's loop", "of the roofline", "noise, gaussian",
    "noise, grid", "load", "date",
)  # fmt: skip
KEY = 3
"""Cells that say what was measured on: machine, network, threads."""


def grow(page: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write rows into the table of machines, in place of those that were measured on the same; others stay."""
    made = [f"| {' | '.join(row)} |" for row in rows]
    key = f"| {' | '.join(rows[0][:KEY])} |"
    head = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    before = page.read_text(encoding="utf-8").splitlines()[len(head) :] if page.exists() else []
    lines = [*head, *sorted([line for line in before if not line.startswith(key)] + made, key=_place)]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _place(line: str) -> list[str]:
    return line.split(" | ")[:KEY]


def draw(path: Path, ceiling: Ceilings, points: Mapping[str, tuple[str, Work, float]], title: str) -> None:
    """Picture of the roofline; points are name -> (precision, work, images a second)."""
    import matplotlib.pyplot as plt
    import numpy as np

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    intensity = np.geomspace(1, 1000, 200)
    colours = {"float32": "C0", "bfloat16": "C1", "int8": "C2"}
    for precision, peak in ceiling.peak.items():
        roof = np.minimum(peak, intensity * ceiling.bandwidth)
        axes.loglog(intensity, roof / 1e9, color=colours[precision], label=f"roof, {precision}")
    for marker, (name, (precision, asked, speed)) in zip("os^Dv*PXhd<"[: len(points)], points.items(), strict=True):
        at = asked.operations / asked.bytes
        axes.loglog(at, speed * asked.operations / 1e9, marker, color=colours[precision], label=name, linestyle="none")
    axes.set(xlabel="operations per byte", ylabel="10⁹ operations per second", title=title)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
