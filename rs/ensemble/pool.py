"""One noise pass certifies every member and every ensemble of a pool.

Members are evaluated once on each noisy image and all rules vote on the same outputs. Every certificate is the one
that its classifier would get alone, and holds with its own probability 1 - alpha; to choose the best of them
afterwards, image by image, is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rs.ensemble.outputs import Outputs, summed
from rs.ensemble.rules import LogitAverage, RuleFunction, SoftmaxAverage, is_undecided, scores_of
from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.classifier import Precision, SmoothedClassifier, certificate, check_draws, shortcut, winner
from rs.statistics.certificate import Certificate

TOGETHER = 2**18
"""Scores of softmax averages that are held at once."""


@dataclass(frozen=True)
class Entry:
    """A classifier of a pool: some of its members, by number, and a rule. One member alone is an entry of one."""

    members: tuple[int, ...]
    rule: RuleFunction = field(default_factory=LogitAverage)

    @cached_property
    def undecided(self) -> bool:
        """Whether the rule has an extra last class, which is never a prediction."""
        return is_undecided(self.rule, len(self.members))


Votes = dict[str, NDArray[np.int64]]
"""Votes per class of each entry, by name."""

Visitor = Callable[[Sequence[Tensor], int], None]
"""Takes the logits of the members that are needed, (N, K) each, in order of their numbers, and the number of draws."""

Pass = Callable[[Mapping[str, Entry], int, Stream], Votes]
"""A pass of CERTIFY: takes entries, a number of draws and the phase whose noise they are."""


class SideBySide(nn.Module):
    """The members that are needed, each evaluated once: images -> logits (N, K) of each, in order."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.needed = nn.ModuleList(members), tuple(range(len(members)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Logits of images."""
        return [self.members[number](x) for number in self.needed]


def certify_pool(
    members: Sequence[nn.Module],
    rules: Mapping[str, Entry],
    num_classes: int,
    sigma: float,
    x: Tensor,
    n0: int,
    n: int,
    alpha: float,
    *,
    seed: int = 0,
    index: int = 0,
    label: int | None = None,
    precision: Precision = "float32",
    batch: int | None = None,
) -> dict[str, Certificate]:
    """Certify every entry on one image, with one evaluation of each member on each noisy image.

    A certificate is that of ``SmoothedClassifier(Ensemble(its members, its rule), ...).certify(...)`` with the same
    arguments, byte for byte on a CPU. Where a rule has an extra class "undecided" and ``n0`` draws choose it, the entry
    abstains; its counts have K + 1 entries.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K).
        rules: The classifiers to certify, by name.
        num_classes, sigma, precision, batch: As for ``SmoothedClassifier``.
        x, n0, n, alpha, seed, index, label: As for its ``certify``. With ``label`` the second pass is made for the
            entries, and evaluates the members, that still need it.
    """
    check_draws(x, alpha, n0=n0, n=n)
    check_entries(rules, len(members))
    base = SideBySide(members)
    classifier = SmoothedClassifier(base, num_classes, sigma, precision=precision, batch=batch)

    def passed(entries: Mapping[str, Entry], draws: int, phase: Stream) -> Votes:
        base.needed = needed_members(entries)
        return count_votes(
            lambda visitor: classifier.visit(visitor, x, draws, seed, phase, index), entries, num_classes, x.device
        )

    return two_passes(passed, rules, n0, n, alpha, sigma, label)


def selected(
    members: Sequence[nn.Module],
    rules: Mapping[str, Entry],
    num_classes: int,
    sigma: float,
    x: Tensor,
    n0: int,
    **settings: Any,
) -> dict[str, int]:
    """The class that ``n0`` draws select for each entry, ABSTAIN for "undecided": the first pass of CERTIFY alone.

    Arguments are those of :func:`certify_pool`; ``settings`` its ``seed``, ``index``, ``precision`` and ``batch``.
    """
    # No class has the number K, so every entry skips its n draws.
    made = certify_pool(members, rules, num_classes, sigma, x, n0, 1, 0.5, label=num_classes, **settings)
    return {name: one.predict for name, one in made.items()}


def two_passes(
    passed: Pass, rules: Mapping[str, Entry], n0: int, n: int, alpha: float, sigma: float, label: int | None
) -> dict[str, Certificate]:
    """CERTIFY with two passes; the second is for the entries whose class is ``label``, if that is given."""
    counts0 = passed(rules, n0, Stream.SELECT)
    kept = {name: e for name, e in rules.items() if label is None or winner(counts0[name], e.undecided) == label}
    counts = passed(kept, n, Stream.ESTIMATE) if kept else {}
    made = {}
    for name, entry in rules.items():
        votes = (counts0[name], counts[name]) if name in kept else (counts0[name],)
        made[name] = (certificate if name in kept else shortcut)(*votes, alpha, sigma, undecided=entry.undecided)
    return made


def count_votes(
    each: Callable[[Visitor], None], entries: Mapping[str, Entry], num_classes: int, device: torch.device
) -> Votes:
    """Votes of each entry on all the outputs that ``each`` shows a visitor."""
    needed = needed_members(entries)
    placed = [(entry.rule, tuple(map(needed.index, entry.members))) for entry in entries.values()]
    uses = torch.tensor([[number in entry.members for number in needed] for entry in entries.values()], device=device)
    widths = [num_classes + entry.undecided for entry in entries.values()]
    box = _BallotBox(widths, device)
    averages = list(_Averages.all_of(placed, device))
    others = [
        (torch.tensor([number], device=device), widths[number], *one)
        for number, one in enumerate(placed)
        if type(one[0]) is not SoftmaxAverage
    ]

    def vote(logits: Sequence[Tensor], draws: int) -> None:
        outputs = Outputs(logits)
        for numbers, width, rule, members in others:
            box.add(numbers, scores_of(rule, outputs.of(members))[None], draws, width)
        for together in averages:
            for numbers, scores in together.scores(outputs):
                box.add(numbers, scores, draws, num_classes)
        box.broken |= (uses & outputs.nan.any(dim=1)).any(dim=1)  # no rule hides a member that is not a number

    each(vote)
    return dict(zip(entries, box.fetch(), strict=True))


@dataclass(frozen=True)
class _Averages:
    """The softmax averages of a pool that have equally many members, which are evaluated together."""

    numbers: Tensor  # of the classifiers, (E,)
    members: Tensor  # (E, L), by number
    weights: Tensor  # (E, L), float64

    @classmethod
    def all_of(
        cls, placed: Sequence[tuple[RuleFunction, tuple[int, ...]]], device: torch.device
    ) -> Iterator[_Averages]:
        """Group the classifiers that are averages by their number of members."""
        found: dict[int, list[int]] = {}
        for number, (rule, members) in enumerate(placed):
            if type(rule) is SoftmaxAverage:
                found.setdefault(len(members), []).append(number)
        for numbers in found.values():
            members = torch.tensor([placed[number][1] for number in numbers], device=device)
            weights = [placed[number][0].for_members(len(placed[number][1])) for number in numbers]
            yield cls(
                torch.tensor(numbers, device=device), members, torch.tensor(weights, dtype=torch.float64, device=device)
            )

    def scores(self, outputs: Outputs) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (E, N, K) of so many classifiers at once as stay near the processor, with their numbers."""
        values = outputs.probabilities.mT.contiguous().mT  # by draw last, along which a processor compares at once
        at_once = max(1, TOGETHER // values[0].numel())
        for start in range(0, len(self.numbers), at_once):
            part = slice(start, start + at_once)
            terms = (values[own] for own in self.members[part].unbind(-1))
            yield self.numbers[part], summed(self.weights[part], terms)


class _BallotBox:
    """Votes of classifiers with ``widths`` scores on the same draws: a ``Tally`` of each, all at once."""

    def __init__(self, widths: Sequence[int], device: torch.device) -> None:
        self.widths = widths
        self.counts = torch.zeros(len(widths), max(widths), dtype=torch.int64, device=device)
        self.broken = torch.zeros(len(widths), dtype=torch.bool, device=device)

    def add(self, numbers: Tensor, scores: Tensor, draws: int, width: int) -> None:
        """Count the argmax of each draw, the lowest class of equals; scores (E, draws, width) of classifiers (E,)."""
        if scores.shape[1:] != (draws, width):
            raise InputError(f"base must give logits of shape {(draws, width)}, got {tuple(scores.shape[1:])}")
        largest, classes = scores.max(dim=-1)
        counts = torch.zeros(len(numbers), self.counts.shape[1], dtype=torch.int64, device=scores.device)
        self.counts.index_add_(0, numbers, counts.scatter_add_(1, classes, torch.ones_like(classes)))
        self.broken[numbers] |= largest.isnan().any(dim=1)

    def fetch(self) -> list[NDArray[np.int64]]:
        """Votes per class of each classifier, shape (its width,)."""
        if self.broken.any():
            raise InputError("base must give logits that are numbers, got NaN; look at its weights and its input")
        return [counts[:width].copy() for counts, width in zip(self.counts.cpu().numpy(), self.widths, strict=True)]


def check_entries(rules: Mapping[str, Entry], members: int) -> None:
    """Refuse entries of other members and rules that do not fit them."""
    if not rules:
        raise InputError("there must be at least one classifier to certify, got none")
    for name, entry in rules.items():
        if not entry.members or not set(entry.members) <= set(range(members)):
            raise InputError(f"{name} must name members from 0 to {members - 1}, got {entry.members}")
        entry.undecided  # noqa: B018  tries the rule, so that one that does not fit says so before the work begins


def needed_members(entries: Mapping[str, Entry]) -> tuple[int, ...]:
    """Numbers of the members that entries name, in order."""
    return tuple(sorted({number for entry in entries.values() for number in entry.members}))
