"""What the engines of certification and of training ask of ``torch.compile``, and say where it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

VERSIONS = 1000
"""Networks that one process may compile."""

PASSES = 3
"""Until a CUDA graph has been warmed up, recorded and replayed; each of them may fail."""


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
