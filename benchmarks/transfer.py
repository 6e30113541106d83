"""What certificates by transfer are worth: votes of a network and of its int8 or bfloat16 form on the same noise.

``python -m benchmarks.transfer MODEL DATA --out votes.csv --form quantized`` classifies all draws of some test images
by both networks. :func:`table` derives from the votes what ``rs transfer`` and a new certification would state.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from benchmarks.common import ALPHA, N0
from rs.command_line.shell import run

if TYPE_CHECKING:
    import pandas as pd

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
    rows = []
    for index in range(0, len(test), len(test) // images):
        rows.append(
            {"idx": index, "label": int(test.labels[index])} | _votes(networks, test.pixels(index), index, draws)
        )
    pd.DataFrame(rows).assign(sigma=robust.sigma, form=form, n=draws).to_csv(out, index=False)


def _votes(networks: list[Any], x: Any, index: int, draws: int) -> dict[str, float]:
    """Return what both networks vote on the same noise, and the seconds that each took."""
    from rs.runtime.streams import Stream

    selected, classes, seconds = [], [], []
    for network in networks:
        selected.append(int(network.votes(x, N0, 0, Stream.SELECT, index).argmax()))
        start = time.perf_counter()
        classes.append(network.votes_by_draw(x, draws, 0, Stream.ESTIMATE, index))
        seconds.append(time.perf_counter() - start)
    won, kept = classes[0] == selected[0], classes[1] == selected[0]
    row = {
        "predict": selected[0],
        "votes": won.sum(),
        "anew": selected[1],
        "seconds": seconds[0],
        "seconds_anew": seconds[1],
    }
    row |= {f"losses_{count}": (won & ~kept)[:count].sum() for count in COMPARED}
    return row | {f"votes_{count}": (classes[1] == selected[1])[:count].sum() for count in ANEW}


def table(votes: pd.DataFrame) -> pd.DataFrame:
    """Return the ACR of each way to certify the second network, its error, and the CPU seconds of a certificate.

    ``transfer`` counts the seconds of both networks, ``anew`` those of the second one. The difference of each transfer
    to ``anew`` of as many draws is paired by image.
    """
    import numpy as np
    import pandas as pd

    from rs.statistics.radius import lower_bound, radius, transferred_bound

    n = int(votes["n"].iloc[0])
    both, second = (votes[name].to_numpy() / n for name in ("seconds", "seconds_anew"))
    both = both + second

    def radii(bound: Any, predict: str) -> Any:
        return np.where((bound >= 0.5) & (votes[predict] == votes["label"]), radius(bound, votes["sigma"]), 0.0)

    first = radii(lower_bound(votes["votes"], n, ALPHA), "predict")
    ways = [("first network", n, first, votes["seconds"].mean(), first)]
    anew = {count: radii(lower_bound(votes[f"votes_{count}"], count, ALPHA), "anew") for count in ANEW}
    for count in COMPARED:
        moved = radii(transferred_bound(votes["votes"], n, votes[f"losses_{count}"], count, ALPHA), "predict")
        ways.append(("transfer", count, moved, (both * count).mean(), anew[count]))
    ways += [("anew", count, anew[count], (second * count).mean(), anew[count]) for count in ANEW]
    return pd.DataFrame(
        [
            {
                "way": way,
                "draws": count,
                "acr": values.mean(),
                "acr_error": values.std(ddof=1) / len(votes) ** 0.5,
                "to_anew": (values - other).mean(),
                "to_anew_error": (values - other).std(ddof=1) / len(votes) ** 0.5,
                "seconds": seconds,
            }
            for way, count, values, seconds, other in ways
        ]
    )


if __name__ == "__main__":
    run(main)
