"""What it costs to certify a pool of members and 60 ensembles in one noise pass, beside certifying each alone.

``python -m benchmarks.pool --architecture smallnet``. Networks have random weights: the work is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.common import ALPHA, CLASSES, N0, Architecture, machine, network
from rs.command_line.shell import run

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rs.ensemble.pool import PoolEntry
    from rs.statistics.certificate import Certificate

Certificates = list[dict[str, "Certificate"]]
"""Certificates by name, of each image."""

SIGMA = 0.5
ROUNDS = 5
GROUPS = 12
"""Sets of members that the ensembles are of: 2, 3 and all members in turn. Each set has one ensemble of each rule."""
RULES = 5


def main(
    architecture: Annotated[Architecture, typer.Option(help="Network of every member.")] = Architecture.smallnet,
    images: Annotated[int, typer.Option(min=1, help="Images to certify.")] = 4,
    n: Annotated[int, typer.Option(min=1, help=f"Draws that bound a probability, after {N0} that select.")] = 1000,
    members: Annotated[int, typer.Option(min=3, help="Members of the pool.")] = 9,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    alone: Annotated[int, typer.Option(min=1, max=GROUPS * RULES, help="Ensembles certified alone, of 60.")] = 15,
) -> None:
    """Print a Markdown table of seconds per image, medians of 5 interleaved rounds; stop if a certificate differs."""
    import torch

    from rs.runtime.device import device_named

    torch.set_num_threads(threads)
    device_named("cpu")  # as the stages do
    ways = _ways(architecture, images, n, members, alone)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    made: dict[str, Certificates] = {}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begun = time.perf_counter()
            made[name] = way()
            seconds[name].append((time.perf_counter() - begun) / images)
        _check(made)
    medians = {name: median(values) for name, values in seconds.items()}
    print("\n".join(_report(medians, alone)))
    print(f"\n{architecture.value}, {images} images, {N0} + {n} draws, {members} members, float32")
    print(machine())


def _ways(
    architecture: Architecture, images: int, n: int, members: int, alone: int
) -> dict[str, Callable[[], Certificates]]:
    """Ways (a) to (d) of certifying all images."""
    import torch

    from rs.ensemble.pool import MemberLogits, NoisyPool, PoolEntry
    from rs.smoothing.classifier import SmoothedClassifier
    from rs.smoothing.settings import Draws

    networks = [network(architecture, torch.device("cpu"), seed)[0] for seed in range(members)]
    x = torch.rand((images, *architecture.shape), generator=torch.Generator().manual_seed(0))
    single = {f"member {number}": PoolEntry((number,)) for number in range(members)}
    ensembles = dict(_ensembles(members))
    some = dict(list(ensembles.items())[:alone])

    def together(entries: Mapping[str, PoolEntry]) -> Certificates:
        classifier = SmoothedClassifier(MemberLogits(networks), CLASSES, SIGMA)
        return [
            NoisyPool(classifier, image, Draws(N0, n, ALPHA), index).certify(entries) for index, image in enumerate(x)
        ]

    return {
        "a": lambda: _each_alone(networks, single, x, n),
        "b": lambda: together(single),
        "c": lambda: together(single | ensembles),
        "d": lambda: _each_alone(networks, some, x, n),
    }


def _ensembles(members: int) -> Iterator[tuple[str, PoolEntry]]:
    """60 ensembles. The first 15 are of one set of each size, so that their mean costs what the mean of all does."""
    import numpy as np

    from rs.ensemble.base import Polytope, SoftmaxAverage
    from rs.ensemble.pool import PoolEntry
    from rs.ensemble.rules import HardVote, KConsensus, MaxMargin

    rng = np.random.default_rng(0)
    for group in range(GROUPS):
        size = (2, 3, members)[group % 3]
        numbers = tuple(rng.choice(members, size, replace=False).tolist())
        weights = rng.dirichlet(np.ones(size), 4)
        for rule in (SoftmaxAverage(weights[0]), Polytope(weights[1:]), MaxMargin(), HardVote(), KConsensus(2)):
            yield f"{type(rule).__name__} {group}", PoolEntry(numbers, rule)


def _each_alone(networks: Sequence[nn.Module], entries: Mapping[str, PoolEntry], x: Tensor, n: int) -> Certificates:
    """Certificates without a pool: of a member as it is, of an ensemble as a classifier of its own."""
    from rs.ensemble.base import Ensemble
    from rs.smoothing.classifier import SmoothedClassifier

    made: Certificates = [{} for _ in x]
    for name, entry in entries.items():
        chosen = [networks[number] for number in entry.member_ids]
        base = chosen[0] if len(chosen) == 1 else Ensemble(chosen, entry.rule)
        classifier = SmoothedClassifier(base, CLASSES, SIGMA, undecided=entry.rule.undecided)
        for index, image in enumerate(x):
            made[index][name] = classifier.certify(image, N0, n, ALPHA, index=index)
    return made


def _check(made: Mapping[str, Certificates]) -> None:
    """Stop unless every certificate that was made twice is the same."""
    for way in "abd":
        for index, (expected, pool) in enumerate(zip(made[way], made["c"], strict=True)):
            for name, certificate in expected.items():
                if certificate.to_dict() != pool[name].to_dict():
                    raise RuntimeError(f"image {index}, {name}: ({way}) gives {certificate}, (c) gives {pool[name]}")


def _report(seconds: Mapping[str, float], alone: int) -> Iterator[str]:
    """Lines of the table and of the ratios."""
    count = GROUPS * RULES
    a, b, c, d = (seconds[way] for way in "abcd")
    d *= count / alone
    yield "| | way | seconds per image |"
    yield "|---|---|---:|"
    yield f"| a | each member alone, summed | {a:.4f} |"
    yield f"| b | all members in one pass | {b:.4f} |"
    yield f"| c | all members and {count} ensembles in one pass | {c:.4f} |"
    yield f"| d | each of {count} ensembles alone, from the first {alone} | {d:.4f} |"
    yield ""
    yield f"b / a = {b / a:.2f}, c / a = {c / a:.2f}, c / b = {c / b:.2f}, (a + d) / c = {(a + d) / c:.1f}"


if __name__ == "__main__":
    run(main)
