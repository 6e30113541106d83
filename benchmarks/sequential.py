"""Draws that stopping early saves, replayed on the probabilities that published certification logs imply.

``python -m benchmarks.sequential --logs LOGS``. No network runs: a draw votes for the class of an image with the
probability p_A behind its published radius. Where the log abstains p_A is unknown, and drawn from U(0.30, 0.505).
The class is taken as chosen rightly; its ``n0`` draws count. An image is certified if its class is, right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from rs.command_line.shell import run
from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN
from rs.statistics.radius import lower_bound, upper_bound
from rs.statistics.sequential import RULES, at_radius
from rs.storage.certificate_rows import read_field_log

GRID = {0.25: (0.25, 0.5, 0.75), 0.5: (0.5, 1.0, 1.5), 1.0: (0.5, 1.0, 2.0)}
"""Radii to decide at each sigma."""

N0, N, ALPHA, BETA = 100, 100_000, 0.001, 0.001
STAGES, STAGES_BETA = (1_000, 10_000, 125_000), 0.0001
"""The three stages of Horvath et al. (2022), each on draws of its own, and their level of needless abstentions."""

UNKNOWN = (0.30, 0.505)


class Replay(NamedTuple):
    """What became of the images."""

    certified: NDArray[np.bool_ | np.float64]  # whether, or with what chance
    draws: NDArray[np.int64]  # n0 included


Way = Callable[[NDArray[np.float64], float, float, np.random.Generator], Replay]
"""p_A of the images (B,), radius, sigma and randomness -> what became of them."""


def main(
    logs: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of published logs.")],
    method: Annotated[str, typer.Option(help="Part of the names of the logs to read.")] = "smoothadv",
    images: Annotated[int, typer.Option(min=1, help="Images of each log, from the first on.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Names the draws.")] = 0,
) -> None:
    """Print a Markdown table of mean draws, n0 included, and points of the certified share lost against all draws."""
    found = {sigma: probabilities(logs, method, sigma, np.random.default_rng(seed))[:images] for sigma in GRID}
    cases = [(sigma, radius) for sigma, radii in GRID.items() for radius in radii]
    made = [replays(found[sigma], radius, sigma, seed) for sigma, radius in cases]
    print("\n".join(_table(cases, made)))
    print(f"\n{method}, up to {images} images a log; alpha {ALPHA}, beta {BETA}; {N0} + at most {N} draws")
    print(f"three stages: {N0} + n draws each, n = {STAGES}, beta {STAGES_BETA}")


def replays(p: NDArray[np.float64], radius: float, sigma: float, seed: int) -> dict[str, Replay]:
    """What becomes of images of p_A (B,) by every way, "all draws" first, each on draws of its own."""
    return {name: way(p, radius, sigma, np.random.default_rng([seed, i])) for i, (name, way) in enumerate(WAYS.items())}


def probabilities(logs: Path, method: str, sigma: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """p_A of the images of a log, shape (B,): the share k / n whose certified radius is nearest to the log's."""
    found = sorted(logs.glob(f"*{method}*_s{sigma:.2f}_full.tsv"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InputError(f"{logs} must hold one log of {method!r} at sigma {sigma}, got {names}")
    rows = read_field_log(found[0], sigma=sigma, n0=N0, n=N, alpha=ALPHA)
    bounds = _bounds()
    lower = ndtr(rows["radius"].to_numpy() / sigma)
    k = np.searchsorted((bounds[1:] + bounds[:-1]) / 2, lower)
    return np.where(rows["predict"] == ABSTAIN, rng.uniform(*UNKNOWN, len(rows)), k / N)


@cache
def _bounds() -> NDArray[np.float64]:
    """Bounds of CERTIFY for k = 0, 1, ..., N successes, increasing."""
    return lower_bound(np.arange(N + 1), N, ALPHA)


def _full(p: NDArray[np.float64], radius: float, sigma: float, _: np.random.Generator) -> Replay:
    """CERTIFY: all draws, one bound. Its chance is exact, which leaves less noise in the differences to it."""
    needed = np.searchsorted(_bounds(), ndtr(radius / sigma))
    return Replay(binom.sf(needed - 1, N, p), np.full(len(p), N0 + N))


def _stages(p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator) -> Replay:
    """Adaptive sampling of Horvath et al. (2022): each stage chooses and bounds anew, at its share of the levels."""
    p0, last = ndtr(radius / sigma), len(STAGES) - 1
    certified, draws, open_ = np.zeros(len(p), dtype=bool), np.zeros(len(p), dtype=np.int64), np.arange(len(p))
    for n in STAGES:
        k = rng.binomial(n, p[open_])
        draws[open_] += N0 + n
        yes = lower_bound(k, n, ALPHA / len(STAGES)) >= p0
        certified[open_[yes]] = True
        no = upper_bound(k, n, STAGES_BETA / last) < p0
        open_ = open_[~yes & ~no]
    return Replay(certified, draws)


def _sequential(rule: str) -> Way:
    """A rule of ``rs.statistics.sequential``, for all images at once."""

    def way(p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator) -> Replay:
        decider = at_radius(radius, sigma, ALPHA, N, beta=BETA, rule=rule)
        settled, p0, times = decider.rule, decider.p0, decider.times
        certified, draws = np.zeros(len(p), dtype=bool), np.full(len(p), N0 + N)
        open_, k = np.arange(len(p)), np.zeros(len(p), dtype=np.int64)  # images undecided, and their successes
        for check, new in enumerate(np.diff(times, prepend=0)):
            k += rng.binomial(new, p[open_])
            yes, no = settled.above(k, check, p0), settled.below(k, check, p0)
            certified[open_[yes]] = True
            draws[open_[yes | no]] = N0 + times[check]
            open_, k = open_[~yes & ~no], k[~yes & ~no]
        return Replay(certified, draws)

    return way


WAYS: dict[str, Way] = {"all draws": _full, "three stages": _stages} | {rule: _sequential(rule) for rule in RULES}


def _table(cases: Sequence[tuple[float, float]], made: Sequence[dict[str, Replay]]) -> Iterator[str]:
    """Lines of the table: a row for each case, and one for their means."""
    names = [name for name in WAYS if name != "all draws"]
    yield f"| sigma | radius | certified | {' | '.join(f'{name} | lost' for name in names)} |"
    yield f"|---:|---:|---:|{'---:|---:|' * len(names)}"
    for (sigma, radius), replay in zip(cases, made, strict=True):
        cells = (
            f"{replay[name].draws.mean():,.0f} ({gain(replay, name):.1f}x) | {lost(replay, name):.2f}" for name in names
        )
        yield f"| {sigma} | {radius} | {replay['all draws'].certified.mean():.1%} | {' | '.join(cells)} |"
    means = ([np.mean([f(replay, name) for replay in made]) for f in (gain, lost)] for name in names)
    yield f"| mean | | | {' | '.join(f'{times:.1f}x | {points:.2f}' for times, points in means)} |"


def gain(replay: dict[str, Replay], name: str) -> float:
    """How many times fewer draws a way takes than all."""
    return replay["all draws"].draws.mean() / replay[name].draws.mean()


def lost(replay: dict[str, Replay], name: str) -> float:
    """Points of the certified share that a way loses."""
    return 100 * (replay["all draws"].certified.mean() - replay[name].certified.mean())


if __name__ == "__main__":
    run(main)
