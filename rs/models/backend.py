"""What the engines of certification and of training share: their names, and how folding and compiling are tried."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Engine = Literal["plain", "folded", "compiled"]

EXACT = 1e-9
"""Largest difference of logits, to the largest logit, that is rounding in float64, in networks of a hundred layers."""

VERSIONS = 1000
"""Networks that one process may compile."""

PASSES = 3
"""Until a CUDA graph has been warmed up, recorded and replayed; each of them may fail."""


def check_folding(
    module: nn.Module, shape: Sequence[int], fold: Callable[[nn.Module], Callable[[Tensor], Tensor]]
) -> None:
    """Check in float64, on a few images, that folding gives the function it is given, but for rounding.

    Args:
        module: Left as it is.
        shape: (C, H, W) of an image.
        fold: From a copy of the module, in eval mode and float64, to the function that it is folded into.
    Raises:
        ValueError: If it is another function; and whatever ``fold`` raises.
    """
    exact, device = copy.deepcopy(module).eval().double(), next(module.parameters(), torch.empty(0)).device
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    with torch.no_grad():
        expected = exact(x)
        found = fold(exact)(x)
    difference, largest = float((found - expected).abs().max()), float(expected.abs().max())
    if not difference <= EXACT * largest:
        raise ValueError(f"folded, it is another function, by {difference:.2g} of logits up to {largest:.2g}")


def compiled(module: nn.Module, device: torch.device, *, frozen: bool = False) -> Callable[[Tensor], Tensor]:
    """Compile a network for inputs of fixed shapes, with CUDA graphs on a GPU; it is first needed at the first call.

    ``frozen`` takes the weights for constants, which only helps, and is only asked for, on a CPU.
    """
    options = {"triton.cudagraphs": True} if device.type == "cuda" else {"freezing": frozen}
    return torch.compile(module, dynamic=False, options=options)


@contextmanager
def unlimited() -> Iterator[None]:
    """Compile here whatever was compiled before.

    All networks of one class share one forward, of which eight versions are compiled by default, and the ninth is not,
    in silence.
    """
    limits = {"recompile_limit": VERSIONS, "accumulated_recompile_limit": VERSIONS}
    with torch._dynamo.config.patch(**limits, fail_on_recompile_limit_hit=True):
        yield


def warn(what: str, error: Exception) -> None:
    """Say on stderr what this network cannot have, and why."""
    reason = " ".join(str(error).split())[:200]
    print(f"warning: this network {what} ({type(error).__name__}: {reason})", file=sys.stderr)
