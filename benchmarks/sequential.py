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
from scipy.special import ndtr, rel_entr
from scipy.stats import binom

from benchmarks.common import markdown_line
from rs.command_line.shell import run
from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, votes_for, votes_of
from rs.statistics.metrics import budget
from rs.statistics.radius import lower_bound, upper_bound
from rs.statistics.resampling import dense_votes
from rs.statistics.sequential import Decider, look_schedule
from rs.storage import certificate_rows

GRID = {0.25: (0.25, 0.5, 0.75), 0.5: (0.5, 1.0, 1.5), 1.0: (0.5, 1.0, 2.0)}
"""Radii to decide at each sigma."""

N0 = 100
N = 100_000
ALPHA = 0.001
BETA = 0.01

STAGES = (1_000, 10_000, 125_000)
STAGES_BETA = 0.0001
"""The three stages of Horvath et al. (2022), each on draws of its own, and their level of needless
abstentions.
"""

UNKNOWN = (0.30, 0.505)
"""p_A of an image on which the log abstains lies between these."""

TABLE = tuple(0.25 * k for k in range(10))
"""Radii of the paper's tables of certified accuracy."""

METHODS = ("gaussian", "smoothadv", "consistency")
FIRST = 500
"""Images of the paper's tables, whose digits are compared."""

ALL_DRAWS = "all draws"

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


class Case(NamedTuple):
    """One radius to decide at a noise level, and the replay of each way."""

    sigma: float
    radius: float
    replays: dict[str, Replay]

    def gain(self, way: str) -> float:
        """How many times fewer draws a way takes than all."""
        return self.replays[ALL_DRAWS].draws.mean() / self.replays[way].draws.mean()

    def lost(self, way: str) -> float:
        """Points of the certified share that a way loses."""
        with_all_draws = self.replays[ALL_DRAWS].certified.mean()
        return 100 * (with_all_draws - self.replays[way].certified.mean())


class Source(NamedTuple):
    """The images of one table."""

    name: str
    sigma: float
    n: int  # draws at most
    p: NDArray[np.float64]  # p_A of the images, (B,)
    correct: NDArray[np.bool_]  # whether the class is right, (B,)
    # whether a shortcut skips the draws: the class is known to be wrong, (B,)
    skipped: NDArray[np.bool_]


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
    cases = []
    for sigma, radii in GRID.items():
        source = logged(logs, method, sigma, images, seed)
        for radius in radii:
            cases.append(Case(sigma, radius, replays(source.p, radius, sigma, seed)))
    print(TITLE)
    print("\n".join(_table(cases)))
    print(
        f"\n{method}, up to {images} images per log; alpha {ALPHA}, beta {BETA}; {N0} + at most "
        f"{N:,} samples. Three stages (Horvath et al., 2022): {N0} + n samples per stage, "
        f"n = {STAGES}, beta {STAGES_BETA}.\n"
    )
    sources = []
    for name in METHODS:
        for sigma in GRID:
            sources.append(logged(logs, name, sigma, images, seed))
    for path in rows or ():
        sources.append(kept(path))
    print("\n".join(_whole_tables(sources, seed)))


def replays(p: NDArray[np.float64], radius: float, sigma: float, seed: int) -> dict[str, Replay]:
    """Return what each way makes of images of p_A (B,), on its own draws; "all draws" first."""
    replay_of = {}
    for number, (name, way) in enumerate(WAYS.items()):
        replay_of[name] = way(p, radius, sigma, np.random.default_rng([seed, number]))
    return replay_of


@cache
def _bounds(n: int) -> NDArray[np.float64]:
    """Bounds of CERTIFY for k = 0, 1, ..., n successes, increasing."""
    return lower_bound(np.arange(n + 1), n, ALPHA)


def _full(p: NDArray[np.float64], radius: float, sigma: float, _: np.random.Generator) -> Replay:
    """CERTIFY: all draws, one bound. Its chance is exact, which leaves less noise in the
    differences from it.
    """
    needed = np.searchsorted(_bounds(N), ndtr(radius / sigma))
    return Replay(binom.sf(needed - 1, N, p), np.full(len(p), N0 + N))


def _stages(
    p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator
) -> Replay:
    """Adaptive sampling of Horvath et al. (2022): each stage chooses and bounds again, at its share
    of the levels.
    """
    p0 = ndtr(radius / sigma)
    certified = np.zeros(len(p), dtype=bool)
    draws = np.zeros(len(p), dtype=np.int64)
    undecided = np.arange(len(p))
    for n in STAGES:
        k = rng.binomial(n, p[undecided])
        draws[undecided] += N0 + n
        yes = lower_bound(k, n, ALPHA / len(STAGES)) >= p0
        no = upper_bound(k, n, STAGES_BETA / (len(STAGES) - 1)) < p0
        certified[undecided[yes]] = True
        undecided = undecided[~yes & ~no]
    return Replay(certified, draws)


def _sequential(
    p: NDArray[np.float64], radius: float, sigma: float, rng: np.random.Generator
) -> Replay:
    """Runs of ``rs.statistics.sequential``, for all images at once."""
    decider = Decider([radius], sigma, ALPHA, N, beta=BETA)
    certified = np.zeros(len(p), dtype=bool)
    draws = np.full(len(p), N0 + N)
    undecided = np.arange(len(p))
    k = np.zeros(len(p), dtype=np.int64)  # successes of the undecided images
    for look, new in enumerate(np.diff(decider.times, prepend=0)):
        k += rng.binomial(new, p[undecided])
        yes = decider.lower(k, look) >= decider.p0
        no = decider.upper(k, look) < decider.required_share
        certified[undecided[yes]] = True
        draws[undecided[yes | no]] = N0 + decider.times[look]
        is_open = ~yes & ~no
        undecided = undecided[is_open]
        k = k[is_open]
    return Replay(certified, draws)


WAYS: dict[str, Way] = {ALL_DRAWS: _full, "three stages": _stages, "cumulative": _sequential}


def _table(cases: Sequence[Case]) -> Iterator[str]:
    """Lines of the table: a row for each case, and one for their means."""
    ways = [way for way in WAYS if way != ALL_DRAWS]
    yield f"| sigma | radius | certified | {' | '.join(f'{way} | lost' for way in ways)} |"
    yield f"|---:|---:|---:|{'---:|---:|' * len(ways)}"
    for case in cases:
        certified = case.replays[ALL_DRAWS].certified.mean()
        cells = [f"{case.sigma}", f"{case.radius}", f"{certified:.1%}"]
        for way in ways:
            draws = case.replays[way].draws.mean()
            cells += [f"{draws:,.0f} ({case.gain(way):.1f}x)", f"{case.lost(way):.2f}"]
        yield markdown_line(cells)
    means = []
    for way in ways:
        gain = np.mean([case.gain(way) for case in cases])
        lost = np.mean([case.lost(way) for case in cases])
        means += [f"{gain:.1f}x", f"{lost:.2f}"]
    yield f"| mean | | {markdown_line(means)}"


def logged(logs: Path, method: str, sigma: float, images: int, seed: int = 0) -> Source:
    """The first images of a log; p_A is the share k / n whose certified radius is nearest."""
    paths = sorted(logs.glob(f"*{method}*_s{sigma:.2f}_full.tsv"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise InputError(f"{logs} must hold one log of {method!r} at sigma {sigma}, got {names}")
    rows = certificate_rows.read_field_log(paths[0], sigma=sigma, n0=N0, n=N, alpha=ALPHA)[:images]
    bounds = _bounds(N)
    between_bounds = (bounds[1:] + bounds[:-1]) / 2
    k = np.searchsorted(between_bounds, ndtr(rows["radius"].to_numpy() / sigma))
    abstains = (rows["predict"] == ABSTAIN).to_numpy()
    unknown = np.random.default_rng(seed).uniform(*UNKNOWN, len(rows))
    return Source(
        name=f"{method}, log",
        sigma=sigma,
        n=N,
        p=np.where(abstains, unknown, k / N),
        correct=rows["correct"].to_numpy() == 1,
        skipped=(rows["correct"].to_numpy() != 1) & ~abstains,
    )


def kept(path: Path) -> Source:
    """Rows of this project; p_A is the share of votes for the class that the n0 draws chose."""
    rows = certificate_rows.read_rows(path)
    classes = dense_votes(rows["counts0"]).argmax(axis=1)  # the lowest class of several
    votes = votes_for(votes_of(rows["counts"]), classes)
    is_right = classes == rows["label"].to_numpy()
    return Source(
        name=f"{path.stem}, rows",
        sigma=budget(rows, "sigma"),
        n=int(budget(rows, "n")),
        p=votes / np.maximum(rows["n"], 1).to_numpy(),  # 0 where n was skipped
        correct=is_right,
        skipped=~is_right,
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
    numbers = np.arange(len(radii))
    steps = _steps(source, seed)
    draws = np.zeros(len(steps), dtype=np.int64)
    by_radius = np.full((len(steps), len(radii)), source.n)
    yes = np.zeros((len(steps), len(radii)), dtype=bool)
    for image, successes in enumerate(steps):
        run = Decider(radii, source.sigma, ALPHA, source.n, beta=BETA)
        for count in successes:
            run.update(int(count), run.next_draws())
            is_answered = (numbers < run.established) | (numbers >= run.open_to)
            by_radius[image, is_answered] = by_radius[image, is_answered].clip(max=run.draws)
            if not run.next_draws():
                break
        draws[image] = run.draws
        yes[image] = numbers < run.established
    p0 = ndtr(np.array(radii) / source.sigma)
    p_lower = _bounds(source.n)[steps.sum(axis=1)]
    is_right = source.correct[:, None]
    return Answered(draws, by_radius, yes & is_right, (p_lower[:, None] >= p0) & is_right)


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
    p = source.p[:, None]
    n = source.n
    decider = Decider(_possible(source), source.sigma, ALPHA, n, beta=BETA)
    p0 = decider.p0
    share = decider.required_share
    certain = binom.sf(np.searchsorted(_bounds(n), p0) - 1, n, p)  # that all draws say yes, (B, R)
    yes = np.where(p > p0, _needed(certain, ALPHA, p, p0), 0.0)
    no = np.full(certain.shape, np.inf)
    for less, more in pairwise(np.linspace(0, 1, 201)):  # bounds of the probability of giving up
        given_up = _needed(np.array(less), BETA, p, share)
        if_certifiable = np.inf if less > BETA else 0.0
        given_up = np.where(p < share, given_up, if_certifiable)
        taking_all = n * np.clip(1 - more - certain, 0, None)
        no = np.minimum(no, np.maximum(given_up, taking_all))
    return np.minimum(np.maximum(yes, no).max(axis=1), n)


def _needed(
    a: NDArray[np.float64], b: float, p: NDArray[np.float64], q: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the draws that an event of probability a under p and at most b under q takes."""
    of_event = np.where(a > b, _divergence(a, b), 0.0)
    of_draw = _divergence(p, q)
    return of_event / np.where(of_draw > 0, of_draw, np.inf)


def _divergence(p: NDArray[np.float64], q: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Kullback-Leibler divergence of two events, by their probabilities."""
    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


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
        answers = answered(source, seed)
        lost = 100 * (answers.by_all.mean(axis=0) - answers.yes.mean(axis=0)).mean()
        differ = cells_differ(answers.yes[:FIRST], answers.by_all[:FIRST])
        cells = [source.name, f"{source.sigma}", f"{source.n:,}"]
        cells += _spent(source, answers.draws)
        cells += _spent(source, fewest(source))
        cells += [f"{lost:.2f}", f"{differ.sum()} of {len(differ)}"]
        for draws in N0 + answers.by_radius.mean(axis=0):
            cells.append(f"{draws:,.0f}")
        cells += [""] * (len(TABLE) - len(differ))
        yield markdown_line(cells)
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


def cells_differ(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether certified accuracies differ as printed, to a tenth of a percent.

    Args:
        first, second: Whether images are certified at each radius, (B, R).
    Returns:
        Shape (R,).
    """
    differ = []
    for share, other in zip(first.mean(axis=0), second.mean(axis=0), strict=True):
        differ.append(f"{share:.1%}" != f"{other:.1%}")
    return np.array(differ)


def _spent(source: Source, draws: NDArray[np.int64] | NDArray[np.float64]) -> list[str]:
    """Two cells: mean draws of all images, and with those of wrong classes skipped, as times fewer
    than all.
    """
    cells = []
    for counted in (draws, draws * ~source.skipped):
        mean = N0 + counted.mean()
        cells.append(f"{mean:,.0f} ({(N0 + source.n) / mean:.1f}x)")
    return cells


if __name__ == "__main__":
    run(main)
