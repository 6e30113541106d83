"""The claims of the paper against the rows that there are: held, not held, tie, or not tested.

``python -m benchmarks.claims digits --out docs/results.md``. A claim about ACR is held where the difference is more
than two standard errors of the images' paired differences above 0, not held where it is as much below, and a tie
between. What has no rows yet is not tested. A claim about time compares seconds of training, with a tenth to spare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import typer

from rs import files, metrics, rows, study
from rs.combination import Declared, declared
from rs.metrics import Paired, acr, paired_difference
from rs.outside import read_outside
from rs.params import read, section
from rs.published import published
from rs.results import Result
from stages.shell import ParamsFile, run

EQUAL_TIME = Path("equal-time")
PAPERS_EPOCHS = (150, 440)
"""Of AdvMacer and of MACER, in the paper: its claim about their times is one about these."""

SPARE = 1.1
"""Times as long as it may take at most where a claim is about time."""


class Finding(NamedTuple):
    """What became of a claim at one noise level."""

    claim: str
    sigma: float
    what: str
    verdict: str
    numbers: str


class Study:
    """The rows and logs that there are."""

    def __init__(self, values: dict[str, Any], dataset: str, root: Path = Path()) -> None:
        self.dataset, self.root, self.cells = dataset, root, study.cells(values, dataset)
        self.ensembles = declared(values)
        self.read = cache(rows.read)  # most rows take part in several claims
        self.sigmas = section(values, "sigmas")

    def seeds(self, method: str, sigma: Any, chosen: Sequence[int] | None = None) -> list[pd.DataFrame]:
        """Rows of each seed of a method, those that are there; empty if one of ``chosen`` is not."""
        cells = [one for one in self.cells if (one.method, one.sigma) == (method, sigma)]
        paths = {one.seed: one.rows(self.root / "results" / self.dataset) for one in cells}
        there = {seed: self.read(path) for seed, path in paths.items() if path.exists()}
        if chosen is not None and not set(chosen) <= set(there):
            return []
        return [there[seed] for seed in (there if chosen is None else chosen)]

    def ensemble(self, name: str, combination: str, sigma: Any) -> list[pd.DataFrame]:
        """Rows of an ensemble; empty if they are missing, or the parameters have no such ensemble."""
        slugs = [one.slug for one in self.ensembles if (one.name, one.combination) == (name, combination)]
        paths = [self.root / "results" / self.dataset / str(sigma) / "pool" / f"{slug}.tsv" for slug in slugs]
        return [self.read(path) for path in paths if path.exists()]

    def members(self, one: Declared, sigma: Any) -> list[pd.DataFrame]:
        """Rows of the members of an ensemble; empty if some are missing."""
        found = [self.seeds(method, sigma, [seed]) for method, seed in one.members]
        return [own[0] for own in found] if all(found) else []

    def seconds(self, method: str, sigma: Any) -> tuple[float, int] | None:
        """Training seconds and epochs of a method's first seed, as if every epoch took the median of them.

        The first one of a sitting compiles, and sittings are an accident.
        """
        cell = next((one for one in self.cells if (one.method, one.sigma) == (method, sigma)), None)
        path = cell and cell.log(self.root / "logs" / self.dataset, "timing.csv")
        if path is None or not path.exists():
            return None
        seconds = pd.read_csv(path)["seconds"]
        return float(seconds.diff().fillna(seconds.iloc[0]).median()) * len(seconds), len(seconds)


def main(
    dataset: Annotated[str, typer.Argument(help="Recipe, as in the paths.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="Markdown page to write.")],
    outside: Annotated[
        list[str], typer.Option(help="SIGMA:METHOD=PATH: a published log to compare METHOD with; repeatable.")
    ] = [],  # noqa: B006
    note: Annotated[list[str], typer.Option(help="What must be said of the data; repeatable.")] = [],  # noqa: B006
    params: ParamsFile = Path("params.yaml"),
) -> None:
    """Write the page of claims: what ran, every claim, and the ACR beside the paper's."""
    values = read(params)
    found = Study(values, dataset)
    lines = [*_head(dataset, note), *_ran(found), *_claims(found), *_beside(values, found, outside)]
    files.write_text(out, "\n".join(lines) + "\n")
    print("\n".join(lines))


def findings(found: Study) -> Iterator[Finding]:
    """Every claim at every noise level."""
    for sigma in found.sigmas:
        ours, theirs = found.seeds("advmacer", sigma), found.seeds("smoothadv", sigma)
        yield _compared("AdvMacer beats SmoothAdv", sigma, "means over seeds", ours, theirs)
        path = EQUAL_TIME / "results" / found.dataset / str(sigma) / "macer-0.tsv"
        limited = [rows.read(found.root / path)] if (found.root / path).exists() else []
        first = found.seeds("advmacer", sigma, [0])
        yield _compared("AdvMacer beats MACER at equal training time", sigma, "seed 0", first, limited)
        yield from _times(found, sigma)
        for one in found.ensembles:
            yield from _of_ensemble(found, one, sigma)


def _of_ensemble(found: Study, one: Declared, sigma: Any) -> Iterator[Finding]:
    own, methods = found.ensemble(one.name, one.combination, sigma), {method for method, _ in one.members}
    if one.combination == "average":
        members = found.members(one, sigma)
        yield _compared("EsbRS beats the mean of its members", sigma, one.name, own, members)
        for method in sorted(methods) if len(methods) > 1 else []:
            single = f"{method} x{len(one.members)}"
            what = f"{one.name} against {single}"
            yield _compared("mixed beats single-method", sigma, what, own, found.ensemble(single, "average", sigma))
    if one.combination == "optimal":
        equal = found.ensemble(one.name, "average", sigma)
        yield _compared("optimal weights beat equal ones", sigma, one.name, own, equal)


def _times(found: Study, sigma: Any) -> Iterator[Finding]:
    ours, smoothadv, macer = (found.seconds(name, sigma) for name in ("advmacer", "smoothadv", "macer"))
    ratio = ours and smoothadv and (ours[0] / ours[1]) / (smoothadv[0] / smoothadv[1])
    verdict = "not tested" if not ratio else "held" if ratio <= SPARE else "not held"
    numbers = f"{ratio:.2f} times" if ratio else ""
    yield Finding("an epoch of AdvMacer costs what one of SmoothAdv costs", sigma, "seconds", verdict, numbers)
    ratio = ours and macer and (ours[1], macer[1]) == PAPERS_EPOCHS and macer[0] / ours[0]
    verdict = "not tested" if not ratio else "held" if ratio >= 3 / SPARE else "not held"
    numbers = f"{ratio:.2f} times" if ratio else ""
    yield Finding("AdvMacer trains 3 times faster than MACER", sigma, "seconds", verdict, numbers)


def _compared(
    claim: str, sigma: Any, what: str, ours: Sequence[pd.DataFrame], theirs: Sequence[pd.DataFrame]
) -> Finding:
    """The mean of some rows against the mean of others, image by image."""
    if not (ours and theirs):
        return Finding(claim, sigma, what, "not tested", "")
    made = paired_difference(metrics.average_rows(ours), metrics.average_rows(theirs))
    return Finding(claim, sigma, what, verdict_of(made), f"{made.difference:+.4f} ± {made.error:.4f}")


def verdict_of(made: Paired) -> str:
    """Held, not held, or tie."""
    if made.tie:
        return "tie"
    return "held" if made.difference > 0 else "not held"


def _head(dataset: str, notes: Sequence[str]) -> Iterator[str]:
    yield f"# The claims of the paper on {dataset}"
    yield ""
    yield "Differences of ACR are paired image by image, with standard errors over the images; less than two of them is"
    yield f"a tie. A claim about time has {SPARE - 1:.0%} to spare. Written by `python -m benchmarks.claims`."
    yield ""
    for note in notes:
        yield from (note, "")


def _ran(found: Study) -> Iterator[str]:
    yield "## What ran"
    yield ""
    yield "| σ | trained | certified | machine | training, hours |"
    yield "|---:|---:|---:|---|---:|"
    for sigma in found.sigmas:
        cells = [one for one in found.cells if one.sigma == sigma]
        logs = [one.log(found.root / "logs" / found.dataset, "provenance.json") for one in cells]
        made = [files.read_json(path) for path in logs if path.exists()]
        certified = sum(one.rows(found.root / "results" / found.dataset).exists() for one in cells)
        where = ", ".join(sorted({one["device"] for one in made}))
        hours = sum(one["training_seconds"] for one in made) / 3600
        yield f"| {sigma} | {len(made)} of {len(cells)} | {certified} of {len(cells)} | {where} | {hours:.2f} |"
    yield ""


def _claims(found: Study) -> Iterator[str]:
    yield "## Claims"
    yield ""
    made = pd.DataFrame(findings(found))
    yield "| claim | " + " | ".join(kinds := ["held", "not held", "tie", "not tested"]) + " |"
    yield "|---|" + "---:|" * len(kinds)
    for claim, group in made.groupby("claim", sort=False):
        yield f"| {claim} | " + " | ".join(str((group["verdict"] == kind).sum()) for kind in kinds) + " |"
    yield ""
    yield "| claim | σ | of | difference | verdict |"
    yield "|---|---:|---|---:|---|"
    for one in made.itertuples():
        yield f"| {one.claim} | {one.sigma} | {one.what} | {one.numbers} | {one.verdict} |"
    yield ""


def _beside(values: dict[str, Any], found: Study, outside: Sequence[str]) -> Iterator[str]:
    """ACR of each method beside the paper's, and against published rows of the same images."""
    printed = published(study.base_dataset(values, found.dataset)).query("metric == 'acr'")
    logs = dict(word.split("=", 1) for word in outside)
    yield "## Beside published figures"
    yield ""
    yield "| σ | method | ACR | the paper | published log of the same images | difference |"
    yield "|---:|---|---:|---:|---:|---:|"
    for cell in dict.fromkeys((one.sigma, one.method) for one in found.cells):
        yield from _row_beside(found, *cell, printed, logs)


def _row_beside(found: Study, sigma: Any, method: str, printed: pd.DataFrame, logs: dict[str, str]) -> Iterator[str]:
    ours = found.seeds(method, sigma)
    if not ours:
        return
    mean = metrics.average_rows(ours)
    theirs = printed[(printed["method"] == method) & (printed["sigma"] == float(sigma))]["value"]
    cells = [f"{acr(mean):.4f}", f"{theirs.iloc[0]:.3f}" if len(theirs) else "", "", ""]
    if (log := logs.get(f"{sigma}:{method}")) is not None:
        beside = Result(method, float(sigma), None, ours[0], "all")
        other = read_outside(method, Path(log), [beside]).mean
        made = paired_difference(mean, other)
        cells[2:] = [f"{acr(other):.4f}", f"{made.difference:+.4f} ± {made.error:.4f}"]
    yield f"| {sigma} | {method} | {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
