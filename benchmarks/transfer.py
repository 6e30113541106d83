"""What certificates by transfer are worth: votes of a network and of its int8 or bfloat16 form on the same noise.

``python -m benchmarks.transfer MODEL DATA --out votes.csv --form quantized`` classifies all draws of some test images
by both networks. :mod:`benchmarks.transfer_page` derives what ``rs transfer`` and a new certification would state.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.common import N0, evenly
from rs.command_line.shell import run

DRAWS = 10_000
"""Draws that the certificates of the first network rest on."""
COMPARED = (500, 1000, 5000)
"""Draws of both networks in a transfer."""
ANEW = (500, 1000, 5000, DRAWS)
"""Draws of the second network alone."""


def main(
    model: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the first network.")],
    data: Annotated[Path, typer.Argument(file_okay=False, help="Prepared data set.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="File of votes to write, *.csv.")],
    form: Annotated[Literal["quantized", "bfloat16"], typer.Option(help="Form of the second network.")] = "quantized",
    images: Annotated[int, typer.Option(min=1, help="Test images, evenly spaced.")] = 100,
    draws: Annotated[int, typer.Option(min=1, help="Draws of each image, after those that select.")] = DRAWS,
) -> None:
    """Write the votes of both networks, image by image, in one thread."""
    import pandas as pd
    import torch

    import rs
    from rs.data.images import load_images
    from rs.smoothing.settings import SmoothingOptions

    torch.set_num_threads(1)
    test = load_images(data, "test")
    robust = rs.load(model).for_images(test.meta.classes, test.meta.shape)
    changed: dict[str, Any] = {"engine": "quantized"} if form == "quantized" else {"precision": "bfloat16"}
    options = [
        SmoothingOptions(device=torch.device("cpu"), noise="grid", calibration=data, **how) for how in ({}, changed)
    ]
    networks = [robust.smooth(**vars(how)) for how in options]
    rows = [
        {"idx": index, "label": int(test.labels[index])} | _votes(networks, test.pixels(index), index, draws)
        for index in evenly(images, len(test))
    ]
    pd.DataFrame(rows).assign(sigma=robust.sigma, form=form, n=draws).to_csv(out, index=False)


def _votes(networks: list[Any], x: Any, index: int, draws: int) -> dict[str, float]:
    """Return what both networks vote on the same noise, and the seconds that each took."""
    from rs.runtime.streams import Stream

    selections, classes, seconds = [], [], []
    for network in networks:
        selections.append(network.votes(x, N0, 0, Stream.SELECT, index))
        start = time.perf_counter()
        classes.append(network.votes_by_draw(x, draws, 0, Stream.ESTIMATE, index))
        seconds.append(time.perf_counter() - start)
    first, second = (int(counts.argmax()) for counts in selections)
    won, kept = classes[0] == first, classes[1] == first
    row = {"predict": first, "selection": selections[0].max(), "votes": won.sum(), "anew": second}
    row |= {"seconds": seconds[0], "seconds_anew": seconds[1]}
    row |= {f"losses_{count}": (won & ~kept)[:count].sum() for count in COMPARED}
    return row | {f"votes_{count}": (classes[1] == second)[:count].sum() for count in ANEW}


if __name__ == "__main__":
    run(main)
