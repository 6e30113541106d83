"""What captions and notes of tables say: images and budget, signs, ties, and differences of provenance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields

from rs.reporting.results import CODES, Group, Groups, Provenance, Result, best, results_of
from rs.reporting.tables.formatting import with_errors, with_verdict
from rs.statistics import metrics

WALL = "wall time, mean over seeds, evaluation excluded"
SIDE_BY_SIDE = "epochs times seconds of an epoch that were measured for all methods side by side"
"""What times of training are: as the trainings took, or where these ran on unlike or busy machines."""

CLEAN = "Clean accuracy is the share of images correct and certified at radius 0: an abstention is an error."
ERROR = "± is the standard error of the ACR over images."
MEANS = "Means over training seeds, where there are several."
SEEDS = (
    "Means over training seeds; square brackets give the error over images and training seeds, 1.96 of which are half "
    "the 95 % interval. Where there are none, one training is all there is, and the error is over images only."
)
FAMILIES = (
    "An ensemble by numbers of members (x3) is the mean over all sub-ensembles of the trained seeds; one by seeds "
    "(0-1-2) is that one alone."
)
TIES = (
    "Tie: the 95 % interval of the difference, over images and training seeds where that is known, contains 0 "
    "(docs/method.md). Images only: one side was trained only once, so the error over training seeds is not "
    "known, and another training could reverse the verdict. Each verdict is one comparison, not corrected for the "
    "number of comparisons in a table; those of claims.md are (Holm)."
)
PAPER = (
    "Paper: as printed in Liu et al., for 500 images, n = 100,000 and α = 0.001. Subset and budget may differ from "
    "ours, and then the figures cannot be compared."
)
TWO_SIDED = (
    "Two-sided: p_B is bounded from above too, at the same α and from the same votes. Every other class has the same "
    "part of α; or parts by its votes among the n₀ draws."
)
UNSOUND = (
    "† The certificate is not sound for a pipeline that recomputes the weights: it holds with the weights frozen. "
    "Never marked as best."
)


def about(groups: Groups) -> str:
    """Return which images the numbers are of, and their budget."""
    results = results_of(groups)
    n0, n, alpha = (metrics.common_budget([result.rows for result in results], name) for name in ("n0", "n", "alpha"))
    return f"{len(results[0].rows):,} images (subset {results[0].subset}), n₀ = {n0:,.0f}, n = {n:,.0f}, α = {alpha:g}."


def of_methods(groups: Groups, paper: bool, errors: bool = True) -> list[str]:
    """Return the notes of a table of methods.

    Args:
        groups: What it shows.
        paper: Whether it shows figures of the paper.
        errors: Whether it shows ± and clean accuracy.
    """
    everyone = [group for methods in groups.values() for group in methods.values()]
    several = any(group.acr.error is not None for group in everyone)
    notes = [CLEAN, ERROR] + [SEEDS] * several if errors else [MEANS] * several
    notes += [PAPER] * paper
    notes += [FAMILIES] * any(group.first.ensemble is not None for group in everyone)
    notes += unsound(results_of(groups))
    ties = [f"σ = {sigma}: {text}" for sigma, methods in groups.items() if (text := _ties(methods))]
    return notes + ties + [TIES] * bool(ties) + provenance_notes(results_of(groups))


def unsound(results: Sequence[Result]) -> list[str]:
    """Return what a dagger means, if there is one."""
    return [UNSOUND] * any(not result.sound for result in results)


def chosen(results: Iterable[Result]) -> list[str]:
    """Return which members vote in ensembles whose weights choose them."""
    return [f"{result.full_name}: chosen {_counted(result.chosen)}." for result in results if result.chosen]


def _counted(members: Mapping[str, int]) -> str:
    """Say how often each member votes.

    >>> _counted({"advmacer 0": 1, "macer 1": 2})
    'advmacer 0, 2 x macer 1'
    """
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in members.items())


def _ties(methods: Mapping[str, Group]) -> str:
    """Return which methods tie with the largest ACR, and where only images say so; empty if none does."""
    first, *ties = best(methods) or [""]
    over_seeds = [methods[first].difference_to(methods[method]).error is not None for method in ties]
    names = [method if both else f"{method} (images only)" for method, both in zip(ties, over_seeds, strict=True)]
    return f"{', '.join(names)} tied with {first}, the largest ACR of this table." if ties else ""


def largest(everyone: Groups, shown: Groups) -> list[str]:
    """Return which of all classifiers has the largest ACR, at each noise level where a table does not show them all."""
    some = {sigma: methods for sigma, methods in shown.items() if methods.keys() < everyone[sigma].keys()}
    return [f"σ = {sigma}: {text}" for sigma, methods in some.items() if (text := _largest(everyone[sigma], methods))]


def _largest(methods: Mapping[str, Group], shown: Mapping[str, Group]) -> str:
    first, *ties = best(methods) or [""]
    here = next(iter(best(shown)), "")
    if not here:
        return ""
    count = sum(group.sound for group in methods.values())
    beside = (
        f": {with_verdict(methods[first].difference_to(shown[here]))} to {here} of this table" if first != here else ""
    )
    return (
        f"of all {count} models and ensembles whose certificate is sound, however their members are combined, "
        f"{first} has the largest ACR, {with_errors(methods[first].acr)}{beside}. Tied with it: "
        f"{len(ties)}. Chosen on these very images, it is rather overstated."
    )


def provenance_notes(results: Iterable[Result]) -> list[str]:
    """Return which results were computed differently from the others, and in what; empty if none was.

    >>> import pandas as pd
    >>> how = [Provenance(precision=precision) for precision in ("bfloat16", "float32", "float32")]
    >>> provenance_notes([
    ...     Result(name=f"macer x{k}", sigma=0.5, seed=0, rows=pd.DataFrame(), subset="all", provenance=one)
    ...     for k, one in enumerate(how)
    ... ])
    ['Certified differently: precision bfloat16 (macer x0), float32 (all others).']
    """
    everyone = list(results)
    stating = [result for result in everyone if result.provenance is not None]
    unknown = [result for result in everyone if result.provenance is None]
    values = {
        field.name: [getattr(result.provenance, field.name) for result in stating] for field in fields(Provenance)
    }
    parts = [f"{name} {_sides(stating, column)}" for name, column in values.items() if len(set(column)) > 1]
    for name in CODES:
        stated = [result for result in everyone if name in result.source]
        versions = [result.source[name][:8] for result in stated]
        parts += [f"{name} {_sides(stated, versions)}"] if len(set(versions)) > 1 else []
    parts += [f"not known of {', '.join(dict.fromkeys(result.name for result in unknown))}"] * bool(parts and unknown)
    return [f"Certified differently: {'; '.join(parts)}."] * bool(parts)


def _sides(results: Sequence[Result], values: Sequence[str | None]) -> str:
    """Name the results of each value, the most frequent one last and its results without their names."""
    *fewer, most = sorted(dict.fromkeys(values), key=values.count)
    sides = [f"{value or 'not stated'} ({', '.join(_named(results, values, value))})" for value in fewer]
    return ", ".join([*sides, f"{most or 'not stated'} (all others)"])


def _named(results: Sequence[Result], values: Sequence[str | None], value: str | None) -> list[str]:
    """Name the results that have the value: by the method alone, or its seed, where all of that have it."""
    pairs = [*zip(results, values, strict=True)]
    lack = {key for result, other in pairs if other != value for key in (result.name, (result.name, result.seed))}
    have = [result for result, other in pairs if other == value]
    return list(dict.fromkeys(_name_beside(result, lack) for result in have))


def _name_beside(result: Result, lack: Collection[object]) -> str:
    if result.name not in lack:
        return result.name
    if (result.name, result.seed) not in lack:
        return f"seed {result.seed} of {result.name}"
    return result.full_name
