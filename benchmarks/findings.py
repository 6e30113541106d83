"""The sentences of the pages whose figures and verdicts come from committed files."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmarks.page_tables import (
    CHEAPER,
    EQUAL_SECONDS,
    LEVELS,
    Committed,
    attacked_networks,
    paper_scale,
    paper_scale_card,
    reported_gain,
)
from rs.reporting.tables.formatting import signed
from rs.statistics.comparison import Estimate, estimate, holm, is_tie


def one_gpu(committed: Committed) -> str:
    """Return what one GPU reached in minutes, next to the paper."""
    titles, *lines = paper_scale(committed)
    columns = dict(zip(titles, zip(*lines, strict=True), strict=True))
    cards = [paper_scale_card(committed, level) for level in LEVELS]
    minutes = sum(card["training"]["seconds"] for card in cards) / 60
    return (
        f"**In {minutes:.0f} minutes, one NVIDIA H200 trained three CIFAR-10 networks by AdvMacer "
        "to nearly the paper's average certified radius (ACR)**:\n"
        f"{listed(columns['ACR'])} at {sigmas(LEVELS)}. The paper reports "
        f"{listed(columns['paper: ACR'])}\nafter tens of GPU hours "
        "([setting](docs/paper-scale.md): another network, 500 images, one training run each)."
    )


def small_network(committed: Committed, count: str) -> str:
    """Return a list of the first ``count`` findings on CIFAR-10 with a small network."""
    functions = [all_methods, cheaper_attack, ensembles, cascades]
    findings = [function(committed) for function in functions[: int(count)]]
    return "\n".join(f"- {finding}" for finding in findings)


def all_methods(committed: Committed) -> str:
    """Return what beats AdvMacer when each method has its own few epochs, or the same seconds.

    The methods of the same seconds are represented by Consistency, the strongest of them.
    """
    methods = committed.methods()
    epochs = [committed.epochs("cifar10-cpu", "1.0", method) for method in methods]
    ahead = []
    for level in LEVELS:
        own = committed.sample("advmacer", level)
        for method in methods:
            gain = estimate(committed.sample(method, level), own)
            if verdict(gain, gain.tie) == "wins":
                ahead.append(f"{method} at σ = {level}")
    place = f"behind {listed(ahead)}" if ahead else "best or tied at every noise level"
    same_seconds = [
        committed.gain((EQUAL_SECONDS, "consistency"), ("cifar10-cpu", "advmacer"), level)
        for level in LEVELS
    ]
    return (
        f"**With {min(epochs)} to {max(epochs)} epochs per method**, AdvMacer is {place}. With "
        f"equal training time, Consistency {compared(same_seconds, LEVELS, 'it')}."
    )


def cheaper_attack(committed: Committed) -> str:
    """Return what AdvMacer gains from a cheaper attack, and how it then compares."""
    own = (CHEAPER, "advmacer")
    gains = [committed.gain(own, ("cifar10-cpu", "advmacer"), level) for level in LEVELS]
    others = [committed.gain(own, (EQUAL_SECONDS, "consistency"), level) for level in LEVELS]
    differences = listed([signed(gain.value, 3) + " (tie)" * gain.tie for gain in gains])
    return (
        f"**A cheaper attack** changes AdvMacer's ACR by {differences} at {sigmas(LEVELS)} with "
        f"the same training time. AdvMacer then {compared(others, LEVELS, 'Consistency')}."
    )


def ensembles(committed: Committed) -> str:
    """Return how many averages have a larger ACR than the mean of their members.

    The p-values are corrected for the number of ensembles, as in the table of claims.
    """
    frame = of_combination(committed, "average")
    gains = [reported_gain(row, "members") for _, row in frame.iterrows()]
    corrected = holm(frame["members_p_value"].tolist())
    by_verdict: dict[str, list[Estimate]] = {"wins": [], "ties": [], "loses": []}
    for gain, p_value in zip(gains, corrected, strict=True):
        by_verdict[verdict(gain, is_tie(p_value))].append(gain)
    wins, ties, loses = by_verdict.values()
    without_seeds = [gain for gain in wins if gain.error is None]
    return (
        f"**Ensembles gain a little**: with equal weights, {len(wins)} of {len(gains)} beat the "
        f"mean of their members, {len(ties)} tie, and {len(loses) or 'none'} lose "
        f"({len(without_seeds)} wins do not cover training seeds)."
    )


def cascades(committed: Committed) -> str:
    """Return how many members cascades evaluate, and how their ACR compares with the average's."""
    frame = of_combination(committed, "cascade")
    members = frame["members_per_draw"]
    gains = [reported_gain(row, "reference") for _, row in frame.iterrows()]
    loses = sum(verdict(gain, gain.tie) == "loses" for gain in gains)
    return (
        f"**A cascade is cheaper**: it evaluates {members.min():.1f} to {members.max():.1f} of its "
        f"three members per sample, and {loses or 'none'} of {len(gains)} loses to the average."
    )


def of_combination(committed: Committed, combination: str) -> pd.DataFrame:
    """Return the rows of the report on ensembles that combine in one way, at all noise levels."""
    frames = []
    for level in LEVELS:
        frame = committed.report(f"cifar10-cpu/ensembles-{level}", "ensemble", "combination")
        frames.append(frame.xs(combination, level="combination"))
    return pd.concat(frames)


def attacks(committed: Committed) -> str:
    """Return the range of the median ratio of found to certified radius, by number of samples."""
    ratios = [network.ratios for network in attacked_networks(committed)]
    parts = []
    for count in ("1,000", "10,000", "100,000"):
        medians = [by_samples[count].median() for by_samples in ratios if count in by_samples]
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


def compared(gains: Sequence[Estimate], levels: Sequence[str], other: str) -> str:
    """Return at which noise levels differences from another method are wins, ties and losses.

    >>> won = Estimate(1.0, 0.1, None, 0.0, images=100, seeds=1)
    >>> tied = Estimate(0.1, 0.1, None, 0.3, images=100, seeds=1)
    >>> compared([won, tied, tied], ["0.25", "0.5", "1.0"], "MACER")
    'beats MACER at σ = 0.25 and ties with it at σ = 0.5 and 1.0'
    """
    levels_of: dict[str, list[str]] = {"wins": [], "ties": [], "loses": []}
    for gain, level in zip(gains, levels, strict=True):
        levels_of[verdict(gain, gain.tie)].append(level)
    phrases = {"wins": "beats", "ties": "ties with", "loses": "loses to"}
    parts: list[str] = []
    for word, having in levels_of.items():
        if having:
            name = "it" if parts else other
            parts.append(f"{phrases[word]} {name} at {sigmas(having)}")
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
