"""Do the fast engines say what the plain network in float32 says? On trained models, with the same noise.

``python -m benchmarks.agreement models/digits/0.25/advmacer/0 --data data/digits``. Every engine certifies the same
images from the same draws; the certificate of each holds for the network as it runs, and this says how far these are
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from benchmarks.common import engines_on, evenly, machine
from rs.command_line.shell import DataFolder, run

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rs.data.prepared import Images
    from rs.smoothing.classifier import SmoothedClassifier


class Said(NamedTuple):
    """What an engine says of the images."""

    votes: np.ndarray  # (B, n0 + n)
    rows: list[dict[str, Any]]
    ties: float  # share of the draws whose two largest logits are equal


def main(
    models: Annotated[list[str], typer.Argument(help="Model folders, or *.json of ensembles.")],
    data: DataFolder,
    images: Annotated[int, typer.Option(min=1, help="Images, evenly spread over the test split.")] = 40,
    n: Annotated[int, typer.Option(min=1, help="Draws that bound a probability, after 100 that select.")] = 1000,
    alpha: Annotated[float, typer.Option(help="Failure probability.")] = 0.001,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Print a Markdown table: equal votes, ties of logits, equal predictions, change of the radii and of the ACR."""
    import torch

    from rs.certification.load import load
    from rs.data.images import load_images
    from rs.runtime.device import device_named
    from rs.statistics.metrics import acr

    torch.set_num_threads(threads)
    test, where = load_images(data, "test"), device_named(device)
    indices = evenly(images, len(test))
    print("| model | engine | equal votes | ties | equal predictions | change of radius: mean, largest | ACR, change |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for model in models:
        plain, loaded = None, load(model, test.meta)
        for engine, precision in engines_on(where):
            how = {"precision": precision} if precision != "int8" else {"calibration": data}
            smoothed = loaded.smooth(None, device=where, batch=None, engine=engine, noise="gaussian", **how)
            found = said(smoothed, test, indices, n, alpha, where)
            plain = plain or found
            votes = (found.votes == plain.votes).mean()
            same = sum(a["predict"] == b["predict"] for a, b in zip(found.rows, plain.rows, strict=True))
            change = [a["radius"] - b["radius"] for a, b in zip(found.rows, plain.rows, strict=True)]
            cells = [f"{votes:.2%}", f"{found.ties:.3%}", f"{same} of {len(indices)}"]
            cells.append(f"{sum(change) / len(change):+.4f}, {max(change, key=abs):+.4f}")
            cells.append(f"{acr(found.rows):.4f}, {acr(found.rows) - acr(plain.rows):+.4f}")
            print(f"| {model} | {engine}, {precision} | {' | '.join(cells)} |", flush=True)
    print(f"\n{len(indices)} images, 100 + {n} draws, alpha {alpha}; changes are from plain, float32")
    print(machine(device))


def said(
    smoothed: SmoothedClassifier, test: Images, indices: list[int], n: int, alpha: float, device: torch.device
) -> Said:
    """Votes and certificates of the images."""
    import numpy as np

    from rs.runtime.streams import Stream
    from rs.smoothing.vote_counting import Tally, certificate_of_votes

    votes, rows, ties = [], [], []
    for index in indices:
        x, label = test.pixels(index).to(device), int(test.labels[index])
        chosen: list[list[np.ndarray]] = [[], []]
        for phase, draws, into in ((Stream.SELECT, 100, chosen[0]), (Stream.ESTIMATE, n, chosen[1])):

            def keep(scores: torch.Tensor, _: int, into: list[np.ndarray] = into) -> None:
                into.append(scores.argmax(dim=1).cpu().numpy())
                ties.append((scores.topk(2).values.diff() == 0).cpu().numpy())

            smoothed.visit(keep, x, draws, 0, phase, index)
        width = smoothed.num_classes + smoothed.undecided
        tallies = [Tally(np.bincount(np.concatenate(part), minlength=width)) for part in chosen]
        rows.append(
            certificate_of_votes(*tallies, alpha, smoothed.sigma, undecided=smoothed.undecided).row(index, label)
        )
        votes.append(np.concatenate(chosen[0] + chosen[1]))
    return Said(np.stack(votes), rows, float(np.concatenate(ties).mean()))


if __name__ == "__main__":
    run(main)
