"""The claims of the paper against the rows of a study: held, refuted, tie, or not tested.

A claim about ACR is held where the difference is above 0 at the level of 5 %, refuted where it is
below 0 at that level, and a tie otherwise. P-values (``rs.statistics.comparison``) are corrected
for the number of differences of the claim (Holm). A claim is not tested if the study lacks the
classifiers. A guarantee is refuted if an attack broke it; if no attack did, it is a tie. A claim
about time compares seconds of training, with a tolerance of a tenth, on another page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rs.reporting.load import StudyFiles
from rs.reporting.results import Group
from rs.reporting.tables.ensemble_tables import samples_of_members
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED, signed_with_errors
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.statistics.comparison import Estimate, estimate, holm, is_tie
from rs.storage import certificate_rows

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


def seeds_of_equal_time(study: StudyFiles) -> list[int]:
    """Return the seeds of both AdvMacer and MACER of equal time, at all noise levels with rows."""
    seeds = {cell.seed for cell in study.cells if cell.method == "advmacer"}
    for sigma in study.sigmas:
        rows = study.rows_of_equal_time(sigma)
        if rows:
            seeds &= rows.keys()
    return sorted(seeds)


def attacked(study: StudyFiles, sigma: Any) -> list[dict[Any, Any]]:
    """Return the counts of attacks on weights chosen per image, just inside the radius."""
    counts = study.read_attacks()
    if counts is None or not study.chooses_by_image:
        return []
    is_inside = (counts["scope"] == PER_IMAGE_SCOPE) & (counts["distance"] == JUST_INSIDE)
    return counts[is_inside & (counts["sigma"] == float(sigma))].to_dict("records")


def training_seconds_of(study: StudyFiles, method: str, sigma: Any) -> tuple[float, int] | None:
    """Return training seconds and epochs of a method's first seed, at the median epoch.

    The first epoch after a start compiles, and the number of restarts is not a property of the
    method.
    """
    for cell in study.cells:
        if (cell.method, cell.sigma) == (method, sigma):
            seconds = study.read_epoch_seconds(cell)
            if seconds is None:
                return None
            return float(seconds.median()) * len(seconds), len(seconds)
    return None


def findings(study: StudyFiles) -> list[JudgedClaim]:
    """Return the verdict on every claim about ACR at every noise level."""
    comparisons: list[Comparison] = []
    for sigma in study.sigmas:
        comparisons += _comparisons(study, sigma)
    verdicts = judged(comparisons)
    if study.chooses_by_image:
        for sigma in study.sigmas:
            verdicts += _under_attack(study, sigma)
    return verdicts


def _under_attack(study: StudyFiles, sigma: Any) -> list[JudgedClaim]:
    """Judge whether the certified class keeps half of the votes at attacked points.

    There, the weights are solved again.
    """
    claim = "weights chosen per image keep the guarantee"
    verdicts = []
    for row in attacked(study, sigma):
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
                verdict = "held" if difference.value > 0 else "refuted"
                if is_tie(next(corrected)):
                    verdict = "tie"
                if difference.error is None:
                    verdict += f", {SEEDS_NOT_COVERED}"
                numbers = signed_with_errors(difference)
                verdicts.append(JudgedClaim(claim, sigma, subject, numbers, verdict))
    return verdicts


def findings_about_time(study: StudyFiles) -> Iterator[JudgedClaim]:
    """Yield the verdict on every claim about training time at every noise level."""
    for sigma in study.sigmas:
        advmacer = training_seconds_of(study, "advmacer", sigma)
        smoothadv = training_seconds_of(study, "smoothadv", sigma)
        macer = training_seconds_of(study, "macer", sigma)
        cost = None
        speedup = None
        if advmacer and smoothadv:
            cost = (advmacer[0] / advmacer[1]) / (smoothadv[0] / smoothadv[1])
        if advmacer and macer and (advmacer[1], macer[1]) == PAPERS_EPOCHS:
            speedup = macer[0] / advmacer[0]
        claim = "an epoch of AdvMacer costs as much as one of SmoothAdv"
        yield _about_time(claim, sigma, cost, at_most=TOLERANCE)
        claim = "AdvMacer trains 3 times faster than MACER"
        yield _about_time(claim, sigma, speedup, at_least=3 / TOLERANCE)


def _about_time(
    claim: str, sigma: Any, ratio: float | None, at_least: float = 0, at_most: float = math.inf
) -> JudgedClaim:
    if ratio is None:
        return JudgedClaim(claim, sigma, "seconds", "", "not tested")
    verdict = "held" if at_least <= ratio <= at_most else "refuted"
    return JudgedClaim(claim, sigma, "seconds", f"{ratio:.2f} times", verdict)


def _comparisons(study: StudyFiles, sigma: Any) -> Iterator[Comparison]:
    methods = study.groups[float(sigma)]
    claim = "AdvMacer beats SmoothAdv"
    subject = "means over seeds"
    yield _against(claim, sigma, subject, methods.get("advmacer"), methods.get("smoothadv"))
    yield _at_equal_time(study, sigma)
    for name in dict.fromkeys(ensemble.name for ensemble in study.ensembles):
        yield from _of_ensemble(study, name, sigma)


def _at_equal_time(study: StudyFiles, sigma: Any) -> Comparison:
    """Compare AdvMacer with MACER that was stopped at its training time."""
    claim = "AdvMacer beats MACER at equal training time"
    seeds = seeds_of_equal_time(study)
    paths = study.rows_of_equal_time(sigma)
    if not seeds or not paths:
        return Comparison(claim, sigma, "rows", None)
    advmacer = study.groups[float(sigma)]["advmacer"]
    same_seeds = Group(tuple(result for result in advmacer.results if result.seed in seeds))
    stopped = [certificate_rows.read_rows(paths[seed]) for seed in seeds]
    difference = estimate(same_seeds.sample, same_seeds.sample_of(stopped))
    return Comparison(claim, sigma, f"means over seeds {', '.join(map(str, seeds))}", difference)


def _of_ensemble(study: StudyFiles, name: str, sigma: Any) -> Iterator[Comparison]:
    methods = study.groups[float(sigma)]
    average = methods.get(study.name_of(name, "average"))
    optimal = methods.get(study.name_of(name, "optimal"))
    if average:
        mean, _ = samples_of_members(average.member_sets, methods)
        difference = estimate(average.sample, mean)
        yield Comparison("EsbRS beats the mean of its members", sigma, name, difference)
        trained = average.first.training_methods
        for method in trained if len(trained) > 1 else []:
            single = f"{method} x{len(average.first.members)}"
            other = methods.get(study.name_of(single, "average"))
            subject = f"{name} against {single}"
            yield _against("mixed beats single-method", sigma, subject, average, other)
    if optimal:
        yield _against("optimal weights beat equal ones", sigma, name, optimal, average)


def _against(
    claim: str, sigma: Any, subject: str, first: Group | None, second: Group | None
) -> Comparison:
    difference = first.difference_to(second) if first and second else None
    return Comparison(claim, sigma, subject, difference)
