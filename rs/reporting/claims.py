"""The claims of the paper against the rows of a study: held, refuted, tie, or not tested.

A claim about ACR is held where the difference is above 0 at the level of 5 %, refuted where it is
below 0 at that level, and a tie otherwise. P-values (``rs.statistics.comparison``) are corrected
for the number of differences of the claim (Holm). A claim is not tested if the study lacks the
classifiers. A guarantee is refuted if an attack broke it; if no attack did, it is a tie. A claim
about time compares seconds of training, with a tolerance of a tenth, on another page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rs.reporting.load import StudyFiles
from rs.reporting.results import Group, Groups
from rs.reporting.tables.ensemble_tables import samples_of_members
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED, signed_with_errors
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.statistics.comparison import Estimate, Sample, estimate, holm, is_tie, sample
from rs.storage import certificate_rows
from rs.study.ensembles import EnsembleDeclaration

PAPERS_EPOCHS = (150, 440)
"""Epochs of AdvMacer and of MACER in the paper, to which its claim about training times applies."""

JUST_INSIDE = 0.99
"""Distance of attacked points, in certified radii."""

TOLERANCE = 1.1
"""Tolerance factor of claims about training time."""


class Comparison(NamedTuple):
    """A difference of ACR that a claim is about, before it is judged."""

    claim: str
    sigma: Any
    subject: str
    difference: Estimate | None  # None: there are no rows


class JudgedClaim(NamedTuple):
    """The verdict on a claim at one noise level."""

    claim: str
    sigma: Any
    subject: str
    numbers: str
    verdict: str


@dataclass(frozen=True)
class Evidence:
    """The rows and times that the claims are tested with."""

    study: StudyFiles
    groups: Groups  # the models and ensembles of the study
    equal_time: Path | None = None  # rows of MACER trained for AdvMacer's time, by sigma
    attacks: Path | None = None  # counts of attacks, DATASET.csv (``benchmarks.falsify``)

    def methods(self, sigma: Any) -> dict[str, Group]:
        """Return the groups of a noise level."""
        return self.groups.get(float(sigma), {})

    def models(
        self, method: str, sigma: Any, seeds: Collection[int] | None = None
    ) -> Sample | None:
        """Return the models of a method, or those of some seeds."""
        group = self.methods(sigma).get(method)
        if group is None:
            return None
        results = [result for result in group.results if seeds is None or result.seed in seeds]
        return Group(tuple(results)).sample if results else None

    def rows_of_equal_time(self, sigma: Any) -> dict[int, Path]:
        """Return the rows of MACER trained for as long as AdvMacer, by seed."""
        if self.equal_time is None:
            return {}
        paths = sorted((self.equal_time / str(sigma)).glob("macer-*.tsv"))
        return {int(path.stem.removeprefix("macer-")): path for path in paths}

    @cached_property
    def seeds_of_equal_time(self) -> list[int]:
        """Seeds that AdvMacer and the MACER of equal time have wherever there are rows of it."""
        seeds = {cell.seed for cell in self.study.cells if cell.method == "advmacer"}
        for sigma in self.study.sigmas:
            rows = self.rows_of_equal_time(sigma)
            if rows:
                seeds &= rows.keys()
        return sorted(seeds)

    def added_seeds(self, sigma: Any) -> list[int]:
        """Return the seeds that only some noise levels have, so that no verdict counts them."""
        return sorted(self.rows_of_equal_time(sigma).keys() - self.seeds_of_equal_time)

    @property
    def chooses_by_image(self) -> bool:
        """Whether the study has ensembles whose weights are chosen per image."""
        return any(
            ensemble.combination.scope == PER_IMAGE_SCOPE for ensemble in self.study.ensembles
        )

    def attacked(self, sigma: Any) -> list[dict[Any, Any]]:
        """Return the counts of attacks on weights chosen per image, just inside the radius."""
        if self.attacks is None or not self.chooses_by_image:
            return []
        path = self.attacks / f"{self.study.dataset}.csv"
        if not path.exists():
            return []
        counts = pd.read_csv(path)
        is_inside = (counts["scope"] == PER_IMAGE_SCOPE) & (counts["distance"] == JUST_INSIDE)
        return counts[is_inside & (counts["sigma"] == float(sigma))].to_dict("records")

    def declared(self, name: str, combination: str) -> list[EnsembleDeclaration]:
        """Return the sub-ensembles of a name that the parameters declare."""
        declared = []
        for ensemble in self.study.ensembles:
            if (ensemble.name, ensemble.key) == (name, combination):
                declared.append(ensemble)
        return declared

    def ensemble(self, name: str, combination: str, sigma: Any) -> Sample | None:
        """Return all sub-ensembles of a name; ``None`` if there is no such ensemble."""
        declared = self.declared(name, combination)
        return self.methods(sigma)[self.study.name_of(declared[0])].sample if declared else None

    def seconds(self, method: str, sigma: Any) -> tuple[float, int] | None:
        """Return training seconds and epochs of a method's first seed, at the median epoch.

        The first epoch after a start compiles, and the number of restarts is not a property of the
        method.
        """
        for cell in self.study.cells:
            if (cell.method, cell.sigma) == (method, sigma):
                seconds = self.study.read_epoch_seconds(cell)
                if seconds is None:
                    return None
                return float(seconds.median()) * len(seconds), len(seconds)
        return None


def findings(evidence: Evidence) -> list[JudgedClaim]:
    """Return the verdict on every claim about ACR at every noise level."""
    comparisons: list[Comparison] = []
    for sigma in evidence.study.sigmas:
        comparisons += _comparisons(evidence, sigma)
    verdicts = judged(comparisons)
    if evidence.chooses_by_image:
        for sigma in evidence.study.sigmas:
            verdicts += _under_attack(evidence, sigma)
    return verdicts


def _under_attack(evidence: Evidence, sigma: Any) -> list[JudgedClaim]:
    """Judge whether the certified class keeps half of the votes at attacked points.

    There, the weights are solved again.
    """
    claim = "weights chosen per image keep the guarantee"
    verdicts = []
    for row in evidence.attacked(sigma):
        numbers = (
            f"of {row['attacked']} attacked certificates, the class is below one half in "
            f"{row['below_half']} and outvoted in {row['outvoted']:.0f}"
        )
        verdict = "refuted" if row["below_half"] else "tie"
        verdicts.append(JudgedClaim(claim, sigma, row["classifier"], numbers, verdict))
    return verdicts or [JudgedClaim(claim, sigma, "attacks", "", "not tested")]


def judged(comparisons: Sequence[Comparison]) -> list[JudgedClaim]:
    """Judge the differences of each claim together, claim after claim."""
    by_claim: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_claim.setdefault(comparison.claim, []).append(comparison)
    verdicts = []
    for claim, related in by_claim.items():
        differences = [comparison.difference for comparison in related]
        p_values = [difference.p_value for difference in differences if difference]
        corrected = iter(holm(p_values))
        for _, sigma, subject, difference in related:
            if difference is None:
                verdicts.append(JudgedClaim(claim, sigma, subject, "", "not tested"))
            else:
                numbers = signed_with_errors(difference)
                verdict = verdict_of(difference, next(corrected))
                verdicts.append(JudgedClaim(claim, sigma, subject, numbers, verdict))
    return verdicts


def verdict_of(difference: Estimate, p_value: float) -> str:
    """Return held, refuted, or tie, by a corrected p-value, and whether it covers seeds."""
    if is_tie(p_value):
        verdict = "tie"
    elif difference.value > 0:
        verdict = "held"
    else:
        verdict = "refuted"
    return verdict if difference.error is not None else f"{verdict}, {SEEDS_NOT_COVERED}"


def findings_about_time(evidence: Evidence) -> Iterator[JudgedClaim]:
    """Yield the verdict on every claim about training time at every noise level."""
    for sigma in evidence.study.sigmas:
        advmacer = evidence.seconds("advmacer", sigma)
        smoothadv = evidence.seconds("smoothadv", sigma)
        macer = evidence.seconds("macer", sigma)
        cost = None
        speedup = None
        if advmacer and smoothadv:
            cost = (advmacer[0] / advmacer[1]) / (smoothadv[0] / smoothadv[1])
        if advmacer and macer and (advmacer[1], macer[1]) == PAPERS_EPOCHS:
            speedup = macer[0] / advmacer[0]
        claim = "an epoch of AdvMacer costs as much as one of SmoothAdv"
        yield _about_time(claim, sigma, cost, held=cost is not None and cost <= TOLERANCE)
        claim = "AdvMacer trains 3 times faster than MACER"
        held = speedup is not None and speedup >= 3 / TOLERANCE
        yield _about_time(claim, sigma, speedup, held)


def _about_time(claim: str, sigma: Any, ratio: float | None, held: bool) -> JudgedClaim:
    if ratio is None:
        return JudgedClaim(claim, sigma, "seconds", "", "not tested")
    verdict = "held" if held else "refuted"
    return JudgedClaim(claim, sigma, "seconds", f"{ratio:.2f} times", verdict)


def _comparisons(evidence: Evidence, sigma: Any) -> Iterator[Comparison]:
    advmacer = evidence.models("advmacer", sigma)
    smoothadv = evidence.models("smoothadv", sigma)
    yield _against("AdvMacer beats SmoothAdv", sigma, "means over seeds", advmacer, smoothadv)
    yield _at_equal_time(evidence, sigma)
    for name in dict.fromkeys(ensemble.name for ensemble in evidence.study.ensembles):
        yield from _of_ensemble(evidence, name, sigma)


def _at_equal_time(evidence: Evidence, sigma: Any) -> Comparison:
    """Compare AdvMacer with MACER that was stopped at its training time."""
    claim = "AdvMacer beats MACER at equal training time"
    seeds = evidence.seeds_of_equal_time
    paths = evidence.rows_of_equal_time(sigma)
    if not seeds or not paths:
        return Comparison(claim, sigma, "rows", None)
    rows = [certificate_rows.read_rows(paths[seed]) for seed in seeds]
    stopped = sample(rows, [[seed] for seed in seeds])
    subject = f"means over seeds {', '.join(map(str, seeds))}"
    return _against(claim, sigma, subject, evidence.models("advmacer", sigma, seeds), stopped)


def _of_ensemble(evidence: Evidence, name: str, sigma: Any) -> Iterator[Comparison]:
    average = evidence.ensemble(name, "average", sigma)
    declared = evidence.declared(name, "average")
    if declared:
        member_sets = [ensemble.members for ensemble in declared]
        means, _ = samples_of_members(member_sets, evidence.methods(sigma))
        yield _against("EsbRS beats the mean of its members", sigma, name, average, means)
        methods = sorted({method for method, _ in declared[0].members})
        if len(methods) > 1:
            for method in methods:
                single = f"{method} x{len(declared[0].members)}"
                other = evidence.ensemble(single, "average", sigma)
                subject = f"{name} against {single}"
                yield _against("mixed beats single-method", sigma, subject, average, other)
    optimal = evidence.ensemble(name, "optimal", sigma)
    if optimal:
        yield _against("optimal weights beat equal ones", sigma, name, optimal, average)


def _against(
    claim: str, sigma: Any, subject: str, first: Sample | None, second: Sample | None
) -> Comparison:
    return Comparison(claim, sigma, subject, estimate(first, second) if first and second else None)
