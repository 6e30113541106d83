"""The sentences of the pages whose figures and verdicts come from committed files."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmarks.page_tables.attacks import attacked_networks
from benchmarks.page_tables.cells import reported_gain
from benchmarks.page_tables.committed import (
    CHEAPER,
    EQUAL_SECONDS,
    LEVELS,
    STUDY,
    Committed,
    Trained,
)
from benchmarks.page_tables.paper_scale import paper_scale, paper_scale_card
from rs.reporting.tables.formatting import signed
from rs.statistics.comparison import Estimate, estimate, holm, is_tie


def one_gpu(committed: Committed) -> str:
    """Return what one GPU reached in minutes, next to the paper."""
    titles, *lines = paper_scale(committed)
    table = pd.DataFrame(lines, columns=titles)
    seconds = 0.0
    for level in LEVELS:
        seconds += paper_scale_card(committed, level)["training"]["seconds"]
    return (
        f"**In {seconds / 60:.0f} minutes, one NVIDIA H200 trained three CIFAR-10 networks by "
        "AdvMacer to nearly the paper's average certified radius (ACR)**:\n"
        f"{listed(table['ACR'].tolist())} at {sigmas(LEVELS)}. The paper reports "
        f"{listed(table['paper: ACR'].tolist())}\nafter tens of GPU hours "
        "([setting](docs/paper-scale.md): another network, 500 images, one training run each)."
    )


def small_network(committed: Committed, count: str) -> str:
    """Return a list of the first ``count`` findings on CIFAR-10 with a small network."""
    functions = [all_methods, advmacer_of_cheaper_attack, ensembles, cascades]
    findings = [function(committed) for function in functions[: int(count)]]
    return "\n".join(f"- {finding}" for finding in findings)


def all_methods(committed: Committed) -> str:
    """Return what beats AdvMacer when each method has its own few epochs, or the same seconds.

    The methods of the same seconds are represented by Consistency, the strongest of them.
    """
    methods = committed.methods()
    epochs = [committed.epochs(STUDY, "1.0", method) for method in methods]
    ahead = []
    for level in LEVELS:
        advmacer = committed.sample("advmacer", level)
        for method in methods:
            gain = estimate(committed.sample(method, level), advmacer)
            if verdict(gain, gain.tie) == "wins":
                ahead.append(f"{method} at σ = {level}")
    place = f"behind {listed(ahead)}" if ahead else "best or tied at every noise level"
    same_seconds = gains(committed, Trained("consistency", EQUAL_SECONDS), Trained("advmacer"))
    return (
        f"**With {min(epochs)} to {max(epochs)} epochs per method**, AdvMacer is {place}. With "
        f"equal training time, Consistency {compared(same_seconds, 'it')}."
    )


def advmacer_of_cheaper_attack(committed: Committed) -> str:
    """Return what AdvMacer gains from a cheaper attack, and how it then compares."""
    cheaper = Trained("advmacer", CHEAPER)
    differences = []
    for gain in gains(committed, cheaper, Trained("advmacer")):
        difference = signed(gain.value, 3)
        differences.append(f"{difference} (tie)" if gain.tie else difference)
    others = gains(committed, cheaper, Trained("consistency", EQUAL_SECONDS))
    return (
        f"**A cheaper attack** changes AdvMacer's ACR by {listed(differences)} at {sigmas(LEVELS)} "
        f"with the same training time. AdvMacer then {compared(others, 'Consistency')}."
    )


def gains(committed: Committed, first: Trained, second: Trained) -> list[Estimate]:
    """Return the differences in ACR of two methods at all noise levels."""
    return [committed.gain(first, second, level) for level in LEVELS]


def ensembles(committed: Committed) -> str:
    """Return how many averages have a larger ACR than the mean of their members.

    The p-values are corrected for the number of ensembles, as in the table of claims.
    """
    report = of_combination(committed, "average")
    p_values = holm(report["members_p_value"].tolist())
    verdicts = []
    wins_without_seeds = 0
    for (_, row), p_value in zip(report.iterrows(), p_values, strict=True):
        gain = reported_gain(row, "members")
        verdicts.append(verdict(gain, is_tie(p_value)))
        if verdicts[-1] == "wins" and gain.error is None:
            wins_without_seeds += 1
    return (
        f"**Ensembles gain a little**: with equal weights, {verdicts.count('wins')} of "
        f"{len(verdicts)} beat the mean of their members, {verdicts.count('ties')} tie, and "
        f"{verdicts.count('loses') or 'none'} lose "
        f"({wins_without_seeds} wins do not cover training seeds)."
    )


def cascades(committed: Committed) -> str:
    """Return how many members cascades evaluate, and how their ACR compares with the average's."""
    report = of_combination(committed, "cascade")
    members = report["members_per_draw"]
    verdicts = []
    for _, row in report.iterrows():
        gain = reported_gain(row, "reference")
        verdicts.append(verdict(gain, gain.tie))
    return (
        f"**A cascade is cheaper**: it evaluates {members.min():.1f} to {members.max():.1f} of its "
        f"three members per sample, and {verdicts.count('loses') or 'none'} of {len(verdicts)} "
        "loses to the average."
    )


def of_combination(committed: Committed, combination: str) -> pd.DataFrame:
    """Return the rows of the report on ensembles that combine in one way, at all noise levels."""
    reports = []
    for level in LEVELS:
        report = committed.report(f"{STUDY}/ensembles-{level}", "ensemble", "combination")
        reports.append(report.xs(combination, level="combination"))
    return pd.concat(reports)


def attacks(committed: Committed) -> str:
    """Return the range of the median ratio of found to certified radius, by number of samples."""
    networks = attacked_networks(committed)
    parts = []
    for count in ("1,000", "10,000", "100,000"):
        medians = []
        for network in networks:
            if count in network.ratios:
                medians.append(network.ratios[count].median())
        parts.append(
            f"{min(medians):.2f} to {max(medians):.2f} at n = {count} ({len(medians)} networks)"
        )
    return f"On CIFAR-10, the median ratio of found to certified radius is {listed(parts)}."


# ------------------------------------------------------------------------------------------ words


def verdict(gain: Estimate, tie: bool) -> str:
    """Return ``wins``, ``ties`` or ``loses``."""
    if tie:
        return "ties"
    return "wins" if gain.value > 0 else "loses"


def compared(gains: Sequence[Estimate], other: str) -> str:
    """Return at which noise levels differences from another method are wins, ties and losses.

    >>> won = Estimate(1.0, 0.1, None, 0.0, images=100, seeds=1)
    >>> tied = Estimate(0.1, 0.1, None, 0.3, images=100, seeds=1)
    >>> compared([won, tied, tied], "MACER")
    'beats MACER at σ = 0.25 and ties with it at σ = 0.5 and 1.0'
    """
    verdicts = [verdict(gain, gain.tie) for gain in gains]
    parts: list[str] = []
    for word, phrase in (("wins", "beats"), ("ties", "ties with"), ("loses", "loses to")):
        if word in verdicts:
            levels = [level for level, given in zip(LEVELS, verdicts, strict=True) if given == word]
            name = "it" if parts else other
            parts.append(f"{phrase} {name} at {sigmas(levels)}")
    return listed(parts)


def sigmas(levels: Sequence[str]) -> str:
    """Write noise levels.

    >>> sigmas(["0.25", "0.5"])
    'σ = 0.25 and 0.5'
    """
    return f"σ = {listed(levels)}"


def listed(words: Sequence[str]) -> str:
    """Join words by commas and ``and``.

    >>> listed(["a", "b", "c"]), listed(["a", "b"]), listed(["a"])
    ('a, b, and c', 'a and b', 'a')
    """
    *others, last = words
    if len(others) < 2:
        return " and ".join(words)
    return f"{', '.join(others)}, and {last}"
