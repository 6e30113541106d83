"""The theory of ensembles in tables: single against mixed, variances, and bounds beside what was measured.

``spreads`` and ``bounds`` hold the numbers of ``rs.statistics.ensemble_variance``, means over images; may be empty:

- ``spreads``: ``sigma ensemble members source images alpha beta variance within across``, means over the wrong classes
  too. ``members`` are those that were measured, of all ensembles of that kind. ``source`` says whose margins these are:
  ``perturbed`` copies of the members, or members ``trained`` independently; ``within`` and ``across`` are NaN where
  there is no such pair.
- ``bounds``: ``sigma ensemble members combination images bound bound_minimum measured other_class``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import comb

import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Group, Groups, Result, results_of
from rs.reporting.tables import notes
from rs.reporting.tables.ensemble_tables import families
from rs.reporting.tables.formatting import EMPTY, Cell, Column, Row, Table, build_table, difference, marked, plain
from rs.statistics.certificate import parse_counts
from rs.statistics.ensemble_variance import average_variance_bound
from rs.study.ensembles import kind_of, trained_as

EXPECTED = (
    "Help is expected where the mixed ensemble has the larger lower bound. Bounds may order two ensembles otherwise "
    "than the probabilities below which they lie. A tie leaves the expectation open."
)
FIRST = "Variances, covariances and bounds are of the first of all ensembles of as many members of the same methods."
ALL_VOTED = "in all its images and other draws"
SOME_VOTED = (
    "in other draws, over the images with votes alone: the n draws of the others were skipped (shortcut), as the first "
    "n₀ had got them wrong"
)
"""Whose share of votes a table has."""


def mixed_table(groups: Groups, combination: str, spreads: pd.DataFrame, bounds: pd.DataFrame) -> Table:
    """Return mixed ensembles against those of as many members of one of their methods, and what theory expected."""
    ensembles = [group for methods in groups.values() for group in families(methods, combination)]
    pairs = [(a, b) for a in ensembles for b in ensembles if _rivals(a.first, b.first)]
    rows = [_rivalry(a, b, spreads, bounds) for a, b in pairs]
    columns = {
        "Mixed ensemble": marked("mixed"),
        "Ensemble of one method": marked("single"),
        "σ": plain("sigma"),
        "Difference of ACR": difference("acr"),
        "Verdict": plain("verdict"),
        "Lower bounds": _both("bound", ".3f"),
        "Help expected": plain("expected"),
        "Expectation": plain("expectation"),
        "Covariances": _both("covariance", ".4f"),
    }
    caption = (
        f"Mixed ensembles against as many members of one method, combined by {combination}; mixed first. Lower bounds: "
        "Chebyshev's, on the probability that a noisy image gets its label. Covariances: of the margins of two members "
        "(perturbed copies), mean over pairs, with the difference in brackets. Difference of ACR: ± its paired "
        "standard error over the same images; in square brackets that over images and training seeds."
    )
    shown: Groups = {}
    for group in chain.from_iterable(pairs):
        shown.setdefault(group.first.sigma, {})[group.first.name] = group
    caption += f" {notes.about(shown)}" if pairs else ""
    results = results_of(shown)
    text = [notes.TIES, notes.FAMILIES, EXPECTED, FIRST, *notes.unsound(results), *notes.provenance_notes(results)]
    return build_table("tab:mixed", caption, columns, rows, text)


def theory_table(spreads: pd.DataFrame, groups: Groups) -> Table:
    """Return how the members of each ensemble vary, alone and together, and the paper's bound for their average.

    Raises:
        InputError: If no result says the members of an ensemble.
    """
    results = results_of(groups)
    rows = [row | _average(row, results) for row in spreads.to_dict("records")]
    columns = {
        "Ensemble": plain("members"),
        "σ": plain("sigma"),
        "Source": plain("source"),
        "Images": plain("images"),
        **{name.capitalize(): plain(name, ".4f") for name in ("alpha", "beta", "variance", "within", "across")},
        "Average": plain("average", ".4f"),
        "Bound": plain("average_bound", ".4f"),
    }
    caption = (
        "How the margins of members (probability of the label less that of a wrong class) vary with the noise; means "
        "over images and wrong classes. Source: perturbed copies of the members, or members trained independently. "
        "Alpha: largest variance of a member. Beta: largest covariance of two. Variance: mean over members. Within, "
        "Across: mean covariance of two members of one method, and of two methods. Average: variance of the mean "
        "margin of all L members. Bound: the paper's on it, beta + (alpha - beta) / L."
    )
    return build_table("tab:theory", caption, columns, rows, [FIRST])


def bounds_table(bounds: pd.DataFrame, groups: Groups) -> Table:
    """Return Chebyshev's lower bounds on the probability of the label beside measured shares of draws and of votes."""
    by_members = {(r.sigma, trained_as(r.members), r.combination): r for r in results_of(groups) if r.members}
    records = bounds.to_dict("records")
    results = [by_members.get((row["sigma"], row["members"], row["combination"])) for row in records]
    rows = [row | _votes(result) for row, result in zip(records, results, strict=True)]
    skipped = any(row["votes_unknown"] for row in rows)
    columns = {
        "Ensemble": plain("members"),
        "Combination": plain("combination"),
        "σ": plain("sigma"),
        "Images": plain("images"),
        "Lower bound": plain("bound", ".3f"),
        "Lower bound, paper's form": plain("bound_minimum", ".3f"),
        "Share of draws": plain("measured", ".3f"),
        "Share of votes": plain("votes", ".3f"),
        **({"Images with votes": _with_votes} if skipped else {}),
        "Other class": plain("other_class", ".1%"),
    }
    caption = (
        "Probability that the ensemble gives a noisy image its label; means over images. Lower bound: Chebyshev's, "
        "with the mean margin of the ensemble; in the paper's form, with the smallest mean margin of a member. Share "
        "of draws: how often the label wins in the very draws of the bound, so never below it; they are others than "
        "those that chose the weights. Share of votes: the label's votes in certification, "
        f"{SOME_VOTED if skipped else ALL_VOTED}. Other class: share of the images whose weights come from the margins "
        "of another class than the label."
    )
    text = [FIRST, *notes.provenance_notes(result for result in results if result is not None)]
    return build_table("tab:bounds", caption, columns, rows, text)


def _rivals(a: Result, b: Result) -> bool:
    """Whether ``a`` is mixed and ``b`` of as many members of one of its methods."""
    alike = a.sigma == b.sigma and len(a.members) == len(b.members)
    return alike and len(b.training_methods) == 1 and set(b.training_methods) < set(a.training_methods)


def _rivalry(a: Group, b: Group, spreads: pd.DataFrame, bounds: pd.DataFrame) -> Row:
    """Return the numbers of one row of :func:`mixed_table`."""
    mixed, single = a.first, b.first
    row: Row = {"sigma": mixed.sigma, "mixed": mixed.ensemble, "single": single.ensemble, "sound": a.sound and b.sound}
    row["acr"] = acr = a.difference_to(b)
    for side, result in (("mixed", mixed), ("single", single)):
        names: Row = {"sigma": result.sigma, "ensemble": kind_of(result.members)}
        row[f"bound_{side}"] = _find(bounds, names | {"combination": result.combination}).get("bound")
        row[f"covariance_{side}"] = _pair_covariance(_find(spreads, names | {"source": "perturbed"}), result)
    row["verdict"] = "tie" if acr.tie else "helped" if acr.value > 0 else "hurt"
    return row | _expectation(row["bound_mixed"], row["bound_single"], row["verdict"])


def _expectation(mixed: float | None, single: float | None, verdict: str) -> Row:
    """Return whether help was expected and came; ``None`` without bounds.

    >>> _expectation(0.9, 0.8, "hurt")
    {'expected': 'yes', 'expectation': 'not met'}
    """
    if mixed is None or single is None:
        return {"expected": None, "expectation": None}
    expected = "yes" if mixed > single else "no" if mixed < single else "neither"
    observed = {"helped": "yes", "hurt": "no"}.get(verdict)
    undecided = observed is None or expected == "neither"
    met = "met" if observed == expected else "not met"
    return {"expected": expected, "expectation": "open" if undecided else met}


def _find(frame: pd.DataFrame, names: Row) -> Row:
    """Return the row with these values, or an empty one."""
    rows = frame.to_dict("records")
    return next((row for row in rows if all(row[name] == value for name, value in names.items())), {})


def _pair_covariance(spread: Row, result: Result) -> float | None:
    """Return the mean covariance of two members, over all pairs."""
    pairs = comb(len(result.members), 2)
    within = sum(comb(count, 2) for count in Counter(method for method, _ in result.members).values())
    if not spread or not pairs:
        return None
    parts = {"within": within, "across": pairs - within}
    return sum(spread[name] * count for name, count in parts.items() if count) / pairs


def _average(spread: Row, results: Sequence[Result]) -> Row:
    """Return the variance of the members' average, and the paper's bound on it."""
    same = [r for r in results if r.members and (r.sigma, kind_of(r.members)) == (spread["sigma"], spread["ensemble"])]
    if not same:
        raise InputError(
            f"spreads of {spread['ensemble']} at sigma {spread['sigma']} need a result that says its members, got none"
        )
    members = len(same[0].members)
    covariance = _pair_covariance(spread, same[0])
    average = None if covariance is None else (spread["variance"] + (members - 1) * covariance) / members
    bound = float(average_variance_bound(spread["alpha"], spread["beta"], members))
    return {"average": average, "average_bound": bound}


def _votes(result: Result | None) -> Row:
    """Return the label's mean share of the n votes, of how many certified images, and of how many it is not known."""
    if result is None:
        return {"votes": None, "certified": 0, "votes_unknown": 0}
    rows = result.rows
    voted = rows[rows["mode"] != "shortcut"]
    counts = zip(voted["counts"], voted["label"], voted["n"], strict=True)
    shares = [parse_counts(text).get(label, 0) / n for text, label, n in counts]
    mean = sum(shares) / len(shares) if shares else None
    return {"votes": mean, "certified": len(rows), "votes_unknown": len(rows) - len(voted)}


def _with_votes(row: Row) -> Cell:
    """Print of how many images a share of votes is the mean."""
    return Cell(f"{row['certified'] - row['votes_unknown']}") if row["certified"] else EMPTY


def _both(name: str, form: str) -> Column:
    """Print the number of the mixed ensemble and of the one of one method, and their difference."""

    def cell(row: Row) -> Cell:
        mixed, single = row[f"{name}_mixed"], row[f"{name}_single"]
        if mixed is None or single is None:
            return EMPTY
        return Cell(f"{mixed:{form}}, {single:{form}} ({mixed - single:+{form}})")

    return cell
