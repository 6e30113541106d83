"""Ensembles: several classifiers as one, whose argmax is its vote on a noisy image.

A *rule* turns the logits of L members, (L, N, K), into scores, (N, K). It is one fixed function of the noisy image, so
an :class:`Ensemble` is an ordinary base classifier and its certificate the ordinary one. Rules compute in float64: in
float32 a softmax is exactly 1 from a margin of 17 on, and ties would go to the lowest class, not to the surer member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from rs.weights import box_vertices as box_vertices
from rs.weights import clip_to_box as clip_to_box

Rule = Callable[[Tensor], Tensor]
"""From logits of the members (L, N, K) to scores (N, K), or (N, K + 1) where the last one is a vote for no class."""

ROUNDING = 1e-6
"""How far each weight may be off: what writing it with six digits does to it."""


def on_simplex(weights: ArrayLike) -> tuple[float, ...]:
    """Return weights (L,) that are at least 0 and sum to 1, free of errors up to :data:`ROUNDING` in each.

    Raises:
        ValueError: If they are further off.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not w.size or not (w.min() >= -ROUNDING and abs(w.sum() - 1) <= ROUNDING * w.size):
        raise ValueError(f"weights must be at least 0 and sum to 1, one for each member, got {w.tolist()}")
    w = w.clip(min=0.0)
    return tuple((w / w.sum()).tolist())


def weighted(weights: tuple[float, ...] | tuple[tuple[float, ...], ...], values: Tensor) -> Tensor:
    """Return sum_l w_l v_l in float64: weights (L,) or (V, L), values (L, N, K) -> (N, K) or (V, N, K).

    It is a matrix product because ``Tensor.sum`` adds in an order that depends on where in a batch an image stands.
    """
    w = _tensor(weights, values.device)
    if w.shape[-1] != len(values):
        raise ValueError(f"there must be one weight for each member, got {w.shape[-1]} for {len(values)}")
    return (w @ values.double().flatten(1)).view(*w.shape[:-1], *values.shape[1:])


@lru_cache(maxsize=1024)
def _tensor(weights: tuple[float, ...] | tuple[tuple[float, ...], ...], device: torch.device) -> Tensor:
    """Weights where they are used; kept there, because to copy them to a GPU would wait for all its work."""
    with torch.inference_mode(False):
        return torch.tensor(weights, dtype=torch.float64, device=device)


def _one_hot(classes: Tensor, width: int) -> Tensor:
    """Shape (...) -> (..., width), float64."""
    zeros = torch.zeros((*classes.shape, width), dtype=torch.float64, device=classes.device)
    return zeros.scatter_(-1, classes[..., None], 1.0)


class Outputs:
    """What L members say of N images, and what rules make of each member's logits, computed at most once.

    Args:
        members: Logits of the members, (N, K) each, or all of them, (L, N, K).
    Raises:
        ValueError: If they are of different shapes.

    >>> outputs = Outputs(torch.zeros(3, 1, 2))
    >>> outputs.of([2, 0]).probabilities
    tensor([[[0.5000, 0.5000]],
            [[0.5000, 0.5000]]], dtype=torch.float64)
    """

    def __init__(self, members: Sequence[Tensor] | Tensor) -> None:
        self.members = tuple(members)
        self._views = {tuple(range(len(self.members))): self}
        if len({logits.shape for logits in self.members}) != 1:
            shapes = [tuple(logits.shape) for logits in self.members]
            raise ValueError(f"all members must give logits of one shape, got {shapes}; use members of one data set")

    def of(self, members: Sequence[int]) -> Outputs:
        """Outputs of some of the members, by number: the same object for the same members."""
        numbers = tuple(members)
        if numbers not in self._views:
            self._views[numbers] = _View(self, numbers)
        return self._views[numbers]

    @cached_property
    def logits(self) -> Tensor:
        """Shape (L, N, K)."""
        return torch.stack(self.members)

    @cached_property
    def probabilities(self) -> Tensor:
        """The softmax of the logits, (L, N, K), float64."""
        return torch.softmax(self.logits.double(), dim=-1)

    @cached_property
    def classes(self) -> Tensor:
        """The class of the largest logit, the lowest of equals, (L, N)."""
        return self.logits.max(dim=-1).indices

    @cached_property
    def votes(self) -> Tensor:
        """1 for that class and 0 for the others, (L, N, K), float64."""
        return _one_hot(self.classes, self.members[0].shape[-1])

    @cached_property
    def gaps(self) -> Tensor:
        """The largest probability minus the second, (L, N), float64."""
        first, at = self.probabilities.max(dim=-1, keepdim=True)
        return (first - self.probabilities.scatter(-1, at, -1.0).amax(dim=-1, keepdim=True)).squeeze(-1)

    @cached_property
    def nan(self) -> Tensor:
        """Whether a logit of a member is not a number, (L, N)."""
        return self.logits.isnan().any(dim=-1)


def _taken(name: str) -> cached_property[Tensor]:
    """What the whole has computed, of the members of a view."""

    def taken(view: _View) -> Tensor:
        members = getattr(view.whole, name).unbind()
        return torch.stack([members[number] for number in view.numbers])

    return cached_property(taken)


class _View(Outputs):
    """Some members of ``whole``. Their logits are stacked anew: in the dtype that they have without the others."""

    def __init__(self, whole: Outputs, numbers: Sequence[int]) -> None:
        super().__init__([whole.members[number] for number in numbers])
        self.whole, self.numbers = whole, numbers

    probabilities, classes = _taken("probabilities"), _taken("classes")
    votes, gaps = _taken("votes"), _taken("gaps")


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

    def _weights(self, members: int) -> tuple[float, ...]:
        return self.weights or (1 / members,) * members


class SoftmaxAverage(_Average):
    """H(x) = sum_l w_l softmax(F^l(x)): the paper's rule.

    >>> SoftmaxAverage([0.5, 0.5])(torch.tensor([[[0.0, 0.0]], [[0.0, 50.0]]])).round(decimals=3)
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K), float64."""
        return weighted(self._weights(len(outputs.members)), outputs.probabilities)


class LogitAverage(_Average):
    """sum_l w_l F^l(x): the members need one scale of logits for it. Of one member it is that member."""

    def scores(self, outputs: Outputs) -> Tensor:
        """(N, K), float64; of one member its logits as they are."""
        weights = self._weights(len(outputs.members))
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
            agreed[:, None], _one_hot(first[0], outputs.logits.shape[-1]), weighted((1.0,) * members, outputs.logits)
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
        return _one_hot(torch.where(agreed, winners[0], classes), classes + 1)


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
