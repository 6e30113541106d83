"""The tables of ensembles: against their members, by weights (the paper's Table 3), by number of
members.

Every function takes groups of ``rs.reporting.results.grouped``: of ensembles and of all their
members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import log2
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Group, Groups, Result, best, results_of
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
from rs.statistics import metrics
from rs.statistics.comparison import Estimate, Sample, estimate, fewest_seeds_of, sample
from rs.statistics.resampling import with_fewer_draws
from rs.study.layout import model_name

Members = tuple[tuple[str, int], ...]
"""Training method and seed of each member of an ensemble."""

GAIN = ("gain", "gain_error_images", "gain_error")
"""Columns of a difference and its errors over images, and over images and training seeds."""

TIMES = (
    "Time: of one certificate, on our machine, with that of weights by the image; of a cascade, "
    "over some images, but "
    "its members per draw over all."
)


def ensembles_table(groups: Groups, sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members, and against their combination
    ``reference``.

    Raises:
        InputError: If a member has no result.
    """
    ensembles = _ensembles(groups[sigma])
    of_members = cache(lambda teams: samples_of_members(teams, groups[sigma]))
    rows = [
        row | _differences(group, with_combination(group, ensembles, reference), of_members)
        for row, group in zip(_rows(ensembles), ensembles.values(), strict=True)
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
        f"Ensembles at σ = {sigma}: ACR, and its difference to the mean of the members' ACRs, to "
        "the best member's and "
        f"to that of the same members combined by {reference}. {notes.about({sigma: ensembles})}"
    )
    text = [notes.ERRORS, *notes.of_results(results_of({sigma: groups[sigma]}))]
    return build_table(caption, columns, rows, text)


def weighting_table(groups: Groups, sigma: float, seconds: Mapping[str, float]) -> Table:
    """Return ACR and time of every combination of every ensemble's members (the paper's Table 3).

    Args:
        groups: Of ensembles and members.
        sigma: Noise level.
        seconds: Time of one certificate by kind of ensemble, where known.
    """
    ensembles = _ensembles(groups[sigma])
    rows = [
        row | {"seconds": seconds.get(group.first.kind)}
        for row, group in zip(_rows(ensembles), ensembles.values(), strict=True)
    ]
    columns = {
        "Ensemble": plain("ensemble"),
        "Combination": marked("combination"),
        "Clean accuracy": plain("clean_accuracy", ".1%"),
        "ACR": acr_cell,
        "Members per draw": plain("members_per_draw", ".3g"),
        "Time": plain("seconds", ".3g", " s"),
    }
    caption = f"Weights of ensembles at σ = {sigma}. {notes.about({sigma: ensembles})}"
    text = [notes.ERRORS, TIMES, *notes.of_results(results_of({sigma: ensembles}))]
    return build_table(caption, columns, rows, text)


def _rows(ensembles: Mapping[str, Group]) -> list[Row]:
    """Return what names and marks each ensemble, and its ACR."""
    bests = best(ensembles)
    return [
        {
            "sigma": group.first.sigma,
            "ensemble": group.first.ensemble,
            "combination": group.first.combination,
        }
        | {
            "scope": group.first.scope,
            "sound": group.sound,
            "best": label in bests,
            "estimate": group.acr,
        }
        | {"members_per_draw": fmean(result.members_per_draw for result in group.results)}
        | group.numbers
        for label, group in ensembles.items()
    ]


def sizes(groups: Groups, combination: str) -> pd.DataFrame:
    """Return ACR by number of members, of ensembles combined by ``combination``.

    Returns:
        Columns ``sigma kind ensemble members acr error_images error``, and image by image the
        differences to the members' mean ACR, with the prefix ``gain``, and to the best member's,
        with ``to_best``. ``kind`` names the training methods. One member: the mean over training
        seeds, for each method that is in an ensemble; it has no differences. ``error``: over images
        and training seeds, missing where one training is all there is.
    """
    points: list[tuple[Any, ...]] = []
    for sigma, methods in groups.items():
        chosen = families(methods, combination)
        for method in sorted(
            {method for group in chosen for method in group.first.training_methods}
        ):
            points.append((sigma, method, f"{method} x1", 1, methods[method].acr, None, None))
        for group in chosen:
            first = group.first
            members = samples_of_members([result.members for result in group.results], methods)
            keys = (sigma, " + ".join(first.training_methods), first.ensemble, len(first.members))
            points.append(
                (*keys, group.acr, *(estimate(group.sample, scores) for scores in members))
            )
    data = [
        (*keys, *_three(acr), *_three(gain), *_three(to_best))
        for *keys, acr, gain, to_best in points
    ]
    names = [
        "acr",
        "error_images",
        "error",
        *GAIN,
        "to_best",
        "to_best_error_images",
        "to_best_error",
    ]
    return pd.DataFrame(data, columns=["sigma", "kind", "ensemble", "members", *names])


def gains(groups: Groups, radii: Mapping[Any, Sequence[float]]) -> pd.DataFrame:
    """Return what the best of the largest ensembles, of one method and of several, add to the best
    single model.

    Args:
        groups: Of single models and ensembles; every noise level has a single model.
        radii: Where certified accuracies are compared, by noise level.

    Returns:
        Columns ``sigma method single radius gain error_images error``.
    """
    points: list[tuple[Any, ...]] = []
    for sigma, methods in groups.items():
        best = {
            (len(group.first.members), len(group.first.training_methods) > 1): group
            for group in sorted(methods.values(), key=lambda group: group.acr.value)
        }
        single, size = best[0, False], max(best)[0]
        ensembles = [best[kind] for kind in ((size, False), (size, True)) if size and kind in best]
        for group, radius in product(ensembles, radii[sigma]):
            compared = [side.sample_of(side.rows, radius) for side in (group, single)]
            points.append(
                (sigma, group.first.name, single.first.name, radius, *_three(estimate(*compared)))
            )
    return pd.DataFrame(
        points, columns=["sigma", "method", "single", "radius", "gain", "error_images", "error"]
    )


def _three(acr: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Return a value and its errors, or nothing three times."""
    return (None, None, None) if acr is None else (acr.value, acr.error_images, acr.error)


def equal_cost(groups: Groups, combination: str) -> pd.DataFrame:
    """Return ACR by cost of a certificate, of ensembles combined by ``combination``, of cascades
    and of their members.

    The cost is the number of evaluations of members for an image, e (n0 + draws) at e evaluations a
    draw (``rs.reporting.results.Result.members_per_draw``); the n0 draws that select the class cost
    as much as others. Costs are those of one model at all its draws and half octaves up and down,
    and of each classifier at all its draws; there are as many draws as the cost pays for, rounded
    down, and never fewer than n0.

    Returns:
        Columns ``sigma kind method members evaluations draws acr error_images error gain
        gain_error_images gain_error``; ``kind`` names the training methods, and ``acr`` is that of
        :func:`rs.statistics.resampling.with_fewer_draws`. The best ensemble of a kind at a cost has
        a gain: the difference to the best single model of its methods at that cost, image by image.
    Raises:
        InputError: If rows lack their votes.
    """
    points: list[tuple[Any, ...]] = []
    terms = [result.terms for result in results_of(groups)]
    n0, n = (int(metrics.common_budget(terms, name)) for name in ("n0", "n"))
    for sigma, methods in groups.items():
        chosen = families(methods, combination)
        counted = dict.fromkeys(
            group.first.combination
            for group in methods.values()
            if "evaluations" in group.first.rows
        )
        chosen += [
            group
            for name in counted
            if name and name != combination
            for group in families(methods, name)
        ]
        trained = sorted({method for group in chosen for method in group.first.training_methods})
        most = max((len(group.first.members) for group in chosen), default=1)
        for group in [*(methods[method] for method in trained), *chosen]:
            first = group.first
            keys = (
                sigma,
                " + ".join(first.training_methods) or first.name,
                first.name,
                max(1, len(first.members)),
            )
            by_cost = _by_cost(group, n0, n, most)
            points += [
                (*keys, *cost, *_three(estimate(scores)), scores) for cost, scores in by_cost
            ]
    names = ("evaluations", "draws", "acr", "error_images", "error", "scores")
    frame = pd.DataFrame(points, columns=["sigma", "kind", "method", "members", *names])
    return frame.drop(columns="scores").join(_gains_at_cost(frame))


def _gains_at_cost(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at each cost what the best ensemble of a kind adds to the best single model of its
    methods.
    """
    gains: dict[Any, tuple[float | None, ...]] = {}
    for _, points in frame.groupby(["sigma", "evaluations"]):
        singles = points[points["members"] == 1]
        for kind, ensembles in points[points["members"] > 1].groupby("kind"):
            sides = [ensembles, singles[singles["kind"].isin(str(kind).split(" + "))]]
            if not sides[1].empty:
                best, single = (side["acr"].idxmax() for side in sides)
                gains[best] = _three(estimate(*frame["scores"][[best, single]]))
    return pd.DataFrame.from_dict(gains, orient="index", columns=GAIN)


def _by_cost(group: Group, n0: int, n: int, most: int) -> list[tuple[tuple[int, int], Sample]]:
    """Return evaluations and draws with the scores of a group, up to the cost of ``most`` members
    at all n draws.
    """
    each = fmean(result.members_per_draw for result in group.results)
    halves = range(-2 * int(log2(n0 + n)), 2 * int(log2(most)) + 2)
    costs = sorted({round((n0 + n) * 2 ** (half / 2)) for half in halves})
    draws = {cost: int(cost / each) - n0 for cost in costs}
    affordable = {cost: number for cost, number in draws.items() if n0 <= number < n} | {
        round(each * (n0 + n)): n
    }
    fewer = zip(
        *(with_fewer_draws(frame, affordable.values()) for frame in group.rows), strict=True
    )
    # what is compared has the same cost, not the same number of draws
    samples = [replace(group.sample_of(rows), terms=group.sample.terms) for rows in fewer]
    return list(zip(affordable.items(), samples, strict=True))


def families(methods: Mapping[str, Group], combination: str) -> list[Group]:
    """Return of each kind of ensemble with ``combination`` the group with the most sub-ensembles."""
    largest: dict[str, Group] = {}
    for group in methods.values():
        if group.first.ensemble is not None and group.first.combination == combination:
            other = largest.get(group.first.kind)
            if other is None or len(other.results) < len(group.results):
                largest[group.first.kind] = group
    return list(largest.values())


def samples_of_members(
    teams: Sequence[Members], methods: Mapping[str, Group]
) -> tuple[Sample, Sample]:
    """Return the members' mean and the best member of each ensemble, with the seeds of that
    ensemble.

    Args:
        teams: The members of each ensemble.
        methods: Groups that hold the members' results.
    Raises:
        InputError: If a member has no result.
    """
    singles, members = models_by_member(methods), sorted(set().union(*teams))
    missing = [model_name(*member) for member in members if member not in singles]
    if missing:
        raise InputError(
            f"ensembles must come with the results of all members, missing: {', '.join(missing)}"
        )
    every = sample([singles[member].rows for member in members], [[seed] for _, seed in members])
    scores = dict(zip(members, every.scores, strict=True))
    seeds = tuple(frozenset(seed for _, seed in team) for team in teams)
    means = [np.mean([scores[member] for member in team], axis=0) for team in teams]
    largest = [scores[max(team, key=lambda member: scores[member].mean())] for team in teams]
    fewest = fewest_seeds_of(teams)
    of_means = Sample(every.terms, np.stack(means), seeds, fewest)
    of_largest = Sample(every.terms, np.stack(largest), seeds, fewest)
    return of_means, of_largest


def _ensembles(methods: Mapping[str, Group]) -> dict[str, Group]:
    return {name: group for name, group in methods.items() if group.first.ensemble is not None}


def with_combination(group: Group, methods: Mapping[str, Group], combination: str) -> Group | None:
    """Return the same members with another combination; ``None`` if it is the same, or some have no
    result.
    """
    if group.first.combination == combination:
        return None
    teams = tuple(result.members for result in group.results)
    others = [other for other in methods.values() if other.first.combination == combination]
    for other in others:
        if tuple(result.members for result in other.results) == teams:
            return other
    by_members = {result.members: result for other in others for result in other.results}
    return (
        Group(tuple(by_members[members] for members in teams))
        if by_members.keys() >= set(teams)
        else None
    )


def models_by_member(methods: Mapping[str, Group]) -> dict[tuple[str, int | None], Result]:
    """Return the single models by training method and seed."""
    results = [result for group in methods.values() for result in group.results]
    return {(result.name, result.seed): result for result in results if result.ensemble is None}


def _differences(
    group: Group,
    reference: Group | None,
    of_members: Callable[[tuple[Members, ...]], tuple[Sample, Sample]],
) -> Row:
    """Return the differences to the reference, if there is one, and to the members."""
    to_reference: Row = {} if reference is None else {"reference": group.difference_to(reference)}
    mean, largest = of_members(tuple(result.members for result in group.results))
    return to_reference | {
        "members": estimate(group.sample, mean),
        "best_member": estimate(group.sample, largest),
    }
