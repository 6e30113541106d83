"""Draws that stopping early saves, replayed on the probabilities that certification logs imply.

``python -m benchmarks.sequential --logs LOGS --rows ROWS``. No network runs: a draw votes for the
class of an image with the probability p_A behind its published radius. Where the log abstains p_A
is unknown, and drawn from U(0.30, 0.505). Rows of this project have their votes, which are p_A. The
class is taken as chosen rightly; its ``n0`` draws count. At one radius an image is certified if its
class is, right or wrong. Whole tables count right images, as they print, and certification with all
draws sees the same draws as the ways that stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import ndtr, rel_entr
from scipy.stats import binom

from rs.command_line.shell import run
from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, votes_for, votes_of
from rs.statistics.metrics import budget
from rs.statistics.radius import lower_bound, upper_bound
from rs.statistics.resampling import dense_votes
from rs.statistics.sequential import Decider, look_schedule
from rs.storage import certificate_rows
from rs.storage.certificate_rows import read_field_log

GRID = {0.25: (0.25, 0.5, 0.75), 0.5: (0.5, 1.0, 1.5), 1.0: (0.5, 1.0, 2.0)}
"""Radii to decide at each sigma."""

N0, N, ALPHA, BETA = 100, 100_000, 0.001, 0.01
STAGES, STAGES_BETA = (1_000, 10_000, 125_000), 0.0001
"""The three stages of Horvath et al. (2022), each on draws of its own, and their level of needless
abstentions.
"""

UNKNOWN = (0.30, 0.505)

TITLE = """\
# How many samples early stopping saves

Replays of published logs, for one radius at a time. Each cell gives the mean number of samples per
image and, in parentheses, how many times fewer that is than all samples. "lost" is the certified
accuracy that is lost by stopping early, in percentage points.
"""


class Replay(NamedTuple):
    """What became of the images."""

    certified: NDArray[np.bool_ | np.float64]  # whether, or with what chance
    draws: NDArray[np.int64]  # n0 included


TABLE = tuple(0.25 * k for k in range(10))
"""Radii of the paper's tables of certified accuracy."""

METHODS = ("gaussian", "smoothadv", "consistency")
FIRST = 500
"""Images of the paper's tables, whose digits are compared."""


class Source(NamedTuple):
    """The images of one table."""

    name: str
    sigma: float
    n: int  # draws at most
    p: NDArray[np.float64]  # p_A of the images, (B,)
    correct: NDArray[np.bool_]  # whether the class is right, (B,)
    skipped: NDArray[
        np.bool_
    ]  # whether a shortcut skips the draws: the class is known to be wrong, (B,)


Way = Callable[[NDArray[np.float64], float, float, np.random.Generator], Replay]
"""p_A of the images (B,), radius, sigma and randomness -> what became of them."""


def main(
    logs: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Folder of published logs.")
    ],
    method: Annotated[
        str, typer.Option(help="Part of the names of the logs to read.")
    ] = "smoothadv",
    rows: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="Rows with votes.")
    ] = None,
    images: Annotated[
        int, typer.Option(min=1, help="Images of each log, from the first on.")
    ] = FIRST,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the replays.")] = 0,
) -> None:
    """Print Markdown tables of the mean number of samples that early stopping takes, n0 included.

    The first table is for one radius at a time, the second for all radii of a table at once. Both
    give the certified accuracy that is lost; the second counts the printed cells that change.
    """
    found = {
        sigma: probabilities(logs, method, sigma, np.random.default_rng(seed))[:images]
        for sigma in GRID
    }
    cases = [(sigma, radius) for sigma, radii in GRID.items() for radius in radii]
    made = [replays(found[sigma], radius, sigma, seed) for sigma, radius in cases]
    print(TITLE)
    print("\n".join(_table(cases, made)))
    print(
        f"\n{method}, up to {images} images per log; alpha {ALPHA}, beta {BETA}; {N0} + at most "
        f"{N:,} samples. Three stages (Horvath et al., 2022): {N0} + n samples per stage, "
        f"n = {STAGES}, beta {STAGES_BETA}."
    )
    sources = [logged(logs, name, sigma, images) for name in METHODS for sigma in GRID] + [
        kept(path) for path in rows or ()
    ]
    print("\n" + "\n".join(_whole_tables(sources, seed)))


def replays(p: NDArray[np.float64], radius: float, sigma: float, seed: int) -> dict[str, Replay]:
    """Return what each way makes of images of p_A (B,), on its own draws; "all draws" first."""
    return {
        name: way(p, radius, sigma, np.random.default_rng([seed, i]))
        for i, (name, way) in enumerate(WAYS.items())
    }


def probabilities(
    logs: Path, method: str, sigma: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """p_A of the images of a log, shape (B,): the share k / n whose certified radius is nearest to
    the log's.
    """
    return _implied(_log(logs, method, sigma), sigma, rng)


def _log(logs: Path, method: str, sigma: float) -> DataFrame:
    found = sorted(logs.glob(f"*{method}*_s{sigma:.2f}_full.tsv"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InputError(f"{logs} must hold one log of {method!r} at sigma {sigma}, got {names}")
    return read_field_log(found[0], sigma=sigma, n0=N0, n=N, alpha=ALPHA)


def _implied(rows: DataFrame, sigma: float, rng: np.random.Generator) -> NDArray[np.float64]:
    bounds = _bounds(N)
    lower = ndtr(rows["radius"].to_numpy() / sigma)
    k = np.searchsorted((bounds[1:] + bounds[:-1]) / 2, lower)
    return np.where(rows["predict"] == ABSTAIN, rng.uniform(*UNKNOWN, len(rows)), k / N)


@cache
def _bounds(n: int) -> NDArray[np.float64]:
    """Bounds of CERTIFY for k = 0, 1, ..., n successes, increasing."""
    return lower_bound(np.arange(n + 1), n, ALPHA)


def _full(p: NDArray[np.float64], radius: float, sigma: float, _: np.random.Generator) -> Replay:
    """CERTIFY: all draws, one bound. Its chance is exact, which leaves less noise in the
    differences to it.
    """
    needed = np.searchsorted(_bounds(N), ndtr(radius / sigma))
    return Replay(binom.sf(needed - 1, N, p), np.full(len(p), N0 + N))


def _stages(
    p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator
) -> Replay:
    """Adaptive sampling of Horvath et al. (2022): each stage chooses and bounds anew, at its share
    of the levels.
    """
    p0, last = ndtr(radius / sigma), len(STAGES) - 1
    certified, draws, open_ = (
        np.zeros(len(p), dtype=bool),
        np.zeros(len(p), dtype=np.int64),
        np.arange(len(p)),
    )
    for n in STAGES:
        k = rng.binomial(n, p[open_])
        draws[open_] += N0 + n
        yes = lower_bound(k, n, ALPHA / len(STAGES)) >= p0
        certified[open_[yes]] = True
        no = upper_bound(k, n, STAGES_BETA / last) < p0
        open_ = open_[~yes & ~no]
    return Replay(certified, draws)


def _sequential(
    p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator
) -> Replay:
    """Runs of ``rs.statistics.sequential``, for all images at once."""
    decider = Decider([radius], sigma, ALPHA, N, beta=BETA)
    p0, required_share, times = decider.p0, decider.required_share, decider.times
    certified, draws = np.zeros(len(p), dtype=bool), np.full(len(p), N0 + N)
    open_, k = (
        np.arange(len(p)),
        np.zeros(len(p), dtype=np.int64),
    )  # images undecided, and their successes
    for check, new in enumerate(np.diff(times, prepend=0)):
        k += rng.binomial(new, p[open_])
        yes, no = decider.lower(k, check) >= p0, decider.upper(k, check) < required_share
        certified[open_[yes]] = True
        draws[open_[yes | no]] = N0 + times[check]
        open_, k = open_[~yes & ~no], k[~yes & ~no]
    return Replay(certified, draws)


WAYS: dict[str, Way] = {"all draws": _full, "three stages": _stages, "cumulative": _sequential}


def _table(
    cases: Sequence[tuple[float, float]], made: Sequence[dict[str, Replay]]
) -> Iterator[str]:
    """Lines of the table: a row for each case, and one for their means."""
    names = [name for name in WAYS if name != "all draws"]
    yield f"| sigma | radius | certified | {' | '.join(f'{name} | lost' for name in names)} |"
    yield f"|---:|---:|---:|{'---:|---:|' * len(names)}"
    for (sigma, radius), replay in zip(cases, made, strict=True):
        cells = (
            f"{replay[name].draws.mean():,.0f} ({gain(replay, name):.1f}x) | "
            f"{lost(replay, name):.2f}"
            for name in names
        )
        certified = replay["all draws"].certified.mean()
        yield f"| {sigma} | {radius} | {certified:.1%} | {' | '.join(cells)} |"
    means = (
        [np.mean([f(replay, name) for replay in made]) for f in (gain, lost)] for name in names
    )
    yield f"| mean | | | {' | '.join(f'{times:.1f}x | {points:.2f}' for times, points in means)} |"


def logged(logs: Path, method: str, sigma: float, images: int) -> Source:
    """The first images of a log."""
    rows = _log(logs, method, sigma)[:images]
    p, right = _implied(rows, sigma, np.random.default_rng(0)), rows["correct"].to_numpy() == 1
    return Source(
        f"{method}, log", sigma, N, p, right, ~right & (rows["predict"] != ABSTAIN).to_numpy()
    )


def kept(path: Path) -> Source:
    """Rows of this project; p_A is the share of votes for the class that the n0 draws chose."""
    rows = certificate_rows.read_rows(path)
    chosen = dense_votes(rows["counts0"]).argmax(axis=1)  # the lowest class of several
    p = (
        votes_for(votes_of(rows["counts"]), chosen) / np.maximum(rows["n"], 1).to_numpy()
    )  # 0 where n was skipped
    right = chosen == rows["label"].to_numpy()
    return Source(
        f"{path.stem}, rows", budget(rows, "sigma"), int(budget(rows, "n")), p, right, ~right
    )


class Answered(NamedTuple):
    """What became of the images of a table."""

    draws: NDArray[np.int64]  # (B,), without n0
    by_radius: NDArray[np.int64]  # draws until each radius was answered, (B, R)
    yes: NDArray[np.bool_]  # certified at each radius and right, (B, R)
    by_all: NDArray[np.bool_]  # the same with all draws


def answered(source: Source, seed: int) -> Answered:
    """What becomes of the images by one run for all radii of :data:`TABLE` that n draws can
    certify.
    """
    radii = _possible(source)
    steps = _steps(source, seed)
    draws, by_radius = (
        np.zeros(len(steps), dtype=np.int64),
        np.full((len(steps), len(radii)), source.n),
    )
    yes = np.zeros((len(steps), len(radii)), dtype=bool)
    for image, successes in enumerate(steps):
        run = Decider(radii, source.sigma, ALPHA, source.n, beta=BETA)
        for count in successes:
            run.update(int(count), run.next_draws())
            given = [k < run.established or k >= run.open_to for k in range(len(radii))]
            by_radius[image, given] = np.minimum(by_radius[image, given], run.draws)
            if not run.next_draws():
                break
        draws[image], yes[image] = run.draws, np.arange(len(radii)) < run.established
    p_lower = _bounds(source.n)[steps.sum(axis=1)]
    right = source.correct[:, None]
    return Answered(
        draws,
        by_radius,
        yes & right,
        (p_lower[:, None] >= ndtr(np.array(radii) / source.sigma)) & right,
    )


def fewest(source: Source) -> NDArray[np.float64]:
    """What no way can take fewer than in the mean, of draws for all radii of :data:`TABLE`, even if
    it knew p; (B,).

    If an event has probability a under p and at most b < a under q, a way that ends knowing whether
    it happened takes

        E_p[draws] KL(p, q) >= kl(a, b) = a ln(a / b) + (1 - a) ln((1 - a) / (1 - b))

    draws (Wald 1945). The events are "yes" to p_k, of probability alpha at most under p_k, and as
    probable under p as with all draws, so that tables print the same; and giving up a radius that
    all draws certify at the share w_k, of probability beta at most under w_k. What neither says yes
    nor gives up takes all draws. Of the probabilities of giving up that which takes the fewest
    counts.
    """
    radii = _possible(source)
    p0, p, n = ndtr(np.array(radii) / source.sigma), source.p[:, None], source.n
    share = Decider(radii, source.sigma, ALPHA, n, beta=BETA).required_share
    certain = binom.sf(np.searchsorted(_bounds(n), p0) - 1, n, p)  # that all draws say yes, (B, R)
    yes = np.where(p > p0, _needed(certain, ALPHA, p, p0), 0.0)
    steps = np.linspace(0, 1, 201)
    no = np.full(certain.shape, np.inf)
    for less, more in pairwise(steps):
        given_up = np.where(
            p < share, _needed(np.array(less), BETA, p, share), np.inf if less > BETA else 0.0
        )
        no = np.minimum(no, np.maximum(given_up, n * np.clip(1 - more - certain, 0, None)))
    return np.minimum(np.maximum(yes, no).max(axis=1), n)


def _needed(
    a: NDArray[np.float64], b: float, p: NDArray[np.float64], q: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the draws that an event of probability a under p and at most b under q takes."""
    both = rel_entr(p, q) + rel_entr(1 - p, 1 - q)
    return np.where(a > b, rel_entr(a, b) + rel_entr(1 - a, 1 - b), 0.0) / np.where(
        both > 0, both, np.inf
    )


def _possible(source: Source) -> list[float]:
    """The radii of :data:`TABLE` that all draws can certify."""
    return [radius for radius in TABLE if ndtr(radius / source.sigma) <= _bounds(source.n)[-1]]


def _steps(source: Source, seed: int) -> NDArray[np.int64]:
    """Successes of every image between looks, (B, T)."""
    between = np.diff(look_schedule(source.n), prepend=0)
    return np.random.default_rng(seed).binomial(between, source.p[:, None])


def _whole_tables(sources: Sequence[Source], seed: int) -> Iterator[str]:
    """Lines of a table: a row for each source, on one run for all radii."""
    yield "## All radii of a table at once\n"
    yield (
        "One run per image decides all radii. Only images with a correct prediction count as "
        "certified.\n"
    )
    radii = " | ".join(f"{radius:g}" for radius in TABLE)
    costs = "samples | with the shortcut | lower limit | with the shortcut"
    yield f"| images of | sigma | n | {costs} | lost | cells that differ | {radii} |"
    yield f"|---|---:|---:|---:|---:|---:|---:|---:|---:|{'---:|' * len(TABLE)}"
    for source in sources:
        found = answered(source, seed)
        lost = 100 * (found.by_all.mean(axis=0) - found.yes.mean(axis=0)).mean()
        digits = [
            [f"{share:.1%}" for share in cells[:FIRST].mean(axis=0)]
            for cells in (found.yes, found.by_all)
        ]
        differ = sum(one != other for one, other in zip(*digits, strict=True))
        cells = [f"{draws:,.0f}" for draws in N0 + found.by_radius.mean(axis=0)]
        cells += [""] * (len(TABLE) - len(cells))
        spent = f"{_spent(source, found.draws)} | {_spent(source, fewest(source))}"
        about = f"{source.name} | {source.sigma} | {source.n:,} | {spent} | {lost:.2f}"
        yield f"| {about} | {differ} of {len(digits[0])} | {' | '.join(cells)} |"
    yield ""
    yield from (
        "- **lower limit**: no procedure with the same guarantee and the same printed table takes "
        "fewer samples on average, even if it knew p (Wald, 1945).",
        "- **with the shortcut**: sampling stops after the first samples if these predict another "
        "class than the label. Rows that were made with the shortcut lack the votes of such "
        "images, so only these columns apply to them.",
        "- **lost**: mean loss of certified accuracy over the radii, in percentage points.",
        f"- **cells that differ**: certified accuracies of the first {FIRST} images that would be "
        "printed differently with all samples, to a tenth of a percent.",
        "- **a radius**: mean number of samples until this radius is decided.",
    )


def _spent(source: Source, draws: NDArray[np.int64] | NDArray[np.float64]) -> str:
    """Two cells: mean draws of all images, and with those of wrong classes skipped, as times fewer
    than all.
    """
    means = (N0 + draws.mean(), N0 + (draws * ~source.skipped).mean())
    return " | ".join(f"{mean:,.0f} ({(N0 + source.n) / mean:.1f}x)" for mean in means)


def gain(replay: dict[str, Replay], name: str) -> float:
    """How many times fewer draws a way takes than all."""
    return replay["all draws"].draws.mean() / replay[name].draws.mean()


def lost(replay: dict[str, Replay], name: str) -> float:
    """Points of the certified share that a way loses."""
    return 100 * (replay["all draws"].certified.mean() - replay[name].certified.mean())


if __name__ == "__main__":
    run(main)
