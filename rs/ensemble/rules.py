"""The table of ensemble rules, and the rules without fitted weights.

To add a rule, write a class and add a line to :data:`RULES`. Then only ensembles run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from rs.ensemble.base import Cascade, LogitAverage, Rule, SoftmaxAverage
from rs.ensemble.base import Ensemble as Ensemble  # for users, who find all of rules here
from rs.ensemble.outputs import Outputs, weighted
from rs.study.ensembles import BOUND_WEIGHTS, Combination

PARTS = tuple(part.name for part in fields(Combination) if part.name not in ("rule", "scope"))
"""Settings of a combination that only some rules need."""


@dataclass(frozen=True)
class HardVote(Rule):
    """The class most members choose; of tied classes, the one with the largest average softmax."""

    scopes: ClassVar = {"global": ()}

    def scores(self, outputs: Outputs) -> Tensor:
        """Return votes plus half the average softmax, which never outweighs a vote; (N, K)."""
        member_count = len(outputs.member_logits)
        half_average = weighted((0.5 / member_count,) * member_count, outputs.probabilities)
        return outputs.votes.sum(dim=0) + half_average


@dataclass(frozen=True)
class MaxMargin(Rule):
    """The member with the largest gap of its two largest softmax values (MME, Yang et al. 2022).

    The member is chosen for each noisy image; the first one wins ties.
    """

    scopes: ClassVar = {"noisy-input": ()}

    def scores(self, outputs: Outputs) -> Tensor:
        """Return the logits of the chosen member, (N, K)."""
        logits = outputs.logits
        members = outputs.gaps.max(dim=0).indices
        samples = torch.arange(logits.shape[1], device=logits.device)
        return logits[members, samples]


@dataclass(frozen=True)
class KConsensus(Rule):
    """The class on which the first k members agree, else the class of the largest sum of logits.

    The sum is over all members (Horvath et al. 2022). The result is not that of an average: k
    members that agree can be outvoted there.
    """

    scopes: ClassVar = {"noisy-input": ("agree",)}
    k: int

    @classmethod
    def build(cls, combination: Combination, solution: Sequence[float] | None) -> Rule:
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
        classes = outputs.classes[: self.k]
        agrees = (classes == classes[0]).all(dim=0)
        total = weighted((1.0,) * member_count, outputs.logits)
        return torch.where(agrees[:, None], outputs.votes[0], total)


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
    """Check that rule and scope of a combination fit, and that it has exactly their settings.

    Raises:
        ValueError: If not; says what must hold.
    """
    rule = RULES.get(combination.rule)
    scope = combination.scope
    if rule is None:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {combination.rule!r}")
    if scope not in rule.scopes:
        raise ValueError(
            f"the scope of the rule {combination.rule} must be {' or '.join(rule.scopes)}, got "
            f"{scope!r}"
        )
    for part in PARTS:
        is_given = getattr(combination, part) is not None
        if is_given != (part in rule.scopes[scope]):
            must = "be left out" if is_given else "be given"
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
