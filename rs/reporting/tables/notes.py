"""What captions and notes of tables say: images and budget, signs, ties, and differences of
provenance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rs.reporting.results import CODES, Groups, Result, results_of
from rs.statistics import metrics

WALL = "wall time, mean over seeds, evaluation excluded"
SIDE_BY_SIDE = "epochs times seconds of an epoch that were measured for all methods side by side"
"""What training times are: as the trainings took; or, where these ran on different or busy
machines, side by side.
"""

ERRORS = (
    "± is over images, [ ] over images and training seeds; without it there was one training. "
    "Bold: the largest ACR of "
    "a sound certificate, and every one that ties with it. More: docs/tables.md."
)
"""What a table of ACRs says of errors and ties."""

PAPER = (
    "Paper: as printed in Liu et al., for 500 images, n = 100,000 and α = 0.001. Subset and budget "
    "may differ from "
    "ours, and then the figures cannot be compared."
)
UNSOUND_NOTE = "† The certificate holds with the weights frozen, not for a pipeline that recomputes them. Never bold."
SET_NOTE = "Scope set: a draw counts for a class that wins it for all weights of the set, so for any rule that chooses in it."


def about(groups: Groups) -> str:
    """Return which images the numbers are of, and their budget."""
    results = results_of(groups)
    n0, n, alpha = (
        metrics.common_budget([result.terms for result in results], name)
        for name in ("n0", "n", "alpha")
    )
    return f"{len(results[0].rows):,} images (subset {results[0].subset}), n₀ = {n0:,.0f}, n = {n:,.0f}, α = {alpha:g}."


def of_results(results: Sequence[Result]) -> list[str]:
    """Return what the scopes of results mean, and how their provenance differs."""
    unsound, over_set = (
        any(not result.sound for result in results),
        any(result.scope == "set" for result in results),
    )
    return [UNSOUND_NOTE] * unsound + [SET_NOTE] * over_set + provenance_notes(results)


def provenance_notes(results: Sequence[Result]) -> list[str]:
    """Return which results were computed differently from the others, and in what; empty if none
    was.

    >>> import pandas as pd
    >>> from rs.storage.provenance import Provenance
    >>> precisions = ("bfloat16", "float32", "float32")
    >>> made = [{"name": f"macer x{k}", "provenance": Provenance(precision=one)} for k, one in enumerate(precisions)]
    >>> provenance_notes([Result(sigma=0.5, seed=0, rows=pd.DataFrame(), subset="all", **each) for each in made])
    ['Certified differently: precision bfloat16 (macer x0), float32 (all others).']
    """
    parts = []
    stated = [(result, _computed_by(result)) for result in results]
    for name in dict.fromkeys(name for _, values in stated for name in values):
        pairs = [(result, values[name]) for result, values in stated if name in values]
        counts = Counter(value for _, value in pairs)
        *fewer, most = sorted(counts, key=counts.__getitem__)
        sides = [f"{value} ({', '.join(_named(pairs, value))})" for value in fewer]
        parts += [f"{name} {', '.join([*sides, f'{most} (all others)'])}"] if fewer else []
    return [f"Certified differently: {'; '.join(parts)}."] * bool(parts)


def _computed_by(result: Result) -> dict[str, str]:
    """Return how rows were computed, by name."""
    computation = result.provenance.computation()
    codes = {name: result.source[name][:8] for name in CODES if name in result.source}
    return {name: value or "not stated" for name, value in computation.items()} | codes


def _named(pairs: Sequence[tuple[Result, str]], value: str) -> list[str]:
    """Name the results that have the value: by the method alone, or its seed, where all of that
    have it.
    """
    lack = {
        key
        for result, other in pairs
        if other != value
        for key in (result.name, (result.name, result.seed))
    }

    def name(result: Result) -> str:
        if result.name not in lack:
            return result.name
        return (
            result.full_name
            if (result.name, result.seed) in lack
            else f"seed {result.seed} of {result.name}"
        )

    return list(dict.fromkeys(name(result) for result, other in pairs if other == value))
