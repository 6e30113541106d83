"""One noise pass certifies every member and every ensemble of a pool.

Members are evaluated once on each noisy image and all rules vote on the same outputs. Every certificate is the one
that its classifier would get alone, and holds with its own probability 1 - alpha; to choose the best of them
afterwards, image by image, is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from rs.ensemble.outputs import Outputs, summed
from rs.ensemble.rules import (
    Cascade,
    LogitAverage,
    RuleFunction,
    SoftmaxAverage,
    WeightsByImage,
    is_undecided,
    scores_of,
)
from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.classifier import Precision, SmoothedClassifier
from rs.smoothing.inputs import check_draws
from rs.smoothing.noise import Noise
from rs.smoothing.settings import Draws
from rs.smoothing.vote_counting import Tally, VoteCounter, certificate, winner
from rs.statistics.certificate import Certificate

TOGETHER = 2**18
"""Scores of softmax averages that are held at once."""


@dataclass(frozen=True)
class PoolEntry:
    """A classifier of a pool: some of its members, by number, and a rule. One member alone is an entry of one."""

    member_ids: tuple[int, ...]
    rule: RuleFunction | WeightsByImage = field(default_factory=LogitAverage)
    provenance: dict[str, Any] = field(default_factory=dict)  # what it is, for the sidecar of its rows

    def for_image(self, index: int) -> PoolEntry:
        """Return the entry with the rule of an image; itself, unless the rule depends on the image."""
        return replace(self, rule=self.rule.for_image(index)) if isinstance(self.rule, WeightsByImage) else self

    @cached_property
    def undecided(self) -> bool:
        """Whether the rule has an extra last class, which is never a prediction."""
        return is_undecided(self.fixed_rule, len(self.member_ids))

    @property
    def fixed_rule(self) -> RuleFunction:
        """The rule, which must not depend on the image any more (:meth:`for_image`)."""
        assert not isinstance(self.rule, WeightsByImage)
        return self.rule


Votes = dict[str, Tally]
"""Votes per class of each entry, by name; with the evaluations of members that a cascade takes alone."""

Visitor = Callable[[Sequence[Tensor], int], None]
"""Takes the logits of the members that are needed, (N, K) each, in order of their numbers, and the number of draws."""


class MemberLogits(nn.Module):
    """The members that are needed, each evaluated once: images -> logits (N, K) of each, in order."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members, self.needed = nn.ModuleList(networks), tuple(range(len(networks)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Logits of images."""
        return [self.members[number](x) for number in self.needed]


@dataclass(frozen=True)
class NoisyPool:
    """The members of a pool on noisy copies of one image: as they run (:func:`noisy_pool`), or from a cache."""

    member_count: int  # L
    num_classes: int
    sigma: float
    draws: Draws
    index: int  # of the image
    device: torch.device  # of the logits
    noise: Noise
    visit: Callable[[Visitor, tuple[int, ...], int, Stream], None]
    """Show a visitor the logits of these members on so many draws of a phase."""

    def certify(self, entries: Mapping[str, PoolEntry], label: int | None = None) -> dict[str, Certificate]:
        """CERTIFY every entry with two passes; the second is for those whose class is ``label``, if that is given."""
        entries, draws = entries_for(entries, self.index, self.member_count), self.draws
        first = count_votes(self, entries, draws.n0, Stream.SELECT)
        kept = {
            name: entry
            for name, entry in entries.items()
            if label is None or winner(first[name].votes, entry.undecided) == label
        }
        second = count_votes(self, kept, draws.n, Stream.ESTIMATE) if kept else {}
        return {
            name: certificate(
                first[name], second.get(name), draws.alpha, self.sigma, self.noise, undecided=entry.undecided
            )
            for name, entry in entries.items()
        }


def noisy_pool(
    members: Sequence[nn.Module],
    num_classes: int,
    sigma: float,
    x: Tensor,
    draws: Draws,
    *,
    index: int = 0,
    noise: Noise | None = None,
    precision: Precision = "float32",
    batch: int | None = None,
) -> NoisyPool:
    """Return the members on noisy copies of ``x``; arguments are those of :func:`certify_entries`."""
    check_draws(x, draws.alpha, n0=draws.n0, n=draws.n)
    base = MemberLogits(members)
    classifier = SmoothedClassifier(base, num_classes, sigma, noise=noise, precision=precision, batch=batch)

    def visit(visitor: Visitor, needed: tuple[int, ...], number: int, phase: Stream) -> None:
        base.needed = needed
        classifier.visit(visitor, x, number, draws.seed, phase, index)

    return NoisyPool(len(members), num_classes, sigma, draws, index, x.device, classifier.noise_of(x), visit)


def certify_entries(
    members: Sequence[nn.Module],
    entries: Mapping[str, PoolEntry],
    num_classes: int,
    sigma: float,
    x: Tensor,
    draws: Draws,
    *,
    index: int = 0,
    label: int | None = None,
    noise: Noise | None = None,
    precision: Precision = "float32",
    batch: int | None = None,
) -> dict[str, Certificate]:
    """Certify every entry on one image, with one evaluation of each member on each noisy image.

    A certificate is that of ``SmoothedClassifier(Ensemble(its members, its rule), ...).certify(...)`` with the same
    arguments, byte for byte on a CPU. Where a rule has an extra class "undecided" and ``n0`` draws choose it, the entry
    abstains; its counts have K + 1 entries.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K).
        entries: The classifiers to certify, by name.
        num_classes, sigma, noise, precision, batch: As for ``SmoothedClassifier``.
        x, index, label: As for its ``certify``. With ``label`` the second pass is made for the entries, and evaluates
            the members, that still need it.
        draws: The other arguments of ``certify``.
    """
    noisy = noisy_pool(
        members, num_classes, sigma, x, draws, index=index, noise=noise, precision=precision, batch=batch
    )
    return noisy.certify(entries, label)


def select_classes(
    members: Sequence[nn.Module],
    entries: Mapping[str, PoolEntry],
    num_classes: int,
    sigma: float,
    x: Tensor,
    n0: int,
    *,
    seed: int = 0,
    **settings: Any,
) -> dict[str, int]:
    """Return the class that ``n0`` draws select for each entry, ABSTAIN for "undecided": the first pass of CERTIFY.

    Arguments are those of :func:`certify_entries`; ``settings`` its ``index``, ``noise``, ``precision`` and ``batch``.
    """
    # No class has the number K, so every entry skips its n draws.
    draws = Draws(n0, n=1, alpha=0.5, seed=seed)
    certificates = certify_entries(members, entries, num_classes, sigma, x, draws, label=num_classes, **settings)
    return {name: certified.predict for name, certified in certificates.items()}


def count_votes(noisy: NoisyPool, entries: Mapping[str, PoolEntry], number: int, phase: Stream) -> Votes:
    """Count the votes of each entry on ``number`` draws of a phase, from one evaluation of the members they need."""
    needed = tuple(sorted({number for entry in entries.values() for number in entry.member_ids}))
    num_classes, device = noisy.num_classes, noisy.device
    placed = [(entry.fixed_rule, tuple(map(needed.index, entry.member_ids))) for entry in entries.values()]
    lazy = [isinstance(rule, Cascade) for rule, _ in placed]  # these vote NaN where they must
    uses = torch.tensor(
        [
            [number in members and not own for number in range(len(needed))]
            for (_, members), own in zip(placed, lazy, strict=True)
        ],
        device=device,
    )
    widths = [num_classes + entry.undecided for entry in entries.values()]
    counter, evaluations = VoteCounter(widths, device), torch.zeros(len(placed), dtype=torch.int64, device=device)
    averages = list(_Averages.all_of(placed, device))
    others = [
        (torch.tensor([number], device=device), widths[number], rule, members)
        for number, (rule, members) in enumerate(placed)
        if type(rule) is not SoftmaxAverage
    ]

    def vote(logits: Sequence[Tensor], draws: int) -> None:
        outputs = Outputs(logits)
        for numbers, width, rule, members in others:
            if isinstance(rule, Cascade):
                scores, taken = rule.decide(outputs.of(members))
                evaluations[numbers] += taken.sum()
            else:
                scores = scores_of(rule, outputs.of(members))
            counter.add(scores[None], (draws, width), numbers)
        for together in averages:
            for numbers, scores in together.scores(outputs):
                counter.add(scores, (draws, num_classes), numbers)
        counter.broken |= (uses & outputs.nan.any(dim=1)).any(dim=1)  # no rule hides a member that is not a number

    noisy.visit(vote, needed, number, phase)
    tallies = zip(entries, counter.fetch(), lazy, evaluations.tolist(), strict=True)
    return {name: Tally(votes, evaluated if own else None) for name, votes, own, evaluated in tallies}


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
        found: dict[int, list[tuple[int, tuple[int, ...], tuple[float, ...]]]] = {}
        for number, (rule, members) in enumerate(placed):
            if type(rule) is SoftmaxAverage:
                found.setdefault(len(members), []).append((number, members, rule.for_members(len(members))))
        for alike in found.values():
            yield cls(
                torch.tensor([number for number, _, _ in alike], device=device),
                torch.tensor([members for _, members, _ in alike], device=device),
                torch.tensor([weights for _, _, weights in alike], dtype=torch.float64, device=device),
            )

    def scores(self, outputs: Outputs) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (E, N, K) of so many classifiers at once as stay near the processor, with their numbers."""
        values = outputs.probabilities_by_draw
        at_once = max(1, TOGETHER // values[0].numel())
        for start in range(0, len(self.numbers), at_once):
            part = slice(start, start + at_once)
            terms = (values[own] for own in self.members[part].unbind(-1))
            yield self.numbers[part], summed(self.weights[part], terms)


def entries_for(entries: Mapping[str, PoolEntry], index: int, member_count: int) -> dict[str, PoolEntry]:
    """Return the entries with the rules of an image, after checking that they are of these ``members``.

    Raises:
        InputError: If there is none, or one is of other members.
        ValueError: If a rule does not fit the number of its members.
    """
    if not entries:
        raise InputError("there must be at least one classifier to certify, got none")
    of_image = {name: entry.for_image(index) for name, entry in entries.items()}
    for name, entry in of_image.items():
        if not entry.member_ids or not set(entry.member_ids) <= set(range(member_count)):
            raise InputError(f"{name} must name members from 0 to {member_count - 1}, got {entry.member_ids}")
        entry.undecided  # noqa: B018  tries the rule, so that one that does not fit says so before the work begins
    return of_image
