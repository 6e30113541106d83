"""The tables of ensembles: against their members, by weights (the paper's Table 3), mixed against single, theory.

``results`` are those of the ensembles and of all their members, which ``rs.results.grouped`` lets stand side by
side. ``spreads`` and ``bounds`` hold the numbers of ``rs.theory`` as means over images, and may be empty:

- ``spreads``: ``sigma ensemble source images alpha beta variance within across``, means over the wrong classes too.
  ``source`` says whose margins these are: ``perturbed`` copies of the members, or members ``trained`` independently;
  ``within`` and ``across`` are NaN where there is no such pair.
- ``bounds``: ``sigma ensemble combination images bound bound_minimum measured``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Any

import pandas as pd

from rs import headlines, metrics
from rs.errors import InputError
from rs.headlines import paper_value
from rs.results import Group, Result
from rs.rows import parse_counts
from rs.theory import average_variance_bound
from rs.typeset import EMPTY, Cell, Table

Row = dict[str, Any]
Columns = dict[str, Callable[[Row], Cell]]

NONE = "none (mean of members)"
TIE = "Differences are ± their paired standard error over the same images; tie: within two such errors."
SET = (
    "Scope set: a draw counts for a class only if that class wins it for all weights of the set. The ACR is of the "
    "class that wins for all of them, and holds for any rule that chooses weights in the set."
)
BEST_MEMBER = "The best member is chosen by its ACR on these very images, so a gain over it is rather understated."
BOLD = "Bold: the largest sound ACR of an ensemble, and every one within two paired errors of it."
TIMES = "Time: of one certificate, on our machine. With scope per-image it includes computing the weights."
EXPECTED = (
    "Help is expected where the mixed ensemble has the larger lower bound. Bounds may order two ensembles otherwise "
    "than the probabilities below which they lie. A tie leaves the expectation open."
)
SHORTCUT = "Votes of {} of {:,} images are not known, since their n draws were skipped; the share is of the others."


def ensembles(results: Sequence[Result], sigma: float, reference: str = "average") -> Table:
    """Return every ensemble at ``sigma`` against its members, and against their combination ``reference``.

    Raises:
        InputError: If there is no ensemble at ``sigma``, or a member has no result.
    """
    found = _ensembles(results, sigma)
    groups = {result.method: Group((result,)) for result in found}
    best = headlines.best(groups)
    data = [
        _names(result)
        | {"scope": result.scope, "sound": result.sound, "best": result.method in best}
        | groups[result.method].numbers()
        | _against(result, results, reference)
        for result in found
    ]
    columns = {
        "Ensemble": _plain("ensemble"),
        "Combination": _marked("combination"),
        "Scope": _plain("scope"),
        "Clean accuracy": _plain("clean_accuracy", ".1%"),
        "ACR": _acr,
        "to members' mean": _difference("members"),
        "to best member": _difference("best_member"),
        f"to {reference}": _difference("reference"),
    }
    caption = (
        f"Ensembles at σ = {sigma}: ACR, and its difference to the mean of the members' ACRs, to the best member's and "
        f"to that of the same members combined by {reference}. {headlines.about({sigma: groups})}"
    )
    notes = [*headlines.notes({sigma: groups}, paper=False), TIE, BEST_MEMBER, *_set_note(found)]
    return _table(f"tab:ensembles-{sigma}", caption, columns, data, notes)


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
        "Ensemble": _plain("ensemble"),
        "Combination": _marked("combination"),
        "Clean accuracy": _plain("clean_accuracy", ".1%"),
        "ACR": _acr,
        "Time": _plain("seconds", ".3g", " s"),
    }
    if printed := any(row["paper_acr"] is not None for row in data):
        columns["Clean accuracy, paper"] = _plain("paper_clean_accuracy", ".1%")
        columns |= {"ACR, paper": _plain("paper_acr", ".3f"), "Time, paper": _plain("paper_seconds", ".3g", " s")}
    caption = f"Weights of ensembles at σ = {sigma}. {headlines.about({sigma: {NONE: Group((found[0],))}})}"
    notes = [headlines.CLEAN, headlines.ERROR, BOLD, TIMES, *_unsound_note(found), *_set_note(found)]
    return _table(f"tab:weighting-{sigma}", caption, columns, data, notes + [headlines.PAPER] * printed)


def mixed(results: Sequence[Result], combination: str, spreads: pd.DataFrame, bounds: pd.DataFrame) -> Table:
    """Return mixed ensembles against those of as many members of one of their methods, and what theory expected."""
    found = [result for result in results if result.ensemble is not None and result.combination == combination]
    pairs = [(a, b) for a in found for b in found if _rivals(a, b)]
    data = [_rivalry(a, b, spreads, bounds) for a, b in pairs]
    columns = {
        "Mixed ensemble": _marked("mixed"),
        "Ensemble of one method": _marked("single"),
        "σ": _plain("sigma"),
        "Difference of ACR": _difference("acr"),
        "Verdict": _plain("verdict"),
        "Lower bounds": _both("bound", ".3f"),
        "Help expected": _plain("expected"),
        "Expectation": _plain("expectation"),
        "Covariances": _both("covariance", ".4f"),
    }
    caption = (
        f"Mixed ensembles against as many members of one method, combined by {combination}; mixed first. Lower bounds: "
        "Chebyshev's, on the probability that a noisy image gets its label. Covariances: of the margins of two members "
        "(perturbed copies), mean over pairs, with the difference in brackets."
    )
    caption += f" {headlines.about({a.sigma: {combination: Group((a,))} for a, _ in pairs})}" if pairs else ""
    notes = [TIE, EXPECTED, *_unsound_note([result for pair in pairs for result in pair])]
    return _table("tab:mixed", caption, columns, data, notes)


def theory(spreads: pd.DataFrame, results: Sequence[Result]) -> Table:
    """Return how the members of each ensemble vary, alone and together, and the paper's bound for their average.

    Raises:
        InputError: If no result says the members of an ensemble.
    """
    data = [row | _average(row, results) for row in spreads.to_dict("records")]
    columns = {
        "Ensemble": _plain("ensemble"),
        "σ": _plain("sigma"),
        "Source": _plain("source"),
        "Images": _plain("images"),
        **{name.capitalize(): _plain(name, ".4f") for name in ("alpha", "beta", "variance", "within", "across")},
        "Average": _plain("average", ".4f"),
        "Bound": _plain("average_bound", ".4f"),
    }
    caption = (
        "How the margins of members (probability of the label less that of a wrong class) vary with the noise; means "
        "over images and wrong classes. Source: perturbed copies of the members, or members trained independently. "
        "Alpha: largest variance of a member. Beta: largest covariance of two. Variance: mean over members. Within, "
        "Across: mean covariance of two members of one method, and of two methods. Average: variance of the mean "
        "margin of all L members. Bound: the paper's on it, beta + (alpha - beta) / L."
    )
    return _table("tab:theory", caption, columns, data, [])


def bounds_table(bounds: pd.DataFrame, results: Sequence[Result]) -> Table:
    """Return Chebyshev's lower bounds on the probability of the label beside measured shares of draws and of votes."""
    by_names = {tuple(_names(result).values()): result.rows for result in results}
    data = [
        row | _votes(by_names.get((row["sigma"], row["ensemble"], row["combination"])))
        for row in bounds.to_dict("records")
    ]
    columns = {
        "Ensemble": _plain("ensemble"),
        "Combination": _plain("combination"),
        "σ": _plain("sigma"),
        "Images": _plain("images"),
        "Lower bound": _plain("bound", ".3f"),
        "Lower bound, paper's form": _plain("bound_minimum", ".3f"),
        "Share of draws": _plain("measured", ".3f"),
        "Share of votes": _plain("votes", ".3f"),
    }
    caption = (
        "Probability that the ensemble gives a noisy image its label; means over images. Lower bound: Chebyshev's, "
        "with the mean margin of the ensemble; in the paper's form, with the smallest mean margin of a member. Share "
        "of draws: how often the label wins in the very draws of the bound, so never below it. Share of votes: the "
        "label's votes in certification, in all its images and other draws."
    )
    unknown = dict.fromkeys((row["votes_unknown"], row["certified"]) for row in data if row["votes_unknown"])
    return _table("tab:bounds", caption, columns, data, [SHORTCUT.format(*counts) for counts in unknown])


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
        for method in sorted({method for result in found for method in _methods(result)}):
            seeds = [result.rows for result in here if result.ensemble is None and result.method == method]
            data.append((sigma, method, f"{method} x1", 1, metrics.average_rows(seeds)))
        data += [(sigma, " + ".join(_methods(r)), r.ensemble, len(r.members), r.rows) for r in found]
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


def _methods(result: Result) -> list[str]:
    """Return the training methods of the members, each once."""
    return sorted({method for method, _ in result.members})


def _names(result: Result) -> Row:
    return {"sigma": result.sigma, "ensemble": result.ensemble, "combination": result.combination}


def _against(result: Result, results: Sequence[Result], reference: str) -> Row:
    """Return the differences that :func:`ensembles` prints; ``None`` where there is nothing to compare with."""
    members = _members(result, results)
    same = [r.rows for r in results if _names(r) == _names(result) | {"combination": reference}]
    others = {
        "members": members.mean,
        "best_member": max(members.rows, key=metrics.acr),
        "reference": same[0] if same and result.combination != reference else None,
    }
    return {k: v for name, other in others.items() for k, v in _paired(name, result.rows, other).items()}


def _paired(name: str, rows: pd.DataFrame, other: pd.DataFrame | None) -> Row:
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


def _rivals(a: Result, b: Result) -> bool:
    """Whether ``a`` is mixed and ``b`` of as many members of one of its methods."""
    alike = a.sigma == b.sigma and len(a.members) == len(b.members)
    return alike and len(_methods(b)) == 1 and set(_methods(b)) < set(_methods(a))


def _rivalry(a: Result, b: Result, spreads: pd.DataFrame, bounds: pd.DataFrame) -> Row:
    """Return the numbers of one row of :func:`mixed`."""
    row = {"sigma": a.sigma, "mixed": a.ensemble, "single": b.ensemble, "sound": a.sound and b.sound}
    row |= _paired("acr", a.rows, b.rows)
    for side, result in (("mixed", a), ("single", b)):
        row[f"bound_{side}"] = _find(bounds, _names(result)).get("bound")
        names = {"sigma": result.sigma, "ensemble": result.ensemble, "source": "perturbed"}
        row[f"covariance_{side}"] = _pair_covariance(_find(spreads, names), result)
    row["verdict"] = "tie" if row["acr_tie"] else "helped" if row["acr_difference"] > 0 else "hurt"
    return row | _expectation(row["bound_mixed"], row["bound_single"], row["verdict"])


def _expectation(mixed: float | None, single: float | None, verdict: str) -> Row:
    """Return whether help was expected and came; ``None`` without bounds.

    >>> _expectation(0.9, 0.8, "hurt")
    {'expected': 'yes', 'expectation': 'not met'}
    """
    if mixed is None or single is None:
        return {"expected": None, "expectation": None}
    expected = "yes" if mixed > single else "no" if mixed < single else "neither"
    came = {"helped": "yes", "hurt": "no"}.get(verdict)
    open_ = came is None or expected == "neither"
    return {"expected": expected, "expectation": "open" if open_ else "met" if came == expected else "not met"}


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
    same = [r for r in results if (r.sigma, r.ensemble) == (spread["sigma"], spread["ensemble"])]
    if not same:
        raise InputError(
            f"spreads of {spread['ensemble']} at sigma {spread['sigma']} need a result that says its members, got none"
        )
    members = len(same[0].members)
    covariance = _pair_covariance(spread, same[0])
    average = None if covariance is None else (spread["variance"] + (members - 1) * covariance) / members
    bound = float(average_variance_bound(spread["alpha"], spread["beta"], members))
    return {"members": members, "average": average, "average_bound": bound}


def _votes(rows: pd.DataFrame | None) -> Row:
    """Return the label's mean share of the n votes, of how many certified images, and of how many it is not known."""
    if rows is None:
        return {"votes": None, "certified": 0, "votes_unknown": 0}
    known = rows[rows["mode"] != "shortcut"]
    counts = zip(known["counts"], known["label"], known["n"], strict=True)
    shares = [parse_counts(text).get(label, 0) / n for text, label, n in counts]
    mean = sum(shares) / len(shares) if shares else None
    return {"votes": mean, "certified": len(rows), "votes_unknown": len(rows) - len(known)}


def _set_note(found: Sequence[Result]) -> list[str]:
    return [SET] * any(result.scope == "set" for result in found)


def _unsound_note(found: Sequence[Result]) -> list[str]:
    return [headlines.UNSOUND] * any(not result.sound for result in found)


def _table(label: str, caption: str, columns: Columns, data: list[Row], notes: list[str]) -> Table:
    body = [[cell(row) for cell in columns.values()] for row in data]
    return Table(label, caption, list(columns), body, pd.DataFrame(data), notes)


def _plain(name: str, form: str = "", unit: str = "") -> Callable[[Row], Cell]:
    return lambda row: EMPTY if pd.isna(row[name]) else Cell(f"{row[name]:{form}}{unit}")


def _marked(name: str) -> Callable[[Row], Cell]:
    """Return a name with a dagger if a certificate is not sound."""
    return lambda row: Cell(row[name] if row["sound"] else f"{row[name]} †")


def _acr(row: Row) -> Cell:
    return Cell(f"{row['acr']:.3f} ± {row['standard_error']:.3f}", row["best"])


def _difference(name: str) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        difference, error, tie = (row[f"{name}_{field}"] for field in ("difference", "error", "tie"))
        if difference is None:
            return EMPTY
        return Cell(f"{headlines.signed(difference)} ± {error:.3f}" + " tie" * tie)

    return cell


def _both(name: str, form: str) -> Callable[[Row], Cell]:
    """Return the number of the mixed ensemble and of the one of one method, and their difference."""

    def cell(row: Row) -> Cell:
        mixed, single = row[f"{name}_mixed"], row[f"{name}_single"]
        if mixed is None or single is None:
            return EMPTY
        return Cell(f"{mixed:{form}}, {single:{form}} ({mixed - single:+{form}})")

    return cell
