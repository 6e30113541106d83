"""Captions and notes of tables: images and budget, signs, ties, and differences of provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rs.reporting.results import Groups, Result, budget_of, results_of

WALL = "wall time, mean over seeds, evaluation excluded"
SIDE_BY_SIDE = "epochs times seconds per epoch, measured for all methods side by side"
"""How training times were measured: during the training runs, or side by side.

The second is for runs on different or busy machines.
"""

ERRORS = (
    "± is the error over images, [ ] the error over images and training seeds; without [ ] there "
    "was one training run. Bold: the largest ACR of a sound certificate, and every one that ties "
    "with it. More: docs/tables.md."
)
"""What a table of ACRs says about errors and ties."""

PAPER = (
    "Paper: as printed in Liu et al., for 500 images, n = 100,000 and α = 0.001. If the subset or "
    "the budget differs from ours, the figures cannot be compared."
)
UNSOUND_NOTE = (
    "† The certificate holds for the frozen weights, not for a pipeline that computes them again. "
    "Never bold."
)


def about(groups: Groups) -> str:
    """Return which images the numbers are of, and their budget."""
    first = results_of(groups)[0]
    n0 = budget_of(groups, "n0")
    n = budget_of(groups, "n")
    alpha = budget_of(groups, "alpha")
    images = f"{len(first.rows):,} images (subset {first.subset})"
    return f"{images}, n₀ = {n0:,.0f}, n = {n:,.0f}, α = {alpha:g}."


def of_results(results: Sequence[Result]) -> list[str]:
    """Return what the scopes of results mean, and how their provenance differs."""
    texts = []
    if not all(result.sound for result in results):
        texts.append(UNSOUND_NOTE)
    return texts + provenance_notes(results)


def provenance_notes(results: Sequence[Result]) -> list[str]:
    """Return which results were computed differently from the others; empty if none was.

    >>> import pandas as pd
    >>> from rs.storage.provenance import Provenance
    >>> made = {"sigma": 0.5, "seed": 0, "rows": pd.DataFrame(), "subset": "all"}
    >>> exact = Result(name="macer", provenance=Provenance(precision="float32"), **made)
    >>> rounded = Result(name="gaussian", provenance=Provenance(precision="bfloat16"), **made)
    >>> provenance_notes([exact, rounded, exact])
    ['Certified differently: precision bfloat16 (gaussian), float32 (all others).']
    """
    by_name: dict[str, list[tuple[Result, str]]] = {}
    for result in results:
        for name, value in _computed_by(result).items():
            by_name.setdefault(name, []).append((result, value))
    parts = []
    for name, pairs in by_name.items():
        counts = Counter(value for _, value in pairs)
        *fewer, most = sorted(counts, key=counts.__getitem__)
        if fewer:
            sides = [f"{value} ({', '.join(_named(pairs, value))})" for value in fewer]
            parts.append(f"{name} {', '.join(sides)}, {most} (all others)")
    return [f"Certified differently: {'; '.join(parts)}."] if parts else []


def _computed_by(result: Result) -> dict[str, str]:
    """Return how rows were computed, by name."""
    computed = {}
    for name, value in result.provenance.computation().items():
        computed[name] = value or "not stated"
    code = result.provenance.code
    if result.stage is not None and code is not None:
        computed[f"code of {result.stage}"] = code[:8]
    return computed


def _named(pairs: Sequence[tuple[Result, str]], value: str) -> list[str]:
    """Name the results that have a value, as briefly as possible.

    The method alone is enough if all its results have the value, the seed if all of that seed do.
    """
    others = [result for result, other in pairs if other != value]
    other_methods = {result.name for result in others}
    other_seeds = {(result.name, result.seed) for result in others}
    names: dict[str, None] = {}
    for result in [result for result, stated in pairs if stated == value]:
        name = result.full_name
        if result.name not in other_methods:
            name = result.name
        elif (result.name, result.seed) not in other_seeds:
            name = f"seed {result.seed} of {result.name}"
        names[name] = None
    return list(names)
