"""The table of rules of ensembles, and those rules whose weights nothing solves for.

Adding a rule takes a class and its line in :data:`RULES`. Then ensembles are certified again, and
nothing else is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from rs.ensemble.base import Cascade, LogitAverage, Rule, SoftmaxAverage
from rs.ensemble.base import Ensemble as Ensemble  # for users, who find all of rules here
from rs.ensemble.outputs import Outputs, one_hot, weighted
from rs.study.ensembles import BOUND_WEIGHTS, Combination

PARTS = tuple(part.name for part in fields(Combination) if part.name not in ("rule", "scope"))
"""Parts of a combination that some rules need."""


@dataclass(frozen=True)
class HardVote(Rule):
    """The class most members choose; of tied classes, the one with the largest average softmax."""

    scopes: ClassVar = {"global": ()}

    def scores(self, outputs: Outputs) -> Tensor:
        """Return votes plus half the average softmax, which never outweighs a vote; (N, K)."""
        member_count = len(outputs.member_logits)
        return outputs.votes.sum(dim=0) + weighted(
            (0.5 / member_count,) * member_count, outputs.probabilities
        )


@dataclass(frozen=True)
class MaxMargin(Rule):
    """The member with the largest gap between its two largest softmax values decides (Yang et al.
    2022, MME).

    The member is chosen on each noisy image; of equal gaps the first member's counts.
    """

    scopes: ClassVar = {"noisy-input": ()}

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the logits of the chosen member, (N, K)."""
        chosen, logits = outputs.gaps.max(dim=0).indices, outputs.logits
        return logits[chosen, torch.arange(logits.shape[1], device=logits.device)]


@dataclass(frozen=True)
class KConsensus(Rule):
    """What the first k members agree on, or else the class of the largest sum of logits of all
    (Horvath et al. 2022).

    It is a classifier of its own: k members that agree can be outvoted in the average.
    """

    scopes: ClassVar = {"noisy-input": ("agree",)}
    k: int

    @classmethod
    def build(
        cls, combination: Combination, member_count: int, solution: Sequence[float] | None
    ) -> Rule:
        """Return the consensus of the first ``agree`` members."""
        assert combination.agree is not None  # its scope needs it
        return cls(combination.agree)

    def scores(self, outputs: Outputs) -> Tensor:
        """Return (N, K), float64."""
        member_count = len(outputs.member_logits)
        if self.k > member_count:
            raise ValueError(
                f"k must be at most the number of members, {member_count}, got {self.k}"
            )
        first = outputs.classes[: self.k]
        agreed = (first == first[0]).all(dim=0)
        return torch.where(
            agreed[:, None],
            one_hot(first[0], outputs.logits.shape[-1]),
            weighted((1.0,) * member_count, outputs.logits),
        )


RULES: dict[str, type[Rule]] = {
    "softmax": SoftmaxAverage,
    "logits": LogitAverage,
    "vote": HardVote,
    "mme": MaxMargin,
    "consensus": KConsensus,
    "cascade": Cascade,
}
"""The rules that combinations can name."""


def check_rule(combination: Combination) -> None:
    """Check that a combination names a rule, a scope of it, and the parts that the two need and no
    others.

    Raises:
        ValueError: If not; says what must hold.
    """
    rule, scope = RULES.get(combination.rule), combination.scope
    if rule is None:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {combination.rule!r}")
    if scope not in rule.scopes:
        raise ValueError(
            f"the scope of the rule {combination.rule} must be {' or '.join(rule.scopes)}, got "
            f"{scope!r}"
        )
    clipped = scope == "per-image" and (combination.low, combination.high) != (None, None)
    needed = {*rule.scopes[scope], *(("low", "high") if clipped else ())}
    for part in PARTS:
        if (getattr(combination, part) is not None) != (part in needed):
            must = "be given" if part in needed else "be left out"
            raise ValueError(f"{part} must {must} for the rule {combination.rule} of scope {scope}")
    if scope == "per-image" and combination.weights not in BOUND_WEIGHTS:
        raise ValueError(
            f"weights of scope per-image must be {' or '.join(BOUND_WEIGHTS)}, got "
            f"{combination.weights!r}"
        )
    if combination.weights_solved and not rule.solvable:
        solvable = " or ".join(name for name, candidate in RULES.items() if candidate.solvable)
        raise ValueError(
            f"weights that are solved for need the rule {solvable}, got {combination.rule!r}"
        )
