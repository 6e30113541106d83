"""One noise pass certifies every member and every ensemble of a pool.

Members are evaluated once on each noisy image and all rules vote on the same outputs. Every
certificate is the one that its classifier would get alone, and holds with its own probability 1 -
alpha. The best of them, picked for each image afterwards, holds with a smaller probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn

from rs.ensemble.base import Cascade, LogitAverage, Rule, SoftmaxAverage, scores_of
from rs.ensemble.outputs import Outputs, summed
from rs.errors import InputError
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.inputs import check_draws, logits_of
from rs.smoothing.settings import Draws
from rs.smoothing.vote_counting import Tally, VoteCounter, certificate_of_votes, winner
from rs.statistics.certificate import Certificate
from rs.storage.provenance import Provenance

SCORES_AT_ONCE = 2**18
"""Scores of softmax averages that are held at once."""


@dataclass(frozen=True)
class PoolEntry:
    """A classifier of a pool: some of its members, by number, and a rule. One member alone is an
    entry of one.
    """

    member_ids: tuple[int, ...]
    rule: Rule = field(default_factory=LogitAverage)
    provenance: Provenance = field(default_factory=Provenance)  # of its rows, without the run
    weights_by_image: Mapping[int, Sequence[float]] | None = (
        None  # scope per-image: of softmax averages, frozen
    )

    def __post_init__(self) -> None:
        self.rule.check_members(len(self.member_ids))

    def for_image(self, index: int) -> PoolEntry:
        """Return the entry with the rule of an image; itself, unless the rule depends on the image."""
        if self.weights_by_image is None:
            return self
        return replace(
            self, rule=SoftmaxAverage(self.weights_by_image[index]), weights_by_image=None
        )


class MemberLogits(nn.Module):
    """The members that are needed, each evaluated once: images -> logits (N, K) of each, in order."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks, self.needed = nn.ModuleList(networks), tuple(range(len(networks)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the logits of images."""
        return [logits_of(self.networks[number](x)) for number in self.needed]


@dataclass(frozen=True)
class NoisyPool:
    """The members of a pool on noisy copies of one image; each is evaluated once on each of them."""

    classifier: SmoothedClassifier  # of :class:`MemberLogits`
    x: Tensor  # (C, H, W)
    draws: Draws
    index: int = 0  # of the image

    def __post_init__(self) -> None:
        if self.classifier.num_classes is None:
            raise InputError(
                "classifier must have a number of classes, got None; give it num_classes"
            )
        check_draws(self.x, self.draws.alpha, n0=self.draws.n0, n=self.draws.n)

    def certify(
        self, entries: Mapping[str, PoolEntry], label: int | None = None
    ) -> dict[str, Certificate]:
        """Certify every entry with two passes.

        A certificate is that of ``SmoothedClassifier(Ensemble(its members, its rule),
        ...).certify(...)`` with the same arguments, byte for byte on a CPU. Where a rule has an
        extra class "undecided" and ``n0`` draws choose it, the entry abstains; its counts have K +
        1 entries.

        Args:
            entries: The classifiers to certify, by name.
            label: The evaluation shortcut, if given: the second pass is made for the entries whose
                selected class it is, and evaluates the members that these need.
        """
        entries = {name: entry.for_image(self.index) for name, entry in entries.items()}
        first = self.count_votes(entries, self.draws.n0, Stream.SELECT)
        remaining = {
            name: entry
            for name, entry in entries.items()
            if label is None or winner(first[name].votes, entry.rule.undecided) == label
        }
        second = self.count_votes(remaining, self.draws.n, Stream.ESTIMATE) if remaining else {}
        sigma, noise = self.classifier.sigma, self.classifier.noise_of(self.x)
        return {
            name: certificate_of_votes(
                first[name],
                second.get(name),
                self.draws.alpha,
                sigma,
                noise,
                undecided=entry.rule.undecided,
            )
            for name, entry in entries.items()
        }

    def select(self, entries: Mapping[str, PoolEntry]) -> dict[str, int]:
        """Return the class that the n0 draws select for each entry, ABSTAIN for "undecided"."""
        entries = {name: entry.for_image(self.index) for name, entry in entries.items()}
        tallies = self.count_votes(entries, self.draws.n0, Stream.SELECT)
        return {
            name: winner(tallies[name].votes, entry.rule.undecided)
            for name, entry in entries.items()
        }

    def count_votes(
        self, entries: Mapping[str, PoolEntry], draws: int, phase: Stream
    ) -> dict[str, Tally]:
        """Count the votes of each entry on the draws of a phase, from one evaluation of the members
        they need.
        """
        needed = tuple(
            sorted({number for entry in entries.values() for number in entry.member_ids})
        )
        voters = [
            (entry.rule, tuple(map(needed.index, entry.member_ids))) for entry in entries.values()
        ]
        num_classes, device = cast(int, self.classifier.num_classes), self.x.device
        widths = [num_classes + entry.rule.undecided for entry in entries.values()]
        counter = VoteCounter(widths, device)
        evaluations = torch.zeros(len(voters), dtype=torch.int64, device=device)
        averages = list(_Averages.all_of(voters, device))
        others = [
            (torch.tensor([row], device=device), widths[row], rule, positions)
            for row, (rule, positions) in enumerate(voters)
            if type(rule) is not SoftmaxAverage
        ]

        def vote(member_logits: Sequence[Tensor], count: int) -> None:
            outputs = Outputs(member_logits)
            for rows, width, rule, positions in others:
                if isinstance(rule, Cascade):
                    scores, asked = rule.decide(outputs.of(positions))
                    evaluations[rows] += asked.sum()
                else:
                    scores = scores_of(rule, outputs.of(positions))
                counter.add(scores[None], (count, width), rows)
            for group in averages:
                for rows, scores in group.scores(outputs):
                    counter.add(scores, (count, num_classes), rows)

        cast(MemberLogits, self.classifier.base).needed = needed
        self.classifier.visit(vote, self.x, draws, self.draws.seed, phase, self.index)
        return {
            name: Tally(votes, asked if isinstance(entry.rule, Cascade) else None)
            for (name, entry), votes, asked in zip(
                entries.items(), counter.fetch(), evaluations.tolist(), strict=True
            )
        }


@dataclass(frozen=True)
class _Averages:
    """The softmax averages of a pool with equally many members, evaluated together."""

    rows: Tensor  # of the classifiers in the counter, (E,)
    positions: Tensor  # of their members among those needed, (E, L)
    weights: Tensor  # (E, L), float64

    @classmethod
    def all_of(
        cls, voters: Sequence[tuple[Rule, tuple[int, ...]]], device: torch.device
    ) -> Iterator[_Averages]:
        """Group the classifiers that are averages by their number of members."""
        by_count: dict[int, list[tuple[int, tuple[int, ...], tuple[float, ...]]]] = {}
        for row, (rule, positions) in enumerate(voters):
            if type(rule) is SoftmaxAverage:
                count = len(positions)
                by_count.setdefault(count, []).append((row, positions, rule.for_members(count)))
        for group in by_count.values():
            rows, positions, weights = zip(*group, strict=True)
            yield cls(
                torch.tensor(rows, device=device),
                torch.tensor(positions, device=device),
                torch.tensor(weights, dtype=torch.float64, device=device),
            )

    def scores(self, outputs: Outputs) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the scores (E, N, K) of as many classifiers as stay near the processor, with their
        rows.
        """
        probabilities = outputs.probabilities_by_draw
        at_once = max(1, SCORES_AT_ONCE // probabilities[0].numel())
        for start in range(0, len(self.rows), at_once):
            part = slice(start, start + at_once)
            terms = (probabilities[position] for position in self.positions[part].unbind(-1))
            yield self.rows[part], summed(self.weights[part], terms)
