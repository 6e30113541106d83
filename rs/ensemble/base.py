"""Ensembles: several classifiers as one, whose argmax is its vote on a noisy image.

A *rule* turns the logits of L members, (L, N, K), into scores, (N, K). It is one fixed function of
the noisy image, so an :class:`Ensemble` is an ordinary base classifier and its certificate the
ordinary one. Rules compute in float64: in float32 a softmax is exactly 1 from a margin of 17 on,
and ties would go to the lowest class, not to the surer member. Here are the rules that other
modules need by name; :mod:`rs.ensemble.rules` has the others, and the table of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rs.ensemble.cascade import CascadeOutput, accumulate, evaluate_cascade, top_two_gap
from rs.ensemble.outputs import Outputs, on_simplex, one_hot, weighted
from rs.smoothing.inputs import logits_of
from rs.statistics.ensemble_weights import box_vertices
from rs.study.ensembles import Combination


class Rule:
    """From logits of the members (L, N, K) to scores (N, K), or (N, K + 1) where the last one is a
    vote for no class.

    It takes :class:`Outputs`, so that rules on the same members share what they compute.
    """

    scopes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What its weights can depend on (``rs.statistics.certificate.SCOPES``), each with the
    :data:`PARTS` it needs.
    """
    undecided: ClassVar[bool] = False
    """Whether there is an extra last score, a vote for no class."""
    solvable: ClassVar[bool] = False
    """Whether its weights can be solved for, from the margins of softmax outputs."""

    @classmethod
    def build(
        cls, combination: Combination, member_count: int, solution: Sequence[float] | None
    ) -> Rule:
        """Return the rule of a combination that fits that many members (:func:`check_rule`,
        ``check_members``).

        ``solution`` is weights (L,), or the thresholds (L - 1,) of a cascade; ``None`` for equal
        weights.
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
    weights: Sequence[float] | None = None  # on the simplex, one for each member; equal if None

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", on_simplex(self.weights))

    def for_members(self, member_count: int) -> tuple[float, ...]:
        """Return weights of that many members."""
        return tuple(self.weights) if self.weights else (1 / member_count,) * member_count


class SoftmaxAverage(_Average):
    """H(x) = sum_l w_l softmax(F^l(x)): the paper's rule.

    >>> SoftmaxAverage([0.5, 0.5])(torch.tensor([[[0.0, 0.0]], [[0.0, 50.0]]])).round(decimals=3)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    scopes: ClassVar = {
        "global": ("weights",),
        "set": ("low", "high"),
        "per-image": ("weights", "target"),
    }
    solvable: ClassVar = True

    @classmethod
    def build(
        cls, combination: Combination, member_count: int, solution: Sequence[float] | None
    ) -> Rule:
        """Return the average with these weights; of scope ``set`` the :class:`Polytope` of all
        weights in the box.
        """
        low, high = combination.low, combination.high
        if (
            combination.scope == "set" and low is not None and high is not None
        ):  # its scope needs both
            return Polytope(box_vertices(low, high, member_count).tolist())
        return cls(solution)

    def scores(self, outputs: Outputs) -> Tensor:
        """Return (N, K), float64."""
        return weighted(self.for_members(len(outputs.member_logits)), outputs.probabilities)


class LogitAverage(_Average):
    """sum_l w_l F^l(x): the members need one scale of logits for it. Of one member it is that
    member.
    """

    def scores(self, outputs: Outputs) -> Tensor:
        """Return (N, K), float64; of one member its logits as they are."""
        logits = outputs.member_logits
        weights = self.for_members(len(logits))
        return logits[0] if len(weights) == len(logits) == 1 else weighted(weights, outputs.logits)


@dataclass(frozen=True)
class Cascade(Rule):
    """The softmax average of the first j members, j being the least at which it is clear, or else
    of all L members.

    It is clear where its largest class leads the second by ``thresholds[j - 1]`` or more: a fixed
    function of the noisy image, like every rule. A threshold of 0 always decides, one above 1 never
    does. An :class:`Ensemble` evaluates the members that follow on the other draws alone
    (:meth:`Ensemble.evaluate_cascade`).
    """

    scopes: ClassVar = {"noisy-input": ("thresholds", "share")}
    thresholds: Sequence[float]  # (L - 1,), at least 0

    def __post_init__(self) -> None:
        if not all(threshold >= 0 for threshold in self.thresholds):
            raise ValueError(
                f"thresholds must be at least 0, got {self.thresholds}; they are leads of "
                "probabilities"
            )
        object.__setattr__(self, "thresholds", tuple(map(float, self.thresholds)))

    def scores(self, outputs: Outputs) -> Tensor:
        """Return j / L of the average of j members, (N, K), float64; NaN where a member that was
        asked gives it.
        """
        return self.decide(outputs)[0]

    def decide(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return the scores (N, K), and how many members each draw takes, (N,)."""
        first, *others = outputs.probabilities
        member_count = len(outputs.member_logits)
        if len(self.thresholds) != member_count - 1:
            raise ValueError(
                f"there must be one threshold for each of {member_count} members but the last"
            )
        total = scores = accumulate(None, first, member_count)
        taken = torch.ones(len(first), dtype=torch.int64, device=first.device)
        undecided = taken > 0
        for asked, (threshold, values) in enumerate(
            zip(self.thresholds, others, strict=True), start=1
        ):
            # a gap that is not a number decides nothing
            undecided = undecided & ~(top_two_gap(total, asked, member_count) >= threshold)
            total = accumulate(total, values, member_count)
            scores = torch.where(undecided[:, None], total, scores)
            taken = taken + undecided
        return scores, taken


@dataclass(frozen=True)
class Polytope(Rule):
    """The class that wins the softmax average at every vertex of a polytope of weights, else
    "undecided".

    The margin of two classes is linear in the weights, so a class that wins at the vertices wins
    for all weights in between. If it does so in more than half of the draws, by a bound q, then
    within sigma Phi^-1(q) the smoothed class is the same for *any* way of choosing weights in the
    polytope: by the image, at random, or against us. A combination names it by the rule softmax and
    the scope ``set``.
    """

    undecided: ClassVar = True
    vertices: Sequence[Sequence[float]]  # (V, L), each on the simplex

    def __post_init__(self) -> None:
        vertices = tuple(
            on_simplex(vertex)
            for vertex in np.atleast_2d(np.asarray(self.vertices, dtype=np.float64))
        )
        object.__setattr__(self, "vertices", vertices)

    def scores(self, outputs: Outputs) -> Tensor:
        """Return 1 for the class that wins everywhere, or for the extra last one; else 0; (N, K +
        1).
        """
        classes = outputs.probabilities.shape[-1]
        winners = (
            weighted(tuple(map(tuple, self.vertices)), outputs.probabilities).max(dim=-1).indices
        )  # (V, N)
        agreed = (winners == winners[0]).all(dim=0)
        return one_hot(torch.where(agreed, winners[0], classes), classes + 1)


def scores_of(rule: Rule, outputs: Outputs) -> Tensor:
    """Return the scores of any rule, (N, K) or (N, K + 1): NaN where the largest logit of a member
    is not finite.

    So no rule hides it. The scores of a cascade depend on the members alone that it evaluates.
    """
    scores = rule.scores(outputs)
    return (
        scores
        if isinstance(rule, Cascade)
        else scores.masked_fill(outputs.broken.any(dim=0)[:, None], torch.nan)
    )


class Ensemble(nn.Module):
    """Members and a rule as one classifier: images (N, C, H, W) -> scores (N, K), whose argmax is
    the vote.

    ``undecided`` tells whether there is an extra last score, also to ``SmoothedClassifier``.
    """

    def __init__(self, members: Sequence[nn.Module], rule: Rule) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble must have at least one member, got none")
        rule.check_members(len(members))
        self.members, self.rule, self.undecided = nn.ModuleList(members), rule, rule.undecided

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of images."""
        return scores_of(self.rule, Outputs([logits_of(member(x)) for member in self.members]))

    @property
    def lazy(self) -> bool:
        """Whether there is :meth:`evaluate_cascade`: whether draws differ in the members that they
        need.
        """
        return isinstance(self.rule, Cascade)

    def evaluate_cascade(self, batches: Iterable[Tensor]) -> Iterator[CascadeOutput]:
        """Yield the scores of images, draw by draw those of ``forward``, without evaluating the
        members not needed.

        Args:
            batches: Of images. Those that a member is needed for are gathered from all of them, so
                the scores come in another order.
        """
        assert isinstance(self.rule, Cascade)
        return evaluate_cascade([*self.members], self.rule.thresholds, batches)

    def extra_repr(self) -> str:
        """Return the rule and its weights, which are part of what the classifier is."""
        return repr(self.rule)
