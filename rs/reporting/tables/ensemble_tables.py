"""The tables of ensembles: against their members, by weights (the paper's Table 3), and by cost.

Every function takes groups of ``rs.reporting.results.grouped``: of ensembles and of all their
members.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Group, Groups, Result, best, budget_of, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.formatting import (
    Row,
    Table,
    acr_cell,
    build_table,
    difference,
    marked,
    plain,
)
from rs.statistics.comparison import Estimate, Sample, estimate, fewest_seeds_of, sample
from rs.statistics.resampling import with_fewer_draws
from rs.study.ensembles import Members
from rs.study.layout import model_name

GAIN_COLUMNS = ["gain", "gain_error_images", "gain_error"]
TIMES = (
    "Time: seconds of one certificate on our machine, including the choice of weights where images "
    "choose them. The time of a cascade is a mean over some images, its members per sample a mean "
    "over all."
)


def ensembles_table(groups: Groups, sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members and the combination ``reference``.

    Raises:
        InputError: If a member has no result.
    """
    ensembles = _ensembles(groups[sigma])
    rows = _rows(ensembles)
    for row, group in zip(rows, ensembles.values(), strict=True):
        other = with_combination(group, ensembles, reference)
        if other is not None:
            row["reference"] = group.difference_to(other)
        mean, largest = samples_of_members(group.member_sets, groups[sigma])
        row["members"] = estimate(group.sample, mean)
        row["best_member"] = estimate(group.sample, largest)
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Scope": plain("scope"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr_cell,
        "minus members' mean": difference("members"),
        "minus best member": difference("best_member"),
        f"minus {reference}": difference("reference"),
    }
    caption = (
        f"Ensembles at σ = {sigma}: ACR, and its differences from the mean ACR of the members, "
        "from the ACR of the best member, and from the ACR of the same members combined by "
        f"{reference}. {notes.about({sigma: ensembles})}"
    )
    text = [notes.ERRORS, *notes.of_results(results_of({sigma: groups[sigma]}))]
    return build_table(caption, columns, rows, text)


def weighting_table(groups: Groups, sigma: float, seconds: Mapping[str, float]) -> Table:
    """Return ACR and time of every combination of every ensemble (the paper's Table 3).

    Args:
        groups: Of ensembles and members.
        sigma: Noise level.
        seconds: Time of one certificate by kind of ensemble, where known.
    """
    ensembles = _ensembles(groups[sigma])
    rows = _rows(ensembles)
    for row, group in zip(rows, ensembles.values(), strict=True):
        row["seconds"] = seconds.get(group.first.kind)
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr_cell,
        "Members per sample": plain("members_per_draw", ".3g"),
        "Time": plain("seconds", ".3g", " s"),
    }
    caption = f"Weights of ensembles at σ = {sigma}. {notes.about({sigma: ensembles})}"
    text = [notes.ERRORS, TIMES, *notes.of_results(results_of({sigma: ensembles}))]
    return build_table(caption, columns, rows, text)


def _ensembles(methods: Mapping[str, Group]) -> dict[str, Group]:
    return {name: group for name, group in methods.items() if group.first.ensemble is not None}


def _rows(ensembles: Mapping[str, Group]) -> list[Row]:
    """Return what names and marks each ensemble, and its ACR."""
    bests = best(ensembles)
    rows = []
    for name, group in ensembles.items():
        row: Row = {
            "sigma": group.first.sigma,
            "ensemble": group.first.ensemble,
            "combination": group.first.combination,
            "scope": group.first.scope,
            "sound": group.sound,
            "best": name in bests,
            "estimate": group.acr,
            "members_per_draw": group.members_per_draw,
        }
        rows.append(row | group.numbers)
    return rows


def acr_by_size(groups: Groups, combination: str) -> pd.DataFrame:
    """Tabulate ACR against the number of members, of ensembles combined by ``combination``.

    Returns:
        Columns ``sigma kind ensemble members acr error_images error``, and image by image the
        differences from the members' mean ACR, with the prefix ``gain``, and to the best member's,
        with ``to_best``. ``kind`` names the training methods. One member: the mean over training
        seeds, for each method that is in an ensemble, without differences. ``error``: over images
        and training seeds, missing where there is only one training run.
    """
    records: list[Row] = []
    for sigma, methods in groups.items():
        ensembles = families(methods, combination)
        for method in _methods_in(ensembles):
            record = {"sigma": sigma, "kind": method, "ensemble": f"{method} x1", "members": 1}
            records.append(record | _estimate_columns("acr", methods[method].acr))
        for group in ensembles:
            first = group.first
            mean, largest = samples_of_members(group.member_sets, methods)
            record = {"sigma": sigma, "kind": " + ".join(first.training_methods)}
            record |= {"ensemble": first.ensemble, "members": len(first.members)}
            record |= _estimate_columns("acr", group.acr)
            record |= _estimate_columns("gain", estimate(group.sample, mean))
            record |= _estimate_columns("to_best", estimate(group.sample, largest))
            records.append(record)
    names = ["sigma", "kind", "ensemble", "members", "acr", "error_images", "error"]
    names += GAIN_COLUMNS
    names += ["to_best", "to_best_error_images", "to_best_error"]
    return pd.DataFrame(records, columns=names)


def gains(groups: Groups, radii: Mapping[Any, Sequence[float]]) -> pd.DataFrame:
    """Return what the best of the largest ensembles add to the best single model.

    Args:
        groups: Of single models and ensembles; every noise level has a single model.
        radii: Where certified accuracies are compared, by noise level.

    Returns:
        Columns ``sigma method single radius gain error_images error``: of the best ensemble of one
        method and of the best of several methods.
    """
    records: list[Row] = []
    for sigma, methods in groups.items():
        best_of: dict[tuple[int, bool], Group] = {}
        for group in sorted(methods.values(), key=lambda group: group.acr.value):
            best_of[len(group.first.members), len(group.first.training_methods) > 1] = group
        single = best_of[0, False]
        size = max(best_of)[0]
        for is_mixed in (False, True):
            ensemble = best_of.get((size, is_mixed))
            if size == 0 or ensemble is None:
                continue
            for radius in radii[sigma]:
                scores = ensemble.sample_of(ensemble.rows, radius)
                gain = estimate(scores, single.sample_of(single.rows, radius))
                record = {"sigma": sigma, "method": ensemble.first.name}
                record |= {"single": single.first.name, "radius": radius}
                record |= {"gain": gain.value, "error_images": gain.error_images}
                records.append(record | {"error": gain.error})
    names = ["sigma", "method", "single", "radius", "gain", "error_images", "error"]
    return pd.DataFrame(records, columns=names)


def _estimate_columns(name: str, value: Estimate) -> Row:
    """Return a value and its errors as columns; those of an ACR have names without a prefix."""
    prefix = "" if name == "acr" else f"{name}_"
    return {
        name: value.value,
        f"{prefix}error_images": value.error_images,
        f"{prefix}error": value.error,
    }


def _methods_in(ensembles: Sequence[Group]) -> list[str]:
    """Return the training methods of ensembles, each once, sorted."""
    methods: set[str] = set()
    for group in ensembles:
        methods.update(group.first.training_methods)
    return sorted(methods)


def equal_cost(groups: Groups, combination: str) -> pd.DataFrame:
    """Return ACR by cost of a certificate, of ensembles, cascades and their members.

    The cost is the number of evaluations of members for an image, e (n0 + draws) at e evaluations
    per draw (``rs.reporting.results.Result.members_per_draw``); the n0 draws that select the class
    cost as much as others. Costs are those of one model at all its draws and half octaves up and
    down, and of each classifier at all its draws; there are as many draws as the cost pays for,
    rounded down, and never fewer than n0.

    Args:
        groups: Of ensembles and all their members.
        combination: Of the ensembles that are not cascades.

    Returns:
        Columns ``sigma kind method members evaluations draws acr error_images error gain
        gain_error_images gain_error``; ``kind`` names the training methods, and ``acr`` is that of
        :func:`rs.statistics.resampling.with_fewer_draws`. The best ensemble of a kind at a cost has
        a gain: the difference from the best single model of its methods at that cost, image by
        image.
    Raises:
        InputError: If rows lack their votes.
    """
    records: list[Row] = []
    samples: list[Sample] = []
    n0 = int(budget_of(groups, "n0"))
    n = int(budget_of(groups, "n"))
    for sigma, methods in groups.items():
        # ensembles of the combination, then those whose rows count their evaluations
        combinations = {combination: None}
        for group in methods.values():
            if "evaluations" in group.first.rows:
                combinations[str(group.first.combination)] = None
        ensembles: list[Group] = []
        for name in combinations:
            ensembles += families(methods, name)
        singles = [methods[method] for method in _methods_in(ensembles)]
        most = max([len(group.first.members) for group in ensembles], default=1)
        for group in [*singles, *ensembles]:
            first = group.first
            about = {"sigma": sigma, "kind": " + ".join(first.training_methods) or first.name}
            about |= {"method": first.name, "members": max(1, len(first.members))}
            for evaluations, draws, scores in _by_cost(group, n0, n, most):
                record = about | {"evaluations": evaluations, "draws": draws}
                records.append(record | _estimate_columns("acr", estimate(scores)))
                samples.append(scores)
    names = ["sigma", "kind", "method", "members", "evaluations", "draws"]
    frame = pd.DataFrame(records, columns=[*names, "acr", "error_images", "error", *GAIN_COLUMNS])
    for _, points in frame.groupby(["sigma", "evaluations"]):
        singles_there = points[points["members"] == 1]
        for kind, rivals in points[points["members"] > 1].groupby("kind"):
            of_members = singles_there[singles_there["kind"].isin(str(kind).split(" + "))]
            if not of_members.empty:
                best_ensemble = rivals["acr"].idxmax()
                gain = estimate(samples[best_ensemble], samples[of_members["acr"].idxmax()])
                columns = _estimate_columns("gain", gain)
                frame.loc[best_ensemble, GAIN_COLUMNS] = list(columns.values())
    return frame


def _by_cost(group: Group, n0: int, n: int, most: int) -> list[tuple[int, int, Sample]]:
    """Return evaluations, draws and scores of a group, up to ``most`` members at all n draws."""
    members_per_draw = group.members_per_draw
    halves = range(-2 * int(math.log2(n0 + n)), 2 * int(math.log2(most)) + 2)
    draws_by_cost = {}
    for cost in sorted({round((n0 + n) * 2 ** (half / 2)) for half in halves}):
        draws = int(cost / members_per_draw) - n0
        if n0 <= draws < n:
            draws_by_cost[cost] = draws
    draws_by_cost[round(members_per_draw * (n0 + n))] = n
    fewer = [with_fewer_draws(frame, draws_by_cost.values()) for frame in group.rows]
    points = []
    for (cost, draws), rows in zip(draws_by_cost.items(), zip(*fewer, strict=True), strict=True):
        # what is compared has the same cost, not the same number of draws
        scores = replace(group.sample_of(rows), terms=group.sample.terms)
        points.append((cost, draws, scores))
    return points


def families(methods: Mapping[str, Group], combination: str) -> list[Group]:
    """Return the group with the most sub-ensembles of each kind of ensemble of a combination."""
    largest: dict[str, Group] = {}
    for group in methods.values():
        if group.first.ensemble is not None and group.first.combination == combination:
            other = largest.get(group.first.kind)
            if other is None or len(other.results) < len(group.results):
                largest[group.first.kind] = group
    return list(largest.values())


def samples_of_members(
    member_sets: Sequence[Members], methods: Mapping[str, Group]
) -> tuple[Sample, Sample]:
    """Return the mean over members and the best member of each ensemble, with its seeds.

    Args:
        member_sets: The members of each ensemble.
        methods: Groups that hold the members' results.
    Raises:
        InputError: If a member has no result.
    """
    singles = {}
    for group in methods.values():
        for result in group.results:
            if result.ensemble is None:
                singles[result.name, result.seed] = result
    members = sorted(set().union(*member_sets))
    missing = [model_name(*member) for member in members if member not in singles]
    if missing:
        raise InputError(
            f"ensembles must come with the results of all members, missing: {', '.join(missing)}"
        )
    rows = [singles[member].rows for member in members]
    every = sample(rows, [[seed] for _, seed in members])
    position_of = {member: position for position, member in enumerate(members)}
    means = []
    largest = []
    seeds = []
    for member_set in member_sets:
        scores = every.scores[[position_of[member] for member in member_set]]
        means.append(scores.mean(axis=0))
        largest.append(scores[scores.mean(axis=1).argmax()])
        seeds.append(frozenset(seed for _, seed in member_set))
    fewest = fewest_seeds_of(member_sets)
    of_means = Sample(every.terms, np.stack(means), tuple(seeds), fewest)
    of_largest = Sample(every.terms, np.stack(largest), tuple(seeds), fewest)
    return of_means, of_largest


def with_combination(group: Group, methods: Mapping[str, Group], combination: str) -> Group | None:
    """Return the same members with another combination; ``None`` if some have no such result."""
    if group.first.combination == combination:
        return None
    by_members: dict[Members, Result] = {}
    for other in methods.values():
        if other.first.combination == combination:
            by_members |= dict(zip(other.member_sets, other.results, strict=True))
    if not by_members.keys() >= set(group.member_sets):
        return None
    return Group(tuple(by_members[members] for members in group.member_sets))
