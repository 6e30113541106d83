"""The tables of ensembles: against their members, by weights (the paper's Table 3), by number of members.

``results`` are those of the ensembles and of all their members, which ``rs.reporting.results.grouped`` lets stand side
by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import gcd

import pandas as pd

from rs.errors import InputError
from rs.reporting import formatting
from rs.reporting.columns import Row, acr, difference, marked, plain, table
from rs.reporting.formatting import paper_value
from rs.reporting.render import Table
from rs.reporting.results import Group, Result, each
from rs.statistics import metrics
from rs.statistics.comparison import Sample, estimate, sample

_Teams = tuple[tuple[tuple[str, int], ...], ...]
"""The members of each sub-ensemble."""

NONE = "none (mean of members)"
SET = (
    "Scope set: a draw counts for a class only if that class wins it for all weights of the set. The ACR is of the "
    "class that wins for all of them, and holds for any rule that chooses weights in the set, by the image too: for "
    "per-image weights that are clipped into it."
)
BEST_MEMBER = (
    "The best member of each sub-ensemble is chosen by its ACR on these very images, so a gain over it is rather "
    "understated."
)
BEST = "Bold: the largest sound ACR of all, and every one that ties with it."
BOLD = "Bold: the largest sound ACR of an ensemble, and every one that ties with it."
TIMES = (
    "Time: of one certificate, on our machine; of one sub-ensemble, since the others take as long. With scope "
    "per-image it includes computing the weights."
)


def ensembles(results: Sequence[Result], sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members, and against their combination ``reference``.

    Raises:
        InputError: If there is no ensemble at ``sigma``, or a member has no result.
    """
    found = _ensembles(results, sigma)
    shown, groups = _with_members(found, results), together(found)
    best = formatting.best(groups)
    beside = cache(lambda members: _of_members(members, shown))
    data = [
        names_of(group.results[0])
        | {"scope": group.results[0].scope, "sound": group.sound, "best": method in best, "estimate": group.acr}
        | group.numbers()
        | _against(group, results, reference, beside)
        for method, group in groups.items()
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
        f"to that of the same members combined by {reference}. {formatting.about({sigma: groups})}"
    )
    notes = [
        formatting.CLEAN,
        formatting.ERROR,
        formatting.SEEDS,
        BEST,
        formatting.TIES,
        BEST_MEMBER,
        formatting.FAMILIES,
    ]
    notes += [*unsound_note(found), *_set_note(found)]
    notes += formatting.unlike(shown)
    return table(f"tab:ensembles-{sigma}", caption, columns, data, notes)


def weighting(results: Sequence[Result], sigma: float, seconds: Mapping[str, float], figures: pd.DataFrame) -> Table:
    """Return every combination of every ensemble's members, and no ensemble at all (the paper's Table 3).

    Args:
        results: Of ensembles and members.
        sigma: Noise level.
        seconds: Time of one certificate by ``method``, of a single model by ``method-seed``; where known.
        figures: Published figures (``rs.reporting.published``).
    Raises:
        InputError: As :func:`ensembles`.
    """
    found, data = _ensembles(results, sigma), []
    for name in dict.fromkeys(result.ensemble for result in found):
        groups = {NONE: _members([result for result in found if result.ensemble == name], results)}
        groups |= {str(group.results[0].combination): group for group in _of_same_members(name, found)}
        best = formatting.best(groups)
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
    caption = f"Weights of ensembles at σ = {sigma}. {formatting.about(each(found))}"
    notes = [formatting.CLEAN, formatting.ERROR, formatting.SEEDS, BOLD, formatting.TIES, TIMES]
    notes += [formatting.FAMILIES]
    notes += [*unsound_note(found), *_set_note(found)]
    notes += formatting.unlike(_with_members(found, results))
    return table(f"tab:weighting-{sigma}", caption, columns, data, notes + [formatting.PAPER] * printed)


def sizes(results: Sequence[Result], combination: str) -> pd.DataFrame:
    """Return ACR by number of members, of ensembles combined by ``combination``.

    Returns:
        Columns ``sigma kind ensemble members acr error_images error``. ``kind`` names the training methods. One member:
        the mean over training seeds, for each method that is in an ensemble. ``error``: over images and training seeds,
        missing where one training is all there is.
    """
    data = []
    for sigma in dict.fromkeys(result.sigma for result in results):
        here = [result for result in results if result.sigma == sigma]
        groups = families([result for result in here if result.combination == combination])
        for group in groups:
            _members(group.results, here)  # refuses an ensemble without its members
        for method in sorted({method for group in groups for method in methods_of(group.results[0])}):
            seeds = Group(tuple(result for result in here if result.ensemble is None and result.method == method))
            data.append((sigma, method, f"{method} x1", 1, seeds.acr))
        for group in groups:
            one = group.results[0]
            data.append((sigma, " + ".join(methods_of(one)), one.ensemble, len(one.members), group.acr))
    points = [(*keys, acr.value, acr.error_images, acr.error) for *keys, acr in data]
    return pd.DataFrame(points, columns=["sigma", "kind", "ensemble", "members", "acr", "error_images", "error"])


def together(results: Sequence[Result]) -> dict[str, Group]:
    """Group results by what they are called, in their order."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.method, []).append(result)
    return {method: Group(tuple(own)) for method, own in groups.items()}


def families(results: Sequence[Result]) -> list[Group]:
    """Group ensembles, and keep of each kind of them the group with the most sub-ensembles."""
    kept: dict[str, Group] = {}
    for group in together([result for result in results if result.ensemble is not None]).values():
        other = kept.get(group.results[0].kind)
        if other is None or len(other.results) < len(group.results):
            kept[group.results[0].kind] = group
    return list(kept.values())


def _ensembles(results: Sequence[Result], sigma: float) -> list[Result]:
    found = [result for result in results if result.ensemble is not None and result.sigma == sigma]
    if not found:
        raise InputError(f"a table of ensembles needs at least one at sigma {sigma}, got none; certify ensembles first")
    return found


def _of_same_members(name: str, found: Sequence[Result]) -> list[Group]:
    """The combinations of an ensemble: its own, and of its very members those that go by another name."""
    own = [result for result in found if result.ensemble == name]
    members, known = {result.members for result in own}, {result.combination for result in own}
    others = [r for r in found if r.ensemble != name and r.members in members and r.combination not in known]
    return list(together([*others, *own] if len(members) == 1 else own).values())


def _members(ensembles: Sequence[Result], results: Sequence[Result]) -> Group:
    """The members of ensembles of one kind, each as often as it takes for the mean over them."""
    singles = {(r.method, r.seed): r for r in results if r.ensemble is None and r.sigma == ensembles[0].sigma}
    for ensemble in ensembles:
        missing = [f"{method}-{seed}" for method, seed in ensemble.members if (method, seed) not in singles]
        if missing or not ensemble.members:
            raise InputError(
                f"{ensemble.method} at sigma {ensemble.sigma} must come with the results of all its members, missing: "
                f"{', '.join(missing) or 'all'}; certify them on the same images"
            )
    used = Counter(
        member for ensemble in {one.members: one for one in ensembles}.values() for member in ensemble.members
    )
    least = gcd(*used.values())
    return Group(tuple(singles[member] for member, times in used.items() for _ in range(times // least)))


def _with_members(found: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return ensembles, and every member of them once."""
    members = {member.name: member for member in _members(found, results).results}
    return [*found, *members.values()]


def methods_of(result: Result) -> list[str]:
    """Return the training methods of the members, each once."""
    return sorted({method for method, _ in result.members})


def names_of(result: Result) -> Row:
    """Return what tells an ensemble from the others."""
    return {"sigma": result.sigma, "ensemble": result.ensemble, "combination": result.combination}


def _against(
    group: Group, results: Sequence[Result], reference: str, beside: Callable[[_Teams], tuple[Sample, Sample]]
) -> Row:
    """Return the differences that :func:`ensembles` prints, those to what there is."""
    own = {result.members for result in group.results}
    same = [r for r in results if (r.sigma, r.combination) == (group.results[0].sigma, reference) and r.members in own]
    same = list({result.members: result for result in same}.values())
    comparable = group.results[0].combination != reference and len(same) == len(own)
    to_reference = {"reference": group.less(Group(tuple(same)))} if comparable else {}
    mean, best = beside(tuple(result.members for result in group.results))
    return to_reference | {"members": estimate(group.sample, mean), "best_member": estimate(group.sample, best)}


def _of_members(teams: _Teams, results: Sequence[Result]) -> tuple[Sample, Sample]:
    """The members' mean and the best member of each sub-ensemble, of the seeds that it is of."""
    singles = {(r.method, r.seed): r.rows for r in results if r.ensemble is None}
    acrs = {member: metrics.acr(singles[member]) for member in set().union(*teams)}
    seeds = [[seed for _, seed in members] for members in teams]
    means = [metrics.average_rows([singles[one] for one in members]) for members in teams]
    best = [singles[max(members, key=acrs.__getitem__)] for members in teams]
    return sample(means, seeds), sample(best, seeds)


def _weighting(group: Group, seconds: Mapping[str, float], figures: pd.DataFrame) -> Row:
    """Return our numbers of one row of :func:`weighting` and the paper's; ``None`` where not known."""
    first = group.results[0]
    times = [seconds.get(r.kind if r.seed is None else f"{r.method}-{r.seed}") for r in group.results]
    numbers = {name: group.numbers()[name] for name in ("clean_accuracy", "acr", "standard_error")}
    numbers |= {"standard_error_with_seeds": group.acr.error, "estimate": group.acr}
    numbers["seconds"] = None if None in times else sum(times) / len(times)
    alike = len({result.method for result in group.results}) == 1  # the paper has no mean over methods
    metric = {"clean_accuracy": "clean_accuracy", "acr": "acr", "seconds": "certificate_seconds"}
    return numbers | {
        f"paper_{name}": paper_value(figures, first.kind, first.sigma, metric[name]) if alike else None
        for name in metric
    }


def _set_note(found: Sequence[Result]) -> list[str]:
    return [SET] * any(result.scope == "set" for result in found)


def unsound_note(found: Sequence[Result]) -> list[str]:
    """Say what a dagger means, if there is one."""
    return [formatting.UNSOUND] * any(not result.sound for result in found)
