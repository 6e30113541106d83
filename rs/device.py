"""Choosing the device, once, at the edge."""

from __future__ import annotations

import torch

from rs.errors import InputError


def device_named(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        InputError: If the device is unknown or not here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be auto, cpu or a CUDA device that is here, got {name!r}: {error}") from error
    return device
