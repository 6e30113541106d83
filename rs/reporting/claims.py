"""The claims of the paper against the rows of a study: held, not held, tie, or not tested.

A claim about ACR is held where the difference is above 0 at the level of 5 %, not held where it is
below 0 at that level, and a tie between. P-values (``rs.statistics.comparison``) are corrected for
the number of differences of the claim (Holm). What the study has no classifiers for is not tested.
A guarantee is not held where an attack broke it; one that no attack broke is a tie. A claim about
time compares seconds of training, with a tenth to spare, on another page.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rs.reporting.load import StudyFiles
from rs.reporting.results import Group, Groups, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.ensemble_tables import samples_of_members
from rs.reporting.tables.formatting import signed_with_errors
from rs.statistics.certificate import UNSOUND
from rs.statistics.comparison import LEVEL, Estimate, Sample, estimate, holm, sample
from rs.storage import certificate_rows
from rs.storage.provenance import UNROUNDED
from rs.study.ensembles import EnsembleDeclaration
from rs.study.grid import has_warm_start

VERDICTS = ("held", "not held", "tie", "not tested")

PAPERS_EPOCHS = (150, 440)
"""Epochs of AdvMacer and of MACER in the paper, to which its claim about their training times
applies.
"""

JUST_INSIDE = "0.99"
"""Distance of attacked points, in certified radii."""

SPARE = 1.1
"""Tolerance factor of claims about training time."""

HEAD = """\
# The claims of the paper on {dataset}

Differences of ACR are paired image by image: ± their standard error over the images, and in brackets the error over
images and training seeds, 1.96 of which are half the 95 % interval
([method.md](../../docs/method.md#differences-and-their-errors)). A tie is a difference that may be 0 at the level of
5 %, corrected for the number of differences of the claim (Holm): with few training seeds one of three or four errors
can be a tie. A verdict by images only is about these trainings: there is one of each, and another could reverse it.

{about}
The paper's claims are about CIFAR-10 and ResNet-110, 500 images and n = 100,000: on other data, networks or budgets
they need not hold.
"""

ATTACKED = """
Weights chosen by the image were attacked at .99 of certified radii, and solved anew at the attacked points
([falsification.md](../../docs/falsification.md)): where a class falls below one half, its certificate is false.
"""

ROUNDED = """
The pool kept the logits of its members in {outputs}: votes of ensembles, and of models that only the pool certifies,
are of logits so rounded.
"""

ADDED = (
    "At equal training time, verdicts count the seeds that MACER has at every noise level, and not "
    "{added}: trainings "
    "that are added after a look at the others give more chances to a verdict than its level "
    "allows."
)
STARTED = "Trainings by {methods} start from models that were trained almost without noise, not from random weights."

TIMES_HEAD = """\
# The claims of the paper about training time, on {dataset}

{seconds}, with {spare:.0%} to spare. They depend on the
machine.
"""

MEDIANS = "Seconds of the first seed, as if every epoch took the median of them"


class Comparison(NamedTuple):
    """A claim about ACR at one noise level, before it is judged together with the others of its
    kind.
    """

    claim: str
    sigma: Any
    subject: str
    difference: Estimate | None  # None: there are no rows


class JudgedClaim(NamedTuple):
    """What became of a claim at one noise level."""

    claim: str
    sigma: Any
    subject: str
    numbers: str
    verdict: str


@dataclass(frozen=True)
class Evidence:
    """What there is to test the claims with."""

    study: StudyFiles
    groups: Groups  # the models and ensembles of the study, those that there are
    equal_time: Path | None = (
        None  # folder of rows of MACER trained for the time of AdvMacer, by sigma
    )
    attacks: Path | None = (
        None  # folder of what attacks on certificates found, DATASET.csv (``benchmarks.falsify``)
    )

    def methods(self, sigma: Any) -> dict[str, Group]:
        """Return the groups of a noise level."""
        return self.groups.get(float(sigma), {})

    def models(
        self, method: str, sigma: Any, seeds: Collection[int] | None = None
    ) -> Sample | None:
        """Return the models of a method, or those of some seeds."""
        group = self.methods(sigma).get(method)
        chosen = (
            [result for result in group.results if seeds is None or result.seed in seeds]
            if group
            else []
        )
        return Group(tuple(chosen)).sample if chosen else None

    def rows_of_equal_time(self, sigma: Any) -> dict[int, Path]:
        """Return the rows of MACER, stopped when it had trained for as long as AdvMacer, by seed."""
        paths = (
            sorted((self.equal_time / str(sigma)).glob("macer-*.tsv")) if self.equal_time else []
        )
        return {int(path.stem.removeprefix("macer-")): path for path in paths}

    @cached_property
    def seeds_of_equal_time(self) -> list[int]:
        """Seeds of AdvMacer that MACER has, so trained, at every noise level at which there are
        rows.
        """
        seeds = [
            rows.keys() for sigma in self.study.sigmas if (rows := self.rows_of_equal_time(sigma))
        ]
        trained = {cell.seed for cell in self.study.cells if cell.method == "advmacer"}
        return sorted(trained.intersection(*seeds)) if seeds else []

    def added_seeds(self, sigma: Any) -> list[int]:
        """Return the seeds that MACER, so trained, does not have at every noise level: no verdict
        counts them.
        """
        return sorted(self.rows_of_equal_time(sigma).keys() - self.seeds_of_equal_time)

    @property
    def chooses_by_image(self) -> bool:
        """Whether the study has ensembles whose weights are chosen by the image."""
        return any(ensemble.combination.scope == UNSOUND for ensemble in self.study.ensembles)

    def attacked(self, sigma: Any) -> list[dict[str, str]]:
        """Return the counts of attacks on weights that are chosen by the image, just inside the
        certified radius.
        """
        path = self.attacks and self.attacks / f"{self.study.dataset}.csv"
        if not path or not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["scope"] == UNSOUND]
        return [
            row
            for row in rows
            if float(row["sigma"]) == float(sigma) and row["distance"] == JUST_INSIDE
        ]

    def declared(self, name: str, combination: str) -> list[EnsembleDeclaration]:
        """Return the sub-ensembles of a name that the parameters declare."""
        return [e for e in self.study.ensembles if (e.name, e.key) == (name, combination)]

    def ensemble(self, name: str, combination: str, sigma: Any) -> Sample | None:
        """Return all sub-ensembles of a name; ``None`` if there is no such ensemble."""
        declared = self.declared(name, combination)
        return self.methods(sigma)[self.study.label(declared[0])].sample if declared else None

    def seconds(self, method: str, sigma: Any) -> tuple[float, int] | None:
        """Return training seconds and epochs of a method's first seed, as if every epoch took the
        median of them.

        The first epoch after a start compiles, and how often a training was started says nothing of
        the method.
        """
        cell = next(
            (cell for cell in self.study.cells if (cell.method, cell.sigma) == (method, sigma)),
            None,
        )
        seconds = None if cell is None else self.study.read_epoch_seconds(cell)
        if seconds is None:
            return None
        return float(seconds.median()) * len(seconds), len(seconds)


def claims_text(evidence: Evidence, network: str | None, remarks: Sequence[str]) -> str:
    """Write the page of claims about ACR.

    Args:
        evidence: The rows that there are.
        network: Name of the architecture, if it is known.
        remarks: What must be said of the data (``tables.remarks``).
    """
    study = evidence.study
    about = notes.about(evidence.groups) + (f" Network: {network}." if network else "")
    everything = results_of(evidence.groups)
    rounded = {result.provenance.outputs for result in everything} - {None, UNROUNDED}
    head = HEAD + ATTACKED * (
        evidence.chooses_by_image and any(map(evidence.attacked, study.sigmas))
    )
    head += ROUNDED * bool(rounded)
    added = ", ".join(
        f"seed {seed} at σ = {sigma}"
        for sigma in study.sigmas
        for seed in evidence.added_seeds(sigma)
    )
    warm = [cell.method for cell in study.cells if has_warm_start(study.values, cell)]
    started = ", ".join(dict.fromkeys(warm))
    said = [
        *remarks,
        *notes.provenance_notes(everything),
        *[ADDED.format(added=added)] * bool(added),
    ]
    said += [STARTED.format(methods=started)] * bool(started)
    lines = [
        head.format(
            dataset=study.dataset, about=about, outputs=", ".join(sorted(map(str, rounded)))
        )
    ]
    lines += [f"{sentence}\n" for sentence in said]
    lines += ["## What there is", "", "| σ | models | ensembles |", "|---:|---:|---:|"]
    for sigma in study.sigmas:
        cells = sum(cell.sigma == sigma for cell in study.cells)
        results = [result for group in evidence.methods(sigma).values() for result in group.results]
        ensembles = sum(result.ensemble is not None for result in results)
        models = f"{len(results) - ensembles} of {cells}"
        lines.append(f"| {sigma} | {models} | {ensembles} of {len(study.ensembles)} |")
    return "\n".join([*lines, "", "## Claims", "", *_tables(list(findings(evidence)))]) + "\n"


def times_text(evidence: Evidence) -> str:
    """Write the page of claims about time."""
    study = evidence.study
    seconds = MEDIANS if study.epoch_seconds is None else f"Seconds are {notes.SIDE_BY_SIDE}"
    head = TIMES_HEAD.format(dataset=study.dataset, seconds=seconds, spare=SPARE - 1)
    return "\n".join([head, *_tables(list(findings_about_time(evidence)))]) + "\n"


def findings(evidence: Evidence) -> Iterator[JudgedClaim]:
    """Return what became of every claim about ACR at every noise level."""
    yield from judged(
        [
            comparison
            for sigma in evidence.study.sigmas
            for comparison in _comparisons(evidence, sigma)
        ]
    )
    for sigma in evidence.study.sigmas if evidence.chooses_by_image else ():
        yield from _under_attack(evidence, sigma)


def _under_attack(evidence: Evidence, sigma: Any) -> Iterator[JudgedClaim]:
    """Judge whether the certified class keeps half of the votes where weights are solved anew at an
    attacked point.
    """
    claim, rows = "weights chosen by the image keep the guarantee", evidence.attacked(sigma)
    for row in rows:
        below, outvoted, attacked = row["below_half"], row["outvoted"], row["attacked"]
        numbers = f"of {attacked} certified balls the class is below one half in {below}, and outvoted in {outvoted}"
        yield JudgedClaim(
            claim, sigma, row["classifier"], numbers, "not held" if int(below) else "tie"
        )
    if not rows:
        yield JudgedClaim(claim, sigma, "attacks", "", "not tested")


def judged(comparisons: Sequence[Comparison]) -> Iterator[JudgedClaim]:
    """Judge the differences of each claim together, claim after claim."""
    for claim in dict.fromkeys(comparison.claim for comparison in comparisons):
        related = [comparison for comparison in comparisons if comparison.claim == claim]
        corrected = iter(
            holm([comparison.difference.p_value for comparison in related if comparison.difference])
        )
        for _, sigma, subject, difference in related:
            if difference is None:
                yield JudgedClaim(claim, sigma, subject, "", "not tested")
            else:
                verdict = verdict_of(difference, next(corrected))
                yield JudgedClaim(claim, sigma, subject, signed_with_errors(difference), verdict)


def verdict_of(difference: Estimate, p_value: float) -> str:
    """Return held, not held, or tie, by a corrected p-value; and whether it rests on images only."""
    verdict = "tie" if p_value > LEVEL else "held" if difference.value > 0 else "not held"
    return verdict if difference.error is not None else f"{verdict}, images only"


def findings_about_time(evidence: Evidence) -> Iterator[JudgedClaim]:
    """Return what became of every claim about training time at every noise level."""
    for sigma in evidence.study.sigmas:
        advmacer, smoothadv, macer = (
            evidence.seconds(name, sigma) for name in ("advmacer", "smoothadv", "macer")
        )
        ratio = (
            (advmacer[0] / advmacer[1]) / (smoothadv[0] / smoothadv[1])
            if advmacer and smoothadv
            else None
        )
        claim = "an epoch of AdvMacer costs what one of SmoothAdv costs"
        yield _about_time(claim, sigma, ratio, held=ratio is not None and ratio <= SPARE)
        ratio = (
            macer[0] / advmacer[0]
            if advmacer and macer and (advmacer[1], macer[1]) == PAPERS_EPOCHS
            else None
        )
        claim = "AdvMacer trains 3 times faster than MACER"
        yield _about_time(claim, sigma, ratio, held=ratio is not None and ratio >= 3 / SPARE)


def _about_time(claim: str, sigma: Any, ratio: float | None, held: bool) -> JudgedClaim:
    if ratio is None:
        return JudgedClaim(claim, sigma, "seconds", "", "not tested")
    return JudgedClaim(
        claim, sigma, "seconds", f"{ratio:.2f} times", "held" if held else "not held"
    )


def _comparisons(evidence: Evidence, sigma: Any) -> Iterator[Comparison]:
    advmacer, smoothadv = (evidence.models(method, sigma) for method in ("advmacer", "smoothadv"))
    yield _against("AdvMacer beats SmoothAdv", sigma, "means over seeds", advmacer, smoothadv)
    yield _at_equal_time(evidence, sigma)
    for name in dict.fromkeys(ensemble.name for ensemble in evidence.study.ensembles):
        yield from _of_ensemble(evidence, name, sigma)


def _at_equal_time(evidence: Evidence, sigma: Any) -> Comparison:
    """Compare AdvMacer with MACER that was stopped at its training time."""
    claim = "AdvMacer beats MACER at equal training time"
    seeds, rows = evidence.seeds_of_equal_time, evidence.rows_of_equal_time(sigma)
    if not seeds or not rows:
        return Comparison(claim, sigma, "rows", None)
    stopped = sample(
        [certificate_rows.read_rows(rows[seed]) for seed in seeds], [[seed] for seed in seeds]
    )
    subject = f"means over seeds {', '.join(map(str, seeds))}"
    return _against(claim, sigma, subject, evidence.models("advmacer", sigma, seeds), stopped)


def _of_ensemble(evidence: Evidence, name: str, sigma: Any) -> Iterator[Comparison]:
    average = evidence.ensemble(name, "average", sigma)
    if declared := evidence.declared(name, "average"):
        means, _ = samples_of_members(
            [ensemble.members for ensemble in declared], evidence.methods(sigma)
        )
        yield _against("EsbRS beats the mean of its members", sigma, name, average, means)
        methods = sorted({method for method, _ in declared[0].members})
        for method in methods if len(methods) > 1 else []:
            single = f"{method} x{len(declared[0].members)}"
            other = evidence.ensemble(single, "average", sigma)
            yield _against(
                "mixed beats single-method", sigma, f"{name} against {single}", average, other
            )
    if optimal := evidence.ensemble(name, "optimal", sigma):
        yield _against("optimal weights beat equal ones", sigma, name, optimal, average)


def _against(
    claim: str, sigma: Any, subject: str, first: Sample | None, second: Sample | None
) -> Comparison:
    return Comparison(claim, sigma, subject, estimate(first, second) if first and second else None)


def verdict_counts(claims: Sequence[JudgedClaim]) -> list[list[str]]:
    """Return how often each claim was held, as rows of a table, its titles first."""
    rows = [["claim", *VERDICTS]]
    for claim in dict.fromkeys(finding.claim for finding in claims):
        verdicts = Counter(finding.verdict for finding in claims if finding.claim == claim)
        rows.append([claim, *(_count(verdicts, verdict) for verdict in VERDICTS)])
    return rows


def _tables(claims: Sequence[JudgedClaim]) -> Iterator[str]:
    """Write how often each claim was held, and every finding."""
    titles, *rows = (f"| {' | '.join(row)} |" for row in verdict_counts(claims))
    yield from (titles, "|---|" + "---:|" * len(VERDICTS), *rows)
    yield from ("", "| claim | σ | of | difference | verdict |", "|---|---:|---|---:|---|")
    for finding in claims:
        yield f"| {' | '.join(map(str, finding))} |"


def _count(verdicts: Mapping[str, int], verdict: str) -> str:
    """Count a verdict, and how many of these rest on images only.

    >>> _count({"held": 8, "held, images only": 19}, "held")
    '27 (19 images only)'
    """
    images_only = verdicts.get(f"{verdict}, images only", 0)
    return f"{verdicts.get(verdict, 0) + images_only}" + f" ({images_only} images only)" * bool(
        images_only
    )
