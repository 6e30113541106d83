"""Ensembles: several classifiers as one, whose argmax is its vote on a noisy image.

A *rule* turns the logits of L members, (L, N, K), into scores, (N, K). It is one fixed function of
the noisy image, so an :class:`Ensemble` is an ordinary base classifier and its certificate the
ordinary one. Rules compute in float64: in float32 a softmax is exactly 1 from a margin of 17 on,
and ties would go to the lowest class, not to the more confident member. This module has the rules
that other modules need by name; :mod:`rs.ensemble.rules` has the others, and the table of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rs.ensemble.cascade import CascadeOutput, accumulate, evaluate_cascade, top_two_gap
from rs.ensemble.outputs import Outputs, on_simplex, weighted
from rs.smoothing.inputs import logits_of
from rs.smoothing.soft import LOG_CLAMP
from rs.study.ensembles import Combination


class Rule:
    """From logits of members (L, N, K) to scores (N, K).

    It takes :class:`Outputs`, so that rules on the same members share what they compute.
    """

    scopes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What its weights can depend on (``rs.statistics.certificate.SCOPES``), each with the
    :data:`PARTS` it needs.
    """
    solvable: ClassVar[bool] = False
    """Whether its weights can be solved for, from the margins of softmax outputs."""

    @classmethod
    def build(cls, combination: Combination, solution: Sequence[float] | None) -> Rule:
        """Return the rule of a valid combination.

        ``solution`` is fitted weights (L,), or thresholds (L - 1,) of a cascade; ``None`` for
        equal weights.
        """
        make: Callable[..., Rule] = cls
        return make() if solution is None else make(solution)

    def check_members(self, member_count: int) -> None:
        """Check that it is a rule for this number of members, by trying it.

        Raises:
            ValueError: If not.
        """
        self(torch.zeros(member_count, 1, 2))

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the scores (N, K) of the members' outputs."""
        raise NotImplementedError

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the scores of logits: (L, N, K) -> (N, K)."""
        return self.scores(Outputs(logits))


@dataclass(frozen=True)
class _Average(Rule):
    scopes: ClassVar = {"global": ("weights",)}
    weights: Sequence[float] | None = None  # (L,), on the simplex; None for equal weights

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", on_simplex(self.weights))

    def for_members(self, member_count: int) -> tuple[float, ...]:
        """Return the weights of that many members."""
        if self.weights:
            return tuple(self.weights)
        return (1 / member_count,) * member_count


class SoftmaxAverage(_Average):
    """H(x) = sum_l w_l softmax(F^l(x)): the paper's rule.

    >>> SoftmaxAverage([0.5, 0.5])(torch.tensor([[[0.0, 0.0]], [[0.0, 50.0]]])).round(decimals=3)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    scopes: ClassVar = {"global": ("weights",), "per-image": ("weights", "target")}
    solvable: ClassVar = True

    def scores(self, outputs: Outputs) -> Tensor:
        """Return (N, K), float64."""
        return weighted(self.for_members(len(outputs.member_logits)), outputs.probabilities)


class LogitAverage(_Average):
    """sum_l w_l F^l(x), for members whose logits have one scale. A single member stays as it is."""

    def scores(self, outputs: Outputs) -> Tensor:
        """Return (N, K), float64; the unchanged logits of a single member."""
        logits = outputs.member_logits
        weights = self.for_members(len(logits))
        if len(weights) == len(logits) == 1:
            return logits[0]
        return weighted(weights, outputs.logits)


@dataclass(frozen=True)
class Cascade(Rule):
    """The softmax average of the first j members, for the smallest j at which it is clear.

    It is clear if its largest class leads the second by ``thresholds[j - 1]`` or more; otherwise
    all L members are averaged. So it is a fixed function of the noisy image, like every rule. A
    threshold of 0 always decides, one above 1 never does. :meth:`Ensemble.evaluate_cascade` skips
    the members that are not needed.
    """

    scopes: ClassVar = {"noisy-input": ("thresholds", "share")}
    thresholds: Sequence[float]  # (L - 1,), at least 0

    def __post_init__(self) -> None:
        if not all(threshold >= 0 for threshold in self.thresholds):  # or NaN
            raise ValueError(
                f"thresholds must be at least 0, got {self.thresholds}; they are leads of "
                "probabilities"
            )
        object.__setattr__(self, "thresholds", tuple(map(float, self.thresholds)))

    def scores(self, outputs: Outputs) -> Tensor:
        """Return j / L of the average, (N, K), float64; NaN if an evaluated member returns NaN."""
        return self.decide(outputs)[0]

    def decide(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return the scores (N, K), and the number of members that each sample takes, (N,)."""
        first, *others = outputs.probabilities
        member_count = len(outputs.member_logits)
        if len(self.thresholds) != member_count - 1:
            raise ValueError(
                f"there must be one threshold for each of {member_count} members but the last"
            )
        total = scores = accumulate(None, first, member_count)
        evaluated = torch.ones(len(first), dtype=torch.int64, device=first.device)
        is_undecided = evaluated > 0
        for number, threshold in enumerate(self.thresholds, start=1):
            gap = top_two_gap(total, number, member_count)
            is_undecided = is_undecided & ~(gap >= threshold)  # a gap that is NaN decides nothing
            total = accumulate(total, others[number - 1], member_count)
            scores = torch.where(is_undecided[:, None], total, scores)
            evaluated = evaluated + is_undecided
        return scores, evaluated


def scores_of(rule: Rule, outputs: Outputs) -> Tensor:
    """Return the scores of any rule, (N, K).

    They are NaN where the largest logit of a member is not finite, so no rule hides it. The scores
    of a cascade depend only on the members that it evaluates.
    """
    scores = rule.scores(outputs)
    if isinstance(rule, Cascade):
        return scores
    return scores.masked_fill(outputs.broken.any(dim=0)[:, None], torch.nan)


class Ensemble(nn.Module):
    """Members and a rule as one classifier: images (N, C, H, W) -> scores (N, K).

    The argmax is the vote.
    """

    def __init__(self, members: Sequence[nn.Module], rule: Rule) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble must have at least one member, got none")
        rule.check_members(len(members))
        self.members = nn.ModuleList(members)
        self.rule = rule

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of images."""
        logits = [logits_of(member(x)) for member in self.members]
        return scores_of(self.rule, Outputs(logits))

    @property
    def surrogate(self) -> nn.Module:
        """The members' average on a log scale, whatever the rule: what attacks differentiate."""
        return LogEnsemble([*self.members], SoftmaxAverage())

    @property
    def lazy(self) -> bool:
        """Whether samples differ in the members they need (:meth:`evaluate_cascade`)."""
        return isinstance(self.rule, Cascade)

    def evaluate_cascade(self, batches: Iterable[Tensor]) -> Iterator[CascadeOutput]:
        """Yield the scores of ``forward`` in another order, evaluating only needed members.

        Args:
            batches: Of images. The images that need a member are gathered from all batches.
        """
        assert isinstance(self.rule, Cascade)
        return evaluate_cascade([*self.members], self.rule.thresholds, batches)

    def extra_repr(self) -> str:
        """Return the rule and its weights, which are part of what the classifier is."""
        return repr(self.rule)


class LogEnsemble(Ensemble):
    """The logarithms of the scores of an ensemble, as logits."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of images, in float64."""
        return super().forward(x).clamp_min(LOG_CLAMP).log()
