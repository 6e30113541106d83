"""The claims of the paper against the rows of a study, and the pages of the verdicts.

A claim is held, refuted, a tie, or not tested.

A claim about ACR is held where the difference is above 0 at the level of 5%, refuted where it is
below 0 at that level, and a tie otherwise. P-values (``rs.statistics.comparison``) are corrected
for the number of differences of the claim (Holm). A claim is not tested if the study lacks the
classifiers. A guarantee is refuted if an attack broke it; if no attack did, it is a tie. A claim
about time compares seconds of training, with a tolerance of a tenth, on another page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rs.reporting.load import StudyFiles
from rs.reporting.results import Group, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.ensemble_tables import samples_of_members
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED, signed_with_errors
from rs.statistics.certificate import PER_IMAGE_SCOPE
from rs.statistics.comparison import Estimate, estimate, holm, is_tie
from rs.storage import certificate_rows
from rs.storage.provenance import UNROUNDED
from rs.study.grid import has_warm_start

PAPERS_EPOCHS = (150, 440)
"""Epochs of AdvMacer and of MACER in the paper, to which its claim about training times applies."""

JUST_INSIDE = 0.99
"""Distance of attacked points, in certified radii."""

TOLERANCE = 1.1
"""Tolerance factor of claims about training time."""


GUARANTEE = "weights chosen per image keep the guarantee"
"""The claim that attacks test, not differences."""

VERDICTS = ("held", "refuted", "tie", "not tested")

HEAD = """\
# The claims of the paper on {dataset}

Differences of ACR are paired image by image. After ± is the standard error over images; in
brackets is the error over images and training seeds. The 95% interval is ± 1.96 of the latter
([Differences and their errors](../../docs/method.md#differences-and-their-errors)).

- **held**: the difference is above 0 at the level of 5%, corrected for the number of differences
  of the claim (Holm).
- **refuted**: the difference is below 0 at that level.
- **tie**: the difference may be 0. With few training seeds, a difference of three or four errors
  can still be a tie.
- **training seeds not covered**, or **of single training runs** in counts: one run was compared
  with one other, and another pair could reverse the verdict.

{about}
The claims of the paper are about CIFAR-10, ResNet-110, 500 images and n = 100,000. They need not
hold on other data, for other networks, or with other budgets.
"""

ATTACKED = """
Weights that are chosen per image were attacked at 0.99 of the certified radius, and solved again
at the attacked points ([Falsification](../../docs/guarantees.md#attacks-on-certificates)).
Where the certified class falls below one half, the certificate is false, and the claim is refuted.
Where no attack succeeds, the verdict is a tie, because attacks cannot prove a guarantee.
"""

ROUNDED = """
The pool kept the logits of its members in {outputs}. The votes of ensembles, and of models that
only the pool certifies, come from these rounded logits.
"""

ADDED = (
    "At equal training time, verdicts count only the seeds that MACER has at every noise level, "
    "not {added}. Adding training runs after a look at the first results would make false "
    "verdicts more likely than their level allows."
)

STARTED = (
    "Training runs by {methods} start from models that were trained almost without noise, not from "
    "random weights."
)

TIMES_HEAD = """\
# The claims of the paper about training time, on {dataset}

Seconds are {seconds}. Claims have a tolerance of {tolerance:.0%}. Times depend on the machine.
"""

MEDIANS = "those of the first seed, as if every epoch took the median of all epochs"


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
    if any(ensemble.combination.scope == PER_IMAGE_SCOPE for ensemble in study.ensembles):
        for sigma in study.sigmas:
            verdicts += _under_attack(study, sigma)
    return verdicts


def _under_attack(study: StudyFiles, sigma: Any) -> list[JudgedClaim]:
    """Judge whether the certified class keeps half of the votes at points just inside the radius.

    There, the weights are solved again.
    """
    verdicts = []
    counts = study.read_attacks()
    if counts is not None:
        is_inside = (counts["scope"] == PER_IMAGE_SCOPE) & (counts["distance"] == JUST_INSIDE)
        for row in counts[is_inside & (counts["sigma"] == float(sigma))].to_dict("records"):
            numbers = (
                f"of {row['attacked']} attacked certificates, the class is below one half in "
                f"{row['below_half']} and outvoted in {row['outvoted']:.0f}"
            )
            verdict = "refuted" if row["below_half"] else "tie"
            verdicts.append(JudgedClaim(GUARANTEE, sigma, row["classifier"], numbers, verdict))
    return verdicts or [JudgedClaim(GUARANTEE, sigma, "attacks", "", "not tested")]


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


# -------------------------------------------------------------------------------------------------
# pages


def claims_text(study: StudyFiles, verdicts: Sequence[JudgedClaim], network: str | None) -> str:
    """Write the page of claims about ACR.

    Args:
        study: Its rows, and what must be said of the data (``tables.remarks``).
        verdicts: Their :func:`findings`.
        network: Name of the architecture, if it is known.
    """
    results = results_of(study.groups)
    about = notes.about(study.groups)
    if network:
        about += f" Network: {network}."
    head = HEAD.format(dataset=study.dataset, about=about)
    if any(verdict.numbers for verdict in verdicts if verdict.claim == GUARANTEE):
        head += ATTACKED
    rounded = {result.provenance.outputs for result in results} - {None, UNROUNDED}
    if rounded:
        head += ROUNDED.format(outputs=", ".join(sorted(map(str, rounded))))
    lines = [head]
    for sentence in [
        *study.settings.remarks,
        *notes.provenance_notes(results),
        *_training_notes(study),
    ]:
        lines.append(f"{sentence}\n")
    lines += ["## Results of the study", "", "| σ | models | ensembles |", "|---:|---:|---:|"]
    for sigma in study.sigmas:  # reading a study refuses missing rows, so the counts are equal
        models = len([cell for cell in study.cells if cell.sigma == sigma])
        ensembles = len(study.ensembles)
        lines.append(f"| {sigma} | {models} of {models} | {ensembles} of {ensembles} |")
    lines.append("")
    return "\n".join([*lines, "## Claims", "", *_tables(verdicts)]) + "\n"


def _training_notes(study: StudyFiles) -> list[str]:
    """Return which training runs verdicts leave out, and which start from other models."""
    sentences = []
    added = []
    counted = seeds_of_equal_time(study)
    for sigma in study.sigmas:
        for seed in sorted(study.rows_of_equal_time(sigma).keys() - counted):
            added.append(f"seed {seed} at σ = {sigma}")
    if added:
        sentences.append(ADDED.format(added=", ".join(added)))
    warm = [cell.method for cell in study.cells if has_warm_start(study.values, cell)]
    if warm:
        sentences.append(STARTED.format(methods=", ".join(dict.fromkeys(warm))))
    return sentences


def times_text(study: StudyFiles) -> str:
    """Write the page of claims about time."""
    head = TIMES_HEAD.format(
        dataset=study.dataset,
        seconds=MEDIANS if study.epoch_seconds is None else notes.SIDE_BY_SIDE,
        tolerance=TOLERANCE - 1,
    )
    return "\n".join([head, *_tables(list(findings_about_time(study)))]) + "\n"


def verdict_counts(claims: Sequence[JudgedClaim]) -> list[list[str]]:
    """Return how often each claim was held, as rows of a table, its titles first."""
    by_claim: dict[str, Counter[str]] = {}
    for finding in claims:
        by_claim.setdefault(finding.claim, Counter())[finding.verdict] += 1
    rows = [["claim", *VERDICTS]]
    for claim, verdicts in by_claim.items():
        rows.append([claim, *[_count(verdicts, verdict) for verdict in VERDICTS]])
    return rows


def _tables(claims: Sequence[JudgedClaim]) -> Iterator[str]:
    """Write how often each claim was held, and every finding."""
    titles, *counts = verdict_counts(claims)
    yield _line(titles)
    yield "|---|" + "---:|" * len(VERDICTS)
    yield from map(_line, counts)
    yield from ("", "| claim | σ | compared | difference | verdict |", "|---|---:|---|---:|---|")
    yield from map(_line, claims)


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _count(verdicts: Mapping[str, int], verdict: str) -> str:
    """Count a verdict, and how many of these do not cover training seeds.

    >>> _count({"held": 8, "held, training seeds not covered": 19}, "held")
    '27 (19 of single training runs)'
    """
    not_covered = verdicts.get(f"{verdict}, {SEEDS_NOT_COVERED}", 0)
    count = str(verdicts.get(verdict, 0) + not_covered)
    return f"{count} ({not_covered} of single training runs)" if not_covered else count
