"""Ensembles: several classifiers as one, whose argmax is its vote on a noisy image.

A *rule* turns the logits of L members, (L, N, K), into scores, (N, K). It is one fixed function of the noisy image, so
an :class:`Ensemble` is an ordinary base classifier and its certificate the ordinary one. Rules compute in float64: in
float32 a softmax is exactly 1 from a margin of 17 on, and ties would go to the lowest class, not to the surer member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rs.ensemble.outputs import Outputs as Outputs
from rs.ensemble.outputs import on_simplex as on_simplex
from rs.ensemble.outputs import one_hot
from rs.ensemble.outputs import weighted as weighted
from rs.statistics.ensemble_weights import box_vertices as box_vertices
from rs.statistics.ensemble_weights import clip_to_box as clip_to_box

Rule = Callable[[Tensor], Tensor]
"""From logits of the members (L, N, K) to scores (N, K), or (N, K + 1) where the last one is a vote for no class."""


class SharingRule:
    """A :data:`Rule` that can take :class:`Outputs`, so that rules on the same members share what they compute."""

    def scores(self, outputs: Outputs) -> Tensor:
        """Scores (N, K) of the members' outputs."""
        raise NotImplementedError

    def __call__(self, logits: Tensor) -> Tensor:
        """(L, N, K) -> (N, K)."""
        return self.scores(Outputs(logits))


@dataclass(frozen=True)
class _Average(SharingRule):
    weights: Sequence[float] | None = None  # on the simplex, one for each member; equal if None

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", on_simplex(self.weights))

    def for_members(self, members: int) -> tuple[float, ...]:
        """Weights of so many members."""
        return self.weights or (1 / members,) * members


class SoftmaxAverage(_Average):
    """H(x) = sum_l w_l softmax(F^l(x)): the paper's rule.

    >>> SoftmaxAverage([0.5, 0.5])(torch.tensor([[[0.0, 0.0]], [[0.0, 50.0]]])).round(decimals=3)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K), float64."""
        return weighted(self.for_members(len(outputs.members)), outputs.probabilities)


class LogitAverage(_Average):
    """sum_l w_l F^l(x): the members need one scale of logits for it. Of one member it is that member."""

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K), float64; of one member its logits as they are."""
        weights = self.for_members(len(outputs.members))
        return outputs.members[0] if len(weights) == len(outputs.members) == 1 else weighted(weights, outputs.logits)


@dataclass(frozen=True)
class HardVote(SharingRule):
    """The class most members choose; of tied classes, the one with the largest average softmax."""

    def scores(self, outputs: Outputs) -> Tensor:
        """Votes plus half the average softmax, which never outweighs a vote; (N, K)."""
        members = len(outputs.members)
        return outputs.votes.sum(dim=0) + weighted((0.5 / members,) * members, outputs.probabilities)


@dataclass(frozen=True)
class MaxMargin(SharingRule):
    """The member with the largest gap between its two largest softmax values decides (Yang et al. 2022, MME).

    The member is chosen on each noisy image; of equal gaps the first member's counts.
    """

    def scores(self, outputs: Outputs) -> Tensor:
        """The logits of the chosen member, (N, K)."""
        chosen, logits = outputs.gaps.max(dim=0).indices, outputs.logits
        return logits[chosen, torch.arange(logits.shape[1], device=logits.device)]


@dataclass(frozen=True)
class KConsensus(SharingRule):
    """What the first k members agree on, or else the class of the largest sum of logits of all (Horvath et al. 2022).

    It is a classifier of its own: k members that agree can be outvoted in the average.
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}; it is a number of members that must agree")

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K), float64."""
        members = len(outputs.members)
        if self.k > members:
            raise ValueError(f"k must be at most the number of members, {members}, got {self.k}")
        first = outputs.classes[: self.k]
        agreed = (first == first[0]).all(dim=0)
        return torch.where(
            agreed[:, None], one_hot(first[0], outputs.logits.shape[-1]), weighted((1.0,) * members, outputs.logits)
        )


@dataclass(frozen=True)
class Polytope(SharingRule):
    """The class that wins the softmax average at every vertex of a polytope of weights, else "undecided".

    The margin of two classes is linear in the weights, so a class that wins at the vertices wins for all weights in
    between. If it does so in more than half of the draws, by a bound q, then within sigma Phi^-1(q) the smoothed class
    is the same for *any* way of choosing weights in the polytope: by the image, at random, or against us.
    """

    vertices: Sequence[Sequence[float]]  # (V, L), each on the simplex

    def __post_init__(self) -> None:
        vertices = tuple(on_simplex(vertex) for vertex in np.atleast_2d(np.asarray(self.vertices, dtype=np.float64)))
        if not vertices:
            raise ValueError("a polytope must have at least one vertex, got none")
        object.__setattr__(self, "vertices", vertices)

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K + 1): 1 for the class that wins everywhere, or for the extra last one; else 0."""
        classes = outputs.probabilities.shape[-1]
        winners = weighted(self.vertices, outputs.probabilities).max(dim=-1).indices  # (V, N)
        agreed = (winners == winners[0]).all(dim=0)
        return one_hot(torch.where(agreed, winners[0], classes), classes + 1)


RULES: dict[str, Callable[..., Rule]] = {
    "softmax": SoftmaxAverage,
    "logits": LogitAverage,
    "vote": HardVote,
    "mme": MaxMargin,
    "consensus": KConsensus,
}
"""Constructors of the rules of a fixed ensemble, by name."""


def scores_of(rule: Rule, outputs: Outputs) -> Tensor:
    """Scores of any rule, (N, K) or (N, K + 1)."""
    return rule.scores(outputs) if isinstance(rule, SharingRule) else rule(outputs.logits)


def is_undecided(rule: Rule, members: int) -> bool:
    """Tell whether a rule has the extra last class, by trying it on two classes.

    Raises:
        ValueError: If the rule is not one for this number of members.
    """
    width = rule(torch.zeros(members, 1, 2)).shape[-1]
    if width not in (2, 3):
        raise ValueError(f"a rule must give one score a class, or one more, got {width} scores for 2 classes")
    return width == 3


class Ensemble(nn.Module):
    """Members and a rule as one classifier: images (N, C, H, W) -> scores (N, K), whose argmax is the vote.

    Scores are NaN where a logit of any member is, so that no rule hides it.
    ``undecided`` tells whether there is an extra last score; pass it on to ``SmoothedClassifier``.
    """

    def __init__(self, members: Sequence[nn.Module], rule: Rule) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble must have at least one member, got none")
        self.undecided = is_undecided(rule, len(members))
        self.members, self.rule = nn.ModuleList(members), rule

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images."""
        outputs = Outputs([member(x) for member in self.members])
        return scores_of(self.rule, outputs).masked_fill(outputs.nan.any(dim=0)[:, None], torch.nan)

    def extra_repr(self) -> str:
        """The rule and its weights are part of what the classifier is."""
        return repr(self.rule)


class WeightedEnsemble(Ensemble):
    """The softmax average with these weights; equal ones if ``None``."""

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__(members, SoftmaxAverage(weights))


class MaxMarginEnsemble(Ensemble):
    """The max-margin ensemble."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__(members, MaxMargin())
