"""The tables of ensembles: against their members, by weights (the paper's Table 3), by number of members.

Every function takes groups of ``rs.reporting.results.grouped``: of ensembles and of all their members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import gcd, log2
from statistics import fmean
from typing import Any

import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Group, Groups, Result, best, paper_value, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import Row, Table, acr_cell, build_table, difference, marked, plain
from rs.statistics import metrics
from rs.statistics.comparison import Estimate, Sample, estimate, sample
from rs.statistics.resampling import with_fewer_draws
from rs.study.layout import model_name

Members = tuple[tuple[str, int], ...]
"""Training method and seed of each member of an ensemble."""

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
BEST_WEIGHTS = "Bold: the largest sound ACR of an ensemble, and every one that ties with it."
TIMES = (
    "Time: of one certificate, on our machine; of one sub-ensemble, since the others take as long. With scope "
    "per-image it includes computing the weights. A cascade asks its members in turn: members per draw is a mean over "
    "all draws, and its time one over some images."
)


def ensembles_table(groups: Groups, sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members, and against their combination ``reference``.

    Raises:
        InputError: If there is no ensemble at ``sigma``, or a member has no result.
    """
    shown = _ensembles(groups, sigma)
    results = _with_members(shown, groups[sigma])
    bests = best(shown)
    of_members = cache(lambda teams: samples_of_members(teams, groups[sigma]))
    rows = [
        {"sigma": sigma, "ensemble": group.first.ensemble, "combination": group.first.combination}
        | {"scope": group.first.scope, "sound": group.sound, "best": method in bests, "estimate": group.acr}
        | group.numbers
        | _differences(group, _reference(group, shown, reference), of_members)
        for method, group in shown.items()
    ]
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Scope": plain("scope"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr_cell,
        "to members' mean": difference("members"),
        "to best member": difference("best_member"),
        f"to {reference}": difference("reference"),
    }
    caption = (
        f"Ensembles at σ = {sigma}: ACR, and its difference to the mean of the members' ACRs, to the best member's and "
        f"to that of the same members combined by {reference}. {notes.about({sigma: shown})}"
    )
    text = [notes.CLEAN, notes.ERROR, notes.SEEDS, BEST, notes.TIES, BEST_MEMBER, notes.FAMILIES]
    text += [*notes.chosen(results), *notes.unsound(results), *_set_note(results), *notes.provenance_notes(results)]
    return build_table(caption, columns, rows, text)


def weighting_table(groups: Groups, sigma: float, seconds: Mapping[str, float], figures: pd.DataFrame) -> Table:
    """Return every combination of every ensemble's members, and no ensemble at all (the paper's Table 3).

    Args:
        groups: Of ensembles and members.
        sigma: Noise level.
        seconds: Time of one certificate by kind of ensemble, of a single model by ``method-seed``; where known.
        figures: Published figures (``rs.reporting.results``).
    Raises:
        InputError: As :func:`ensembles_table`.
    """
    shown = _ensembles(groups, sigma)
    results = _with_members(shown, groups[sigma])
    rows = []
    for name in dict.fromkeys(group.first.ensemble for group in shown.values()):
        combinations = {NONE: _members(_results_named(name, shown), groups[sigma])}
        combinations |= {str(group.first.combination): group for group in _combinations(name, shown)}
        bests = best(combinations)
        for combination, group in combinations.items():
            keys = {"sigma": sigma, "ensemble": name, "combination": combination, "sound": group.sound}
            rows.append(keys | {"best": combination in bests} | _weighting(group, seconds, figures))
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr_cell,
        "Members per draw": plain("members_per_draw", ".3g"),
        "Time": plain("seconds", ".3g", " s"),
    }
    if printed := any(row["paper_acr"] is not None for row in rows):
        columns["Clean accuracy, paper"] = plain("paper_clean_accuracy", ".1%")
        columns |= {"ACR, paper": plain("paper_acr", ".3f"), "Time, paper": plain("paper_seconds", ".3g", " s")}
    caption = f"Weights of ensembles at σ = {sigma}. {notes.about({sigma: shown})}"
    text = [notes.CLEAN, notes.ERROR, notes.SEEDS, BEST_WEIGHTS, notes.TIES, TIMES, notes.FAMILIES]
    text += [*notes.chosen(results), *notes.unsound(results), *_set_note(results)]
    text += [*notes.provenance_notes(results), *[notes.PAPER] * printed]
    return build_table(caption, columns, rows, text)


def sizes(groups: Groups, combination: str) -> pd.DataFrame:
    """Return ACR by number of members, of ensembles combined by ``combination``.

    Returns:
        Columns ``sigma kind ensemble members acr error_images error``, and with the prefix ``gain`` the difference to
        the members' mean ACR and its errors, image by image. ``kind`` names the training methods. One member: the mean
        over training seeds, for each method that is in an ensemble; it has no gain. ``error``: over images and training
        seeds, missing where one training is all there is.
    """
    points: list[tuple[Any, ...]] = []
    for sigma, methods in groups.items():
        chosen = families(methods, combination)
        for group in chosen:
            _members(group.results, methods)  # refuses an ensemble without its members
        for method in sorted({method for group in chosen for method in group.first.training_methods}):
            points.append((sigma, method, f"{method} x1", 1, methods[method].acr, None))
        for group in chosen:
            first = group.first
            mean, _ = samples_of_members([result.members for result in group.results], methods)
            keys = (sigma, " + ".join(first.training_methods), first.ensemble, len(first.members))
            points.append((*keys, group.acr, estimate(group.sample, mean)))
    names = ("acr", "error_images", "error", "gain", "gain_error_images", "gain_error")
    data = [(*keys, *_three(acr), *_three(gain)) for *keys, acr, gain in points]
    return pd.DataFrame(data, columns=["sigma", "kind", "ensemble", "members", *names])


def _three(one: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Return a value and its errors, or nothing three times."""
    return (None, None, None) if one is None else (one.value, one.error_images, one.error)


def equal_cost(groups: Groups, combination: str) -> pd.DataFrame:
    """Return ACR by cost of a certificate, of ensembles combined by ``combination``, of cascades and of their members.

    The cost is the number of evaluations of members for an image, e (n0 + draws) at e evaluations a draw
    (``rs.reporting.results.Result.members_per_draw``); the n0 draws that select the class cost as much as others.
    Costs are those of one model at all its draws and half octaves up and down, and of each classifier at all its draws;
    there are as many draws as the cost pays for, rounded down, and never fewer than n0.

    Returns:
        Columns ``sigma kind method members evaluations draws acr error_images error``; ``kind`` names the training
        methods, and ``acr`` is that of :func:`rs.statistics.resampling.with_fewer_draws`.
    Raises:
        InputError: If a member has no result, or rows lack their votes.
    """
    points: list[tuple[Any, ...]] = []
    everyone = [result.rows for result in results_of(groups)]
    n0, n = (int(metrics.common_budget(everyone, name)) for name in ("n0", "n"))
    for sigma, methods in groups.items():
        chosen = families(methods, combination)
        counted = dict.fromkeys(group.first.combination for group in methods.values() if _counted(group.first))
        chosen += [group for name in counted if name and name != combination for group in families(methods, name)]
        for group in chosen:
            _members(group.results, methods)  # refuses an ensemble without its members
        trained = sorted({method for group in chosen for method in group.first.training_methods})
        most = max((len(group.first.members) for group in chosen), default=1)
        for group in [*(methods[method] for method in trained), *chosen]:
            first = group.first
            keys = (sigma, " + ".join(first.training_methods) or first.name, first.name, max(1, len(first.members)))
            points += [(*keys, *point) for point in _by_cost(group, n0, n, most)]
    names = ("evaluations", "draws", "acr", "error_images", "error")
    return pd.DataFrame(points, columns=["sigma", "kind", "method", "members", *names])


def _counted(result: Result) -> bool:
    """Whether the rows say how often members were evaluated."""
    return "evaluations" in result.rows


def _by_cost(group: Group, n0: int, n: int, most: int) -> list[tuple[Any, ...]]:
    """Return evaluations, draws, ACR and its errors of a group, up to the cost of ``most`` members at all n draws."""
    each = fmean(result.members_per_draw for result in group.results)
    halves = range(-2 * int(log2(n0 + n)), 2 * int(log2(most)) + 2)
    costs = sorted({round((n0 + n) * 2 ** (half / 2)) for half in halves})
    draws = {cost: int(cost / each) - n0 for cost in costs}
    affordable = {cost: number for cost, number in draws.items() if n0 <= number < n} | {round(each * (n0 + n)): n}
    seeds = [result.seeds for result in group.results]
    fewer = zip(*(with_fewer_draws(frame, affordable.values()) for frame in group.rows), strict=True)
    return [
        (*point, *_three(estimate(sample(rows, seeds)))) for point, rows in zip(affordable.items(), fewer, strict=True)
    ]


def families(methods: Mapping[str, Group], combination: str) -> list[Group]:
    """Return of each kind of ensemble with ``combination`` the group with the most sub-ensembles."""
    largest: dict[str, Group] = {}
    for group in methods.values():
        if group.first.ensemble is not None and group.first.combination == combination:
            other = largest.get(group.first.kind)
            if other is None or len(other.results) < len(group.results):
                largest[group.first.kind] = group
    return list(largest.values())


def samples_of_members(teams: Sequence[Members], methods: Mapping[str, Group]) -> tuple[Sample, Sample]:
    """Return the members' mean and the best member of each ensemble, with the seeds of that ensemble.

    Args:
        teams: The members of each ensemble.
        methods: Groups that hold the members' results.
    """
    singles = {member: result.rows for member, result in models_by_member(methods).items()}
    acrs = {member: metrics.acr(singles[member]) for member in set().union(*teams)}
    seeds = [[seed for _, seed in members] for members in teams]
    means = [metrics.average_rows([singles[member] for member in members]) for members in teams]
    largest = [singles[max(members, key=acrs.__getitem__)] for members in teams]
    return sample(means, seeds), sample(largest, seeds)


def _ensembles(groups: Groups, sigma: float) -> dict[str, Group]:
    ensembles = {name: group for name, group in groups.get(sigma, {}).items() if group.first.ensemble is not None}
    if not ensembles:
        raise InputError(f"a table of ensembles needs at least one at sigma {sigma}, got none; certify ensembles first")
    return ensembles


def _results_named(name: str | None, ensembles: Mapping[str, Group]) -> list[Result]:
    return [result for group in ensembles.values() for result in group.results if result.ensemble == name]


def _combinations(name: str | None, ensembles: Mapping[str, Group]) -> list[Group]:
    """Return the combinations of an ensemble: its own, and of its very members those that go by another name."""
    named = [group for group in ensembles.values() if group.first.ensemble == name]
    members = {result.members for result in _results_named(name, ensembles)}
    if len(members) > 1:
        return named
    combinations = {group.first.combination for group in named}
    others = [
        Group((result,))
        for group in ensembles.values()
        for result in group.results
        if result.ensemble != name and result.members in members and result.combination not in combinations
    ]
    return [*others, *named]


def _reference(group: Group, ensembles: Mapping[str, Group], combination: str) -> Group | None:
    """Return the same members with another combination; ``None`` if it is the same, or some have no result."""
    if group.first.combination == combination:
        return None
    teams = tuple(result.members for result in group.results)
    others = [other for other in ensembles.values() if other.first.combination == combination]
    for other in others:
        if tuple(result.members for result in other.results) == teams:
            return other
    by_members = {result.members: result for other in others for result in other.results}
    return Group(tuple(by_members[members] for members in teams)) if by_members.keys() >= set(teams) else None


def models_by_member(methods: Mapping[str, Group]) -> dict[tuple[str, int | None], Result]:
    """Return the single models by training method and seed."""
    results = [result for group in methods.values() for result in group.results]
    return {(result.name, result.seed): result for result in results if result.ensemble is None}


def _members(ensembles: Sequence[Result], methods: Mapping[str, Group]) -> Group:
    """Return the members of ensembles of one kind, each as often as it takes for the mean over them."""
    singles = models_by_member(methods)
    for ensemble in ensembles:
        missing = [f"{method}-{seed}" for method, seed in ensemble.members if (method, seed) not in singles]
        if missing or not ensemble.members:
            raise InputError(
                f"{ensemble.name} at sigma {ensemble.sigma} must come with the results of all its members, missing: "
                f"{', '.join(missing) or 'all'}; certify them on the same images"
            )
    uses = Counter(member for members in {ensemble.members: None for ensemble in ensembles} for member in members)
    least = gcd(*uses.values())
    return Group(tuple(singles[member] for member, times in uses.items() for _ in range(times // least)))


def _with_members(ensembles: Mapping[str, Group], methods: Mapping[str, Group]) -> list[Result]:
    """Return the results of ensembles, and of every member of them once."""
    results = [result for group in ensembles.values() for result in group.results]
    members = {member.full_name: member for member in _members(results, methods).results}
    return [*results, *members.values()]


def _differences(
    group: Group, reference: Group | None, of_members: Callable[[tuple[Members, ...]], tuple[Sample, Sample]]
) -> Row:
    """Return the differences to the reference, if there is one, and to the members."""
    to_reference: Row = {} if reference is None else {"reference": group.difference_to(reference)}
    mean, largest = of_members(tuple(result.members for result in group.results))
    return to_reference | {"members": estimate(group.sample, mean), "best_member": estimate(group.sample, largest)}


def _weighting(group: Group, seconds: Mapping[str, float], figures: pd.DataFrame) -> Row:
    """Return our numbers of one row of :func:`weighting_table` and the paper's; ``None`` where not known."""
    first = group.first
    keys = [result.kind if result.seed is None else model_name(result.name, result.seed) for result in group.results]
    times = [seconds[key] for key in keys if key in seconds]
    numbers: Row = {name: group.numbers[name] for name in ("clean_accuracy", "acr", "standard_error")}
    numbers |= {"standard_error_with_seeds": group.acr.error, "estimate": group.acr}
    numbers["members_per_draw"] = fmean(result.members_per_draw for result in group.results)
    numbers["seconds"] = sum(times) / len(times) if len(times) == len(keys) else None
    alike = len({result.name for result in group.results}) == 1  # the paper has no mean over methods
    metric = {"clean_accuracy": "clean_accuracy", "acr": "acr", "seconds": "certificate_seconds"}
    return numbers | {
        f"paper_{name}": paper_value(figures, first.kind, first.sigma, metric[name]) if alike else None
        for name in metric
    }


def _set_note(results: Sequence[Result]) -> list[str]:
    return [SET] * any(result.scope == "set" for result in results)
