"""One noise pass certifies every member and every ensemble of a pool.

Each member is evaluated once per noisy image, and all rules vote on the same outputs. Every
certificate is the one that its classifier would get alone, and holds with probability 1 - alpha.
If the best certificate is picked for each image afterward, this probability is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rs.ensemble.base import Cascade, LogitAverage, Rule, SoftmaxAverage, scores_of
from rs.ensemble.outputs import Outputs, summed
from rs.errors import InputError
from rs.params import PIXELS
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
    """A classifier of a pool: members and their rule; a single model has one member."""

    member_ids: tuple[int, ...]  # positions in the pool
    rule: Rule = field(default_factory=LogitAverage)
    provenance: Provenance = field(default_factory=Provenance)  # of its rows, without the run
    # scope per-image: the weights of a softmax average for each image
    weights_by_image: Mapping[int, Sequence[float]] | None = None

    def __post_init__(self) -> None:
        self.rule.check_members(len(self.member_ids))

    def for_image(self, index: int) -> PoolEntry:
        """Return the entry with the rule of one image."""
        if self.weights_by_image is None:
            return self
        rule = SoftmaxAverage(self.weights_by_image[index])
        return replace(self, rule=rule, weights_by_image=None)


class MemberLogits(nn.Module):
    """Members of a pool as one network: images -> logits (N, K) of each needed member, in order."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.needed = tuple(range(len(networks)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the logits of images."""
        return [logits_of(self.networks[number](x)) for number in self.needed]


@dataclass(frozen=True)
class NoisyPool:
    """The members of a pool on noisy copies of one image."""

    classifier: SmoothedClassifier  # of :class:`MemberLogits`
    x: Tensor  # (C, H, W)
    draws: Draws
    index: int = 0  # of the image

    def __post_init__(self) -> None:
        if self.classifier.num_classes is None:
            raise InputError(
                "classifier must have a number of classes, got None; give it num_classes"
            )
        check_draws(self.x, self.draws.alpha, PIXELS, n0=self.draws.n0, n=self.draws.n)

    def certify(
        self, entries: Mapping[str, PoolEntry], label: int | None = None
    ) -> dict[str, Certificate]:
        """Certify every entry with two noise passes.

        A certificate is that of ``SmoothedClassifier(Ensemble(its members, its rule),
        ...).certify(...)`` with the same arguments, byte for byte on a CPU.

        Args:
            entries: The classifiers to certify, by name.
            label: If given, the second pass is skipped for entries that select another class.
        """
        entries = {name: entry.for_image(self.index) for name, entry in entries.items()}
        first = self.count_votes(entries, self.draws.n0, Stream.SELECT)
        remaining = {}
        for name, entry in entries.items():
            if label is None or winner(first[name].votes) == label:
                remaining[name] = entry
        second = {}
        if remaining:
            second = self.count_votes(remaining, self.draws.n, Stream.ESTIMATE)
        noise = self.classifier.noise_of(self.x)
        certificates = {}
        for name, tally in first.items():
            certificates[name] = certificate_of_votes(
                tally, second.get(name), self.draws.alpha, self.classifier.sigma, noise
            )
        return certificates

    def count_votes(
        self, entries: Mapping[str, PoolEntry], draws: int, phase: Stream
    ) -> dict[str, Tally]:
        """Return the votes of each entry in one noise pass, which evaluates only needed members."""
        needed = sorted({*chain.from_iterable(entry.member_ids for entry in entries.values())})
        position_of = {number: position for position, number in enumerate(needed)}
        num_classes = cast(int, self.classifier.num_classes)
        voters = []
        for row, entry in enumerate(entries.values()):
            positions = [position_of[number] for number in entry.member_ids]
            voters.append(_Voter(row, entry.rule, positions))
        device = self.x.device
        counter = VoteCounter(len(voters), num_classes, device)
        evaluations = torch.zeros(len(voters), dtype=torch.int64, device=device)
        averages = list(_Averages.all_of(voters, device))
        other_voters = [voter for voter in voters if type(voter.rule) is not SoftmaxAverage]

        def vote(member_logits: Sequence[Tensor], count: int) -> None:
            outputs = Outputs(member_logits)
            for voter in other_voters:
                rows = slice(voter.row, voter.row + 1)
                own_outputs = outputs.of(voter.positions)
                if isinstance(voter.rule, Cascade):
                    scores, evaluated = voter.rule.decide(own_outputs)
                    evaluations[rows] += evaluated.sum()
                else:
                    scores = scores_of(voter.rule, own_outputs)
                counter.add(scores[None], count, rows)
            for group in averages:
                for group_rows, scores in group.scores(outputs):
                    counter.add(scores, count, group_rows)

        classifier = self.classifier
        cast(MemberLogits, classifier.base).needed = tuple(needed)
        with classifier.evaluation_mode(self.x):
            key = (self.draws.seed, phase, self.index)
            for batch in classifier.noisy_copies(self.x, draws, *key):
                vote(classifier.base(batch), len(batch))
        votes = counter.fetch()
        evaluated = evaluations.tolist()
        tallies = {}
        for row, (name, entry) in enumerate(entries.items()):
            is_cascade = isinstance(entry.rule, Cascade)
            tallies[name] = Tally(votes[row], evaluated[row] if is_cascade else None)
        return tallies


class _Voter(NamedTuple):
    """A classifier of a pool in one noise pass."""

    row: int  # in the vote counter
    rule: Rule
    positions: list[int]  # of its members among the needed ones


@dataclass(frozen=True)
class _Averages:
    """Softmax averages with the same number of members, evaluated together."""

    rows: Tensor  # in the vote counter, (E,)
    positions: Tensor  # of their members among the needed ones, (E, L)
    weights: Tensor  # (E, L), float64

    @classmethod
    def all_of(cls, voters: Sequence[_Voter], device: torch.device) -> Iterator[_Averages]:
        """Yield the softmax averages among voters, grouped by their number of members."""
        groups: dict[int, list[_Voter]] = {}
        for voter in voters:
            if type(voter.rule) is SoftmaxAverage:
                groups.setdefault(len(voter.positions), []).append(voter)
        for count, group in groups.items():
            weights = [cast(SoftmaxAverage, voter.rule).for_members(count) for voter in group]
            yield cls(
                torch.tensor([voter.row for voter in group], device=device),
                torch.tensor([voter.positions for voter in group], device=device),
                torch.tensor(weights, dtype=torch.float64, device=device),
            )

    def scores(self, outputs: Outputs) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield counter rows (E,) and scores (E, N, K), of few enough classifiers for the cache."""
        probabilities = outputs.probabilities_by_draw
        at_once = max(1, SCORES_AT_ONCE // probabilities[0].numel())
        for start in range(0, len(self.rows), at_once):
            part = slice(start, start + at_once)
            terms = (probabilities[position] for position in self.positions[part].unbind(-1))
            yield self.rows[part], summed(self.weights[part], terms)
