"""Forward passes per second of a network in each precision, without compiling.

``python -m benchmarks.throughput resnet110 --device cuda``
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from benchmarks.common import Architecture, network, timed
from rs.command_line.shell import run


def main(
    architecture: Annotated[Architecture, typer.Argument(help="Network.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
) -> None:
    """Print the forward passes per second in each precision that the device has."""
    import torch

    from rs.models.backend import DTYPES, layout
    from rs.runtime.device import resolve_device
    from rs.smoothing.classifier import autocast

    place = resolve_device(device)
    model, _ = network(architecture, place)
    size = 2700 if place.type == "cuda" else 50
    images = torch.rand(size, *architecture.shape, device=place)
    results = []
    for precision, dtype in DTYPES.items():
        if precision == "tf32" and place.type != "cuda":
            continue
        order = layout(place, dtype)
        model = model.to(memory_format=order)
        x = images.contiguous(memory_format=order)
        with torch.no_grad(), autocast(place, precision):
            model(x)  # to warm up
            seconds = timed(partial(model, x), place.type)
        results.append(f"{precision} {size / seconds:,.0f}/s")
    print(f"{architecture}: {', '.join(results)}")


if __name__ == "__main__":
    run(main)
