"""The tables of ensembles: against their members, by weights (the paper's Table 3), by number of members.

``results`` are those of the ensembles and of all their members, which ``rs.results.grouped`` lets stand side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from rs import headlines, metrics
from rs.columns import Row, acr, difference, marked, plain, table
from rs.errors import InputError
from rs.headlines import paper_value
from rs.results import Group, Result, each
from rs.typeset import Table

NONE = "none (mean of members)"
TIE = "Differences are ± their paired standard error over the same images; tie: within two such errors."
SET = (
    "Scope set: a draw counts for a class only if that class wins it for all weights of the set. The ACR is of the "
    "class that wins for all of them, and holds for any rule that chooses weights in the set."
)
BEST_MEMBER = "The best member is chosen by its ACR on these very images, so a gain over it is rather understated."
BEST = "Bold: the largest sound ACR of all, and every one within two paired errors of it."
BOLD = "Bold: the largest sound ACR of an ensemble, and every one within two paired errors of it."
TIMES = "Time: of one certificate, on our machine. With scope per-image it includes computing the weights."


def ensembles(results: Sequence[Result], sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members, and against their combination ``reference``.

    Raises:
        InputError: If there is no ensemble at ``sigma``, or a member has no result.
    """
    found = _ensembles(results, sigma)
    groups = each(found)[sigma]
    best = headlines.best(groups)
    data = [
        names_of(result)
        | {"scope": result.scope, "sound": result.sound, "best": result.method in best}
        | groups[result.method].numbers()
        | _against(result, results, reference)
        for result in found
    ]
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Scope": plain("scope"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr,
        "to members' mean": difference("members"),
        "to best member": difference("best_member"),
        f"to {reference}": difference("reference"),
    }
    caption = (
        f"Ensembles at σ = {sigma}: ACR, and its difference to the mean of the members' ACRs, to the best member's and "
        f"to that of the same members combined by {reference}. {headlines.about({sigma: groups})}"
    )
    notes = [headlines.CLEAN, headlines.ERROR, BEST, TIE, BEST_MEMBER, *unsound_note(found), *_set_note(found)]
    notes += headlines.unlike(_with_members(found, results))
    return table(f"tab:ensembles-{sigma}", caption, columns, data, notes)


def weighting(results: Sequence[Result], sigma: float, seconds: Mapping[str, float], figures: pd.DataFrame) -> Table:
    """Return every combination of every ensemble's members, and no ensemble at all (the paper's Table 3).

    Args:
        results: Of ensembles and members.
        sigma: Noise level.
        seconds: Time of one certificate by ``method``, of a single model by ``method-seed``; where known.
        figures: Published figures (``rs.published``).
    Raises:
        InputError: As :func:`ensembles`.
    """
    found, data = _ensembles(results, sigma), []
    for name in dict.fromkeys(result.ensemble for result in found):
        mine = [result for result in found if result.ensemble == name]
        groups = {NONE: _members(mine[0], results)} | {str(r.combination): Group((r,)) for r in mine}
        best = headlines.best(groups)
        for combination, group in groups.items():
            keys = {"sigma": sigma, "ensemble": name, "combination": combination, "sound": group.sound}
            data.append(keys | {"best": combination in best} | _weighting(group, seconds, figures))
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr,
        "Time": plain("seconds", ".3g", " s"),
    }
    if printed := any(row["paper_acr"] is not None for row in data):
        columns["Clean accuracy, paper"] = plain("paper_clean_accuracy", ".1%")
        columns |= {"ACR, paper": plain("paper_acr", ".3f"), "Time, paper": plain("paper_seconds", ".3g", " s")}
    caption = f"Weights of ensembles at σ = {sigma}. {headlines.about(each(found))}"
    notes = [headlines.CLEAN, headlines.ERROR, BOLD, TIMES, *unsound_note(found), *_set_note(found)]
    notes += headlines.unlike(_with_members(found, results))
    return table(f"tab:weighting-{sigma}", caption, columns, data, notes + [headlines.PAPER] * printed)


def sizes(results: Sequence[Result], combination: str) -> pd.DataFrame:
    """Return ACR by number of members, of ensembles combined by ``combination``.

    Returns:
        Columns ``sigma kind ensemble members acr error``. ``kind`` names the training methods. One member: the mean
        over training seeds, for each method that is in an ensemble. ``error``: standard error over images.
    """
    data = []
    for sigma in dict.fromkeys(result.sigma for result in results):
        here = [result for result in results if result.sigma == sigma]
        found = [result for result in here if result.ensemble is not None and result.combination == combination]
        for result in found:
            _members(result, here)  # refuses an ensemble without its members
        for method in sorted({method for result in found for method in methods_of(result)}):
            seeds = [result.rows for result in here if result.ensemble is None and result.method == method]
            data.append((sigma, method, f"{method} x1", 1, metrics.average_rows(seeds)))
        data += [(sigma, " + ".join(methods_of(r)), r.ensemble, len(r.members), r.rows) for r in found]
    points = [(*keys, metrics.acr(rows), metrics.standard_error(rows)) for *keys, rows in data]
    return pd.DataFrame(points, columns=["sigma", "kind", "ensemble", "members", "acr", "error"])


def _ensembles(results: Sequence[Result], sigma: float) -> list[Result]:
    found = [result for result in results if result.ensemble is not None and result.sigma == sigma]
    if not found:
        raise InputError(f"a table of ensembles needs at least one at sigma {sigma}, got none; certify ensembles first")
    return found


def _members(ensemble: Result, results: Sequence[Result]) -> Group:
    singles = {(r.method, r.seed): r for r in results if r.ensemble is None and r.sigma == ensemble.sigma}
    missing = [f"{method}-{seed}" for method, seed in ensemble.members if (method, seed) not in singles]
    if missing or not ensemble.members:
        raise InputError(
            f"{ensemble.method} at sigma {ensemble.sigma} must come with the results of all its members, missing: "
            f"{', '.join(missing) or 'all'}; certify them on the same images"
        )
    return Group(tuple(singles[member] for member in ensemble.members))


def _with_members(found: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return ensembles, and every member of them once."""
    members = {member.name: member for result in found for member in _members(result, results).results}
    return [*found, *members.values()]


def methods_of(result: Result) -> list[str]:
    """Return the training methods of the members, each once."""
    return sorted({method for method, _ in result.members})


def names_of(result: Result) -> Row:
    """Return what tells an ensemble from the others."""
    return {"sigma": result.sigma, "ensemble": result.ensemble, "combination": result.combination}


def _against(result: Result, results: Sequence[Result], reference: str) -> Row:
    """Return the differences that :func:`ensembles` prints; ``None`` where there is nothing to compare with."""
    members = _members(result, results)
    same = [r.rows for r in results if names_of(r) == names_of(result) | {"combination": reference}]
    others = {
        "members": members.mean,
        "best_member": max(members.rows, key=metrics.acr),
        "reference": same[0] if same and result.combination != reference else None,
    }
    return {k: v for name, other in others.items() for k, v in paired(name, result.rows, other).items()}


def paired(name: str, rows: pd.DataFrame, other: pd.DataFrame | None) -> Row:
    """Return difference, error and tie under names that begin with ``name``; ``None`` where there is no other."""
    if other is None:
        return {f"{name}_{field}": None for field in ("difference", "error", "tie")}
    paired = metrics.paired_difference(rows, other)
    return {f"{name}_{field}": getattr(paired, field) for field in ("difference", "error", "tie")}


def _weighting(group: Group, seconds: Mapping[str, float], figures: pd.DataFrame) -> Row:
    """Return our numbers of one row of :func:`weighting` and the paper's; ``None`` where not known."""
    first = group.results[0]
    times = [seconds.get(r.method if r.seed is None else f"{r.method}-{r.seed}") for r in group.results]
    numbers = {name: group.numbers()[name] for name in ("clean_accuracy", "acr", "standard_error")}
    numbers["seconds"] = None if None in times else sum(times) / len(times)
    alike = len({result.method for result in group.results}) == 1  # the paper has no mean over methods
    metric = {"clean_accuracy": "clean_accuracy", "acr": "acr", "seconds": "certificate_seconds"}
    return numbers | {
        f"paper_{name}": paper_value(figures, first.method, first.sigma, metric[name]) if alike else None
        for name in metric
    }


def _set_note(found: Sequence[Result]) -> list[str]:
    return [SET] * any(result.scope == "set" for result in found)


def unsound_note(found: Sequence[Result]) -> list[str]:
    """Say what a dagger means, if there is one."""
    return [headlines.UNSOUND] * any(not result.sound for result in found)
