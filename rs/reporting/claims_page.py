"""The pages of the claims of the paper: verdicts, and how often each claim was held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rs.reporting.claims import (
    TOLERANCE,
    JudgedClaim,
    attacked,
    findings_about_time,
    seeds_of_equal_time,
)
from rs.reporting.load import StudyFiles
from rs.reporting.results import results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED
from rs.storage.provenance import UNROUNDED
from rs.study.grid import has_warm_start

VERDICTS = ("held", "refuted", "tie", "not tested")

HEAD = """\
# The claims of the paper on {dataset}

Differences of ACR are paired image by image. After ± is the standard error over images; in
brackets is the error over images and training seeds. The 95 % interval is ± 1.96 of the latter
([Differences and their errors](../../docs/method.md#differences-and-their-errors)).

- **held**: the difference is above 0 at the level of 5 %, corrected for the number of differences
  of the claim (Holm).
- **refuted**: the difference is below 0 at that level.
- **tie**: the difference may be 0. With few training seeds, a difference of three or four errors
  can still be a tie.
- **training seeds not covered**: one training was compared with one other, and another pair could
  reverse the verdict.

{about}
The claims of the paper are about CIFAR-10, ResNet-110, 500 images and n = 100,000. They need not
hold on other data, for other networks, or with other budgets.
"""

ATTACKED = """
Weights that are chosen per image were attacked at 0.99 of the certified radius, and solved again
at the attacked points ([Falsification](../../docs/guarantees.md#attacks-on-certificates)).
Where the certified class falls below one half, the certificate is false.
"""

ROUNDED = """
The pool kept the logits of its members in {outputs}. The votes of ensembles, and of models that
only the pool certifies, come from these rounded logits.
"""

ADDED = (
    "At equal training time, verdicts count only the seeds that MACER has at every noise level, "
    "not {added}. Trainings that are added after a look at the first results would make a false "
    "verdict more likely than its level."
)

STARTED = (
    "Trainings by {methods} start from models that were trained almost without noise, not from "
    "random weights."
)

TIMES_HEAD = """\
# The claims of the paper about training time, on {dataset}

Seconds are {seconds}. Claims have a tolerance of {tolerance:.0%}. Times depend on the machine.
"""

MEDIANS = "those of the first seed, as if every epoch took the median of all epochs"


def claims_text(study: StudyFiles, verdicts: Sequence[JudgedClaim], network: str | None) -> str:
    """Write the page of claims about ACR.

    Args:
        study: Its rows, and what must be said of the data (``tables.remarks``).
        verdicts: Their :func:`rs.reporting.claims.findings`.
        network: Name of the architecture, if it is known.
    """
    results = results_of(study.groups)
    about = notes.about(study.groups)
    if network:
        about += f" Network: {network}."
    head = HEAD.format(dataset=study.dataset, about=about)
    if any(attacked(study, sigma) for sigma in study.sigmas):
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
    """Return which trainings verdicts leave out, and which start from other models."""
    sentences = []
    added = []
    counted = seeds_of_equal_time(study)
    for sigma in study.sigmas:
        for seed in sorted(study.rows_of_equal_time(sigma).keys() - counted):
            added.append(f"seed {seed} at σ = {sigma}")
    if added:
        sentences.append(ADDED.format(added=", ".join(added)))
    warm = [cell.method for cell in study.cells if has_warm_start(study.values, cell)]
    started = dict.fromkeys(warm)
    if started:
        sentences.append(STARTED.format(methods=", ".join(started)))
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
    '27 (19 on images alone)'
    """
    not_covered = verdicts.get(f"{verdict}, {SEEDS_NOT_COVERED}", 0)
    count = str(verdicts.get(verdict, 0) + not_covered)
    return f"{count} ({not_covered} on images alone)" if not_covered else count
