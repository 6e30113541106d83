"""The claims of the paper against the rows that there are: held, not held, tie, or not tested.

``python -m benchmarks.claims digits --out docs/results.md``. A claim about ACR is held where the difference is above 0
at the level of 5 %, not held where it is below 0 so, and a tie between: by its error over images, and by that over
images and training seeds (``rs.statistics.comparison``), with p-values corrected for the number of differences of the
claim (Holm). What has no rows yet is not tested. A claim about time compares seconds of training, with a
tenth to spare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import typer

from rs.params import read, section
from rs.reporting import formatting
from rs.reporting.external_logs import read_outside
from rs.reporting.published import published
from rs.reporting.results import Result
from rs.statistics import metrics
from rs.statistics.comparison import LEVEL, Estimate, Sample, estimate, holm, sample
from rs.storage import certificate_rows, files
from rs.study import grid
from rs.study.ensembles import EnsembleDeclaration, declared
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


class Compared(NamedTuple):
    """A claim about ACR at one noise level, before it is judged together with the others of its kind."""

    claim: str
    sigma: float
    what: str
    made: Estimate | None  # None: there are no rows


class Study:
    """The rows and logs that there are."""

    def __init__(self, values: dict[str, Any], dataset: str, root: Path = Path()) -> None:
        self.dataset, self.root, self.cells = dataset, root, grid.cells(values, dataset)
        self.ensembles: dict[tuple[str, str], list[EnsembleDeclaration]] = {}
        for one in declared(values):
            self.ensembles.setdefault((one.name, one.key), []).append(one)
        self.read = cache(certificate_rows.read)  # most rows take part in several claims
        self.sigmas = section(values, "sigmas")

    def models(self, method: str, sigma: Any) -> Sample | None:
        """The models of a method, those that are there."""
        there = self._there(method, sigma)
        return sample(list(there.values()), [[seed] for seed in there]) if there else None

    def model(self, method: str, sigma: Any, seed: int) -> Sample | None:
        """The model of one seed."""
        there = self._there(method, sigma)
        return sample([there[seed]], [[seed]]) if seed in there else None

    def _there(self, method: str, sigma: Any) -> dict[int, pd.DataFrame]:
        cells = [one for one in self.cells if (one.method, one.sigma) == (method, sigma)]
        paths = {one.seed: one.rows(self.root / "results" / self.dataset) for one in cells}
        return {seed: self.read(path) for seed, path in paths.items() if path.exists()}

    def ensemble(self, name: str, combination: str, sigma: Any) -> Sample | None:
        """All sub-ensembles of a name; none if one is missing, or the parameters have no such ensemble."""
        found = self.ensembles.get((name, combination), [])
        folder = self.root / "results" / self.dataset / str(sigma) / "pool"
        paths = [folder / f"{one.slug}.tsv" for one in found]
        if not found or not all(path.exists() for path in paths):
            return None
        return sample([self.read(path) for path in paths], [_seeds(one) for one in found])

    def members(self, name: str, combination: str, sigma: Any) -> Sample | None:
        """The mean of the members of each sub-ensemble; none if some are missing."""
        found, means = self.ensembles[name, combination], []
        for one in found:
            own = [self._there(method, sigma).get(seed) for method, seed in one.members]
            if any(rows is None for rows in own):
                return None
            means.append(metrics.average_rows(own))
        return sample(means, [_seeds(one) for one in found])

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
    yield from judged([one for sigma in found.sigmas for one in _tested(found, sigma)])
    for sigma in found.sigmas:
        yield from _times(found, sigma)


def judged(tested: Sequence[Compared]) -> Iterator[Finding]:
    """Judge the differences of each claim together, claim after claim."""
    for claim in dict.fromkeys(one.claim for one in tested):
        own = [one for one in tested if one.claim == claim]
        corrected = iter(holm([one.made.p_value for one in own if one.made]))
        for one in own:
            if one.made is None:
                yield Finding(claim, one.sigma, one.what, "not tested", "")
            else:
                verdict = verdict_of(one.made, next(corrected))
                yield Finding(claim, one.sigma, one.what, verdict, formatting.signed_with_errors(one.made))


def verdict_of(made: Estimate, p_value: float) -> str:
    """Held, not held, or tie, by a corrected p-value; and whether it rests on images only."""
    verdict = "tie" if p_value > LEVEL else "held" if made.value > 0 else "not held"
    return verdict if made.error is not None else f"{verdict}, images only"


def _tested(found: Study, sigma: Any) -> Iterator[Compared]:
    yield _against(
        "AdvMacer beats SmoothAdv", sigma, "means over seeds", *_models(found, sigma, "advmacer", "smoothadv")
    )
    path = found.root / EQUAL_TIME / "results" / found.dataset / str(sigma) / "macer-0.tsv"
    limited = sample([certificate_rows.read(path)], [[0]]) if path.exists() else None
    first = found.model("advmacer", sigma, 0)
    yield _against("AdvMacer beats MACER at equal training time", sigma, "seed 0", first, limited)
    for name in dict.fromkeys(name for name, _ in found.ensembles):
        yield from _of_ensemble(found, name, sigma)


def _models(found: Study, sigma: Any, *methods: str) -> list[Sample | None]:
    return [found.models(method, sigma) for method in methods]


def _of_ensemble(found: Study, name: str, sigma: Any) -> Iterator[Compared]:
    average = found.ensemble(name, "average", sigma)
    if (name, "average") in found.ensembles:
        members = found.members(name, "average", sigma)
        yield _against("EsbRS beats the mean of its members", sigma, name, average, members)
        one = found.ensembles[name, "average"][0].members
        methods = sorted({method for method, _ in one})
        for method in methods if len(methods) > 1 else []:
            single = f"{method} x{len(one)}"
            other = found.ensemble(single, "average", sigma)
            yield _against("mixed beats single-method", sigma, f"{name} against {single}", average, other)
    if (name, "optimal") in found.ensembles:
        optimal = found.ensemble(name, "optimal", sigma)
        yield _against("optimal weights beat equal ones", sigma, name, optimal, average)


def _against(claim: str, sigma: Any, what: str, ours: Sample | None, theirs: Sample | None) -> Compared:
    return Compared(claim, sigma, what, estimate(ours, theirs) if ours and theirs else None)


def _seeds(one: EnsembleDeclaration) -> set[int]:
    return {seed for _, seed in one.members}


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


def _head(dataset: str, notes: Sequence[str]) -> Iterator[str]:
    yield f"# The claims of the paper on {dataset}"
    yield ""
    yield "Differences of ACR are paired image by image: ± their standard error over the images, and in brackets that"
    yield "over images and training seeds ([method.md](method.md#differences-and-their-errors)). In a tie, one of the"
    yield "errors does not tell the difference from 0 at the level of 5 %, corrected for the number of differences of"
    yield "the claim (Holm). An images-only verdict is about these trainings: there is one of each. A claim about time"
    yield f"has {SPARE - 1:.0%} to spare. Written by `python -m benchmarks.claims`."
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
        verdicts = group["verdict"].str.split(",").str[0]
        yield f"| {claim} | " + " | ".join(str((verdicts == kind).sum()) for kind in kinds) + " |"
    yield ""
    yield "| claim | σ | of | difference | verdict |"
    yield "|---|---:|---|---:|---|"
    for one in made.itertuples():
        yield f"| {one.claim} | {one.sigma} | {one.what} | {one.numbers} | {one.verdict} |"
    yield ""


def _beside(values: dict[str, Any], found: Study, outside: Sequence[str]) -> Iterator[str]:
    """ACR of each method beside the paper's, and against published rows of the same images."""
    printed = published(grid.base_dataset(values, found.dataset)).query("metric == 'acr'")
    logs = dict(word.split("=", 1) for word in outside)
    yield "## Beside published figures"
    yield ""
    yield "| σ | method | ACR | the paper | published log of the same images | difference |"
    yield "|---:|---|---:|---:|---:|---:|"
    for cell in dict.fromkeys((one.sigma, one.method) for one in found.cells):
        yield from _row_beside(found, *cell, printed, logs)


def _row_beside(found: Study, sigma: Any, method: str, printed: pd.DataFrame, logs: dict[str, str]) -> Iterator[str]:
    ours = found.models(method, sigma)
    if ours is None:
        return
    theirs = printed[(printed["method"] == method) & (printed["sigma"] == float(sigma))]["value"]
    cells = [formatting.with_errors(estimate(ours)), f"{theirs.iloc[0]:.3f}" if len(theirs) else "", "", ""]
    if (log := logs.get(f"{sigma}:{method}")) is not None:
        beside = Result(method, float(sigma), None, ours.rows, "all")
        other = read_outside(method, Path(log), [beside]).rows
        made = estimate(ours, sample([other], [[]]))
        cells[2:] = [f"{metrics.acr(other):.4f}", formatting.signed_with_errors(made)]
    yield f"| {sigma} | {method} | {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
