"""The words of the tables: headline cells, who is best and who ties, and what captions and notes must say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import pandas as pd

from rs.reporting.render import EMPTY, Cell
from rs.reporting.results import Circumstances, Group, Groups, Result
from rs.statistics import metrics
from rs.statistics.comparison import Estimate

CLEAN = "Clean accuracy is the share of images correct and certified at radius 0: an abstention is an error."
ERROR = "± is the standard error of the ACR over images."
MEANS = "Means over training seeds, where there are several."
SEEDS = (
    "Means over training seeds; square brackets give the standard error over images and training seeds. Where there "
    "are none, one training is all there is, and the error is over images only."
)
FAMILIES = (
    "An ensemble by numbers of members (x3) is the mean over all sub-ensembles of the trained seeds; one by seeds "
    "(0-1-2) is that one alone."
)
TIES = (
    "Tie: the difference may be 0 at the level of 5 %, by its error over images or by that over images and training "
    "seeds (docs/method.md). Images only: the latter is not known, since one side is of one training, and another may "
    "turn it."
)
PAPER = (
    "Paper: as printed in Liu et al., for 500 images, n = 100,000 and α = 0.001. Subset and budget may differ from "
    "ours, and then the figures cannot be compared."
)
UNSOUND = (
    "† The certificate is not sound for a pipeline that recomputes the weights: it holds with the weights frozen. "
    "Never marked as best."
)


def about(groups: Groups) -> str:
    """Say what the numbers are of: images, subset and budget."""
    results = results_of(groups)
    n0, n, alpha = (metrics.common_budget([result.rows for result in results], name) for name in ("n0", "n", "alpha"))
    return f"{len(results[0].rows):,} images (subset {results[0].subset}), n₀ = {n0:,.0f}, n = {n:,.0f}, α = {alpha:g}."


def methods_of(groups: Groups) -> list[str]:
    """Return the methods of all noise levels in the order of their first appearance."""
    return list(dict.fromkeys(method for methods in groups.values() for method in methods))


def best(methods: Mapping[str, Group]) -> list[str]:
    """Return the sound method of largest ACR and, after it, every sound one that ties with it."""
    sound = {method: group for method, group in methods.items() if group.sound}
    if not sound:
        return []
    first = max(sound, key=lambda method: sound[method].acr.value)
    others = [method for method in sound if method != first]
    return [first, *(method for method in others if sound[first].less(sound[method]).tie)]


def label(groups: Groups, method: str) -> Cell:
    """Return a method's name, with a dagger if one of its certificates is not sound."""
    sound = all(methods[method].sound for methods in groups.values() if method in methods)
    return Cell(method if sound else f"{method} †")


def headline(group: Group) -> str:
    """Return ACR ± error (clean accuracy).

    The form is ``0.554 ± 0.018 (76.0%)``, and ``0.554 ± 0.018 [0.019] (76.0%)`` with several seeds.
    """
    return f"{with_errors(group.acr)} ({100 * group.accuracy(0.0):.1f}%)"


def with_errors(acr: Estimate) -> str:
    """Return ACR ± error over images [error over images and training seeds, where it is known]."""
    both = "" if acr.error is None else f" [{acr.error:.3f}]"
    return f"{acr.value:.3f} ± {acr.error_images:.3f}{both}"


def difference(made: Estimate) -> str:
    """Return a difference of ACRs with its errors, and whether it is a tie, or rests on images alone."""
    said = ", ".join(["tie"] * made.tie + ["images only"] * (made.error is None))
    return f"{signed_with_errors(made)} {said}".rstrip()


def signed_with_errors(made: Estimate) -> str:
    """Return a difference of ACRs as :func:`with_errors` returns an ACR, with its sign and one digit more."""
    both = "" if made.error is None else f" [{made.error:.4f}]"
    return f"{signed(made.value)} ± {made.error_images:.4f}{both}"


def paper_headline(figures: pd.DataFrame, method: str, sigma: float) -> Cell:
    """Return the published ACR (clean accuracy), as far as there is one."""
    acr = paper_value(figures, method, sigma, "acr")
    clean = paper_value(figures, method, sigma, "clean_accuracy")
    if acr is None:
        return EMPTY
    return Cell(f"{acr:.3f}" if clean is None else f"{acr:.3f} ({100 * clean:.1f}%)")


def paper_value(
    figures: pd.DataFrame, method: str, sigma: float, metric: str, radius: float | None = None
) -> float | None:
    """Return one published figure, from the first table that prints it, or ``None``."""
    hits = figures[(figures["method"] == method) & (figures["sigma"] == sigma) & (figures["metric"] == metric)]
    hits = hits if radius is None else hits[hits["radius"] == radius]
    return float(hits["value"].iloc[0]) if len(hits) else None


def in_paper(figures: pd.DataFrame, methods: Sequence[str], sigma: float) -> bool:
    """Whether the paper prints an ACR of one of the methods at ``sigma``."""
    return any(paper_value(figures, method, sigma, "acr") is not None for method in methods)


def unlike(results: Iterable[Result]) -> list[str]:
    """Say which results were computed unlike the others, and in what; nothing if none was.

    >>> ran = [Circumstances(precision=precision) for precision in ("bfloat16", "float32", "float32")]
    >>> unlike([Result(f"macer x{k}", 0.5, 0, pd.DataFrame(), "all", circumstances=one) for k, one in enumerate(ran)])
    ['Certified unlike: precision bfloat16 (macer x0), float32 (all others).']
    """
    known, unknown = [], []
    for result in results:
        (unknown if result.circumstances is None else known).append(result)
    values = [[getattr(result.circumstances, field.name) for result in known] for field in fields(Circumstances)]
    parts = [
        f"{field.name} {_sides(known, own)}"
        for field, own in zip(fields(Circumstances), values, strict=True)
        if len(set(own)) > 1
    ]
    parts += [f"not known of {', '.join(dict.fromkeys(one.method for one in unknown))}"] * bool(parts and unknown)
    return [f"Certified unlike: {'; '.join(parts)}."] * bool(parts)


def _sides(results: Sequence[Result], values: Sequence[str | None]) -> str:
    """Name the results of each value, the most frequent one last and its results without their names."""
    *fewer, most = sorted(dict.fromkeys(values), key=values.count)
    sides = [f"{value or 'not stated'} ({', '.join(_named(results, values, value))})" for value in fewer]
    return ", ".join([*sides, f"{most or 'not stated'} (all others)"])


def _named(results: Sequence[Result], values: Sequence[str | None], value: str | None) -> list[str]:
    """Name the results that have the value, all those of a method by the method alone."""
    have = [result for result, own in zip(results, values, strict=True) if own == value]
    lack = {result.method for result, own in zip(results, values, strict=True) if own != value}
    return list(dict.fromkeys(result.name if result.method in lack else result.method for result in have))


def results_of(groups: Groups) -> list[Result]:
    """Return every result of every group."""
    return [result for methods in groups.values() for group in methods.values() for result in group.results]


def notes(groups: Groups, paper: bool, errors: bool = True) -> list[str]:
    """Say what the signs of a table mean, and who ties; ``errors``: whether it shows ± and clean accuracy."""
    everyone = [group for methods in groups.values() for group in methods.values()]
    several = any(group.acr.error is not None for group in everyone)
    said = [CLEAN, ERROR] + [SEEDS] * several if errors else [MEANS] * several
    said += [PAPER] * paper
    said += [FAMILIES] * any(result.ensemble is not None for result in results_of(groups))
    said += [UNSOUND] * any(not group.sound for group in everyone)
    tied = [f"σ = {sigma}: {_tied(methods)}" for sigma, methods in groups.items() if len(best(methods)) > 1]
    return said + tied + [TIES] * bool(tied) + unlike(results_of(groups))


def _tied(methods: Mapping[str, Group]) -> str:
    """Say who ties with the largest ACR, and where only images say so."""
    first, *ties = best(methods)
    known = [methods[first].less(methods[method]).error is not None for method in ties]
    names = [method if both else f"{method} (images only)" for method, both in zip(ties, known, strict=True)]
    return f"{', '.join(names)} tied with {first}, the largest ACR."


def signed(value: float) -> str:
    """Write a difference to four decimals, and zero without a sign.

    >>> signed(0.01264), signed(-0.00001)
    ('+0.0126', '0.0000')
    """
    return f"{value:+.4f}" if abs(value) >= 0.00005 else "0.0000"


def duration(seconds: float) -> str:
    """Write a time in its natural unit.

    >>> duration(55800.0), duration(90.0), duration(2.5)
    ('15.5 h', '1.5 min', '2.5 s')
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
