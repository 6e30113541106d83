"""Cascades: members evaluated in turn, each only on draws that the members before it left
undecided.

The running sum S_j = sum_{l <= j} softmax(F^l) / L decides a draw as soon as the average of the
first j members, S_j L / j, has a largest class that leads the second by a threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rs.smoothing.inputs import logits_of

BATCH_MULTIPLE = 20
"""Noisy images that stand together: a gathered batch is filled up to a multiple of it, which
divides a block of noise.

Matrix products handle rows by fours or more and the rest of them in another order, so a network may
answer in other last bits to an image at the end of an odd batch.
"""


class CascadeOutput(NamedTuple):
    """Draws that a cascade has decided, in no particular order."""

    scores: Tensor  # (N, K), float64
    evaluations: (
        int  # of members, on these draws; images that only fill up a batch are not among them
    )


def accumulate(total: Tensor | None, probabilities: Tensor, member_count: int) -> Tensor:
    """Return S_j from S_(j-1), ``None`` for j = 1, and the softmax (N, K) of member j; S_L is the
    softmax average.
    """
    term = probabilities * (1 / member_count)
    return term if total is None else total + term


def top_two_gap(total: Tensor, asked: int, member_count: int) -> Tensor:
    """Return by how much the top class leads the second in the average of the first ``asked``
    members; -> (N,).
    """
    first, second = total.topk(2, dim=-1).values.unbind(-1)
    return (first - second) * (member_count / asked)


def evaluate_cascade(
    members: Sequence[nn.Module], thresholds: Sequence[float], batches: Iterable[Tensor]
) -> Iterator[CascadeOutput]:
    """Evaluate each member only on the images that need it, gathered into batches as large as the
    first one.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K).
        thresholds: Leads at which the first 1, 2, ..., L - 1 members decide.
        batches: Of noisy images.
    """
    waiting = [_Waiting() for _ in members]

    def ask(number: int, x: Tensor, total: Tensor | None) -> Iterator[CascadeOutput]:
        asked = number + 1
        logits = _logits(members[number], x, filled=number > 0)
        total = accumulate(total, torch.softmax(logits.double(), dim=-1), len(members))
        if asked == len(members):
            yield CascadeOutput(total, asked * len(x))
            return
        done = (
            top_two_gap(total, asked, len(members)) >= thresholds[number]
        )  # not where it is not a number
        decided = total[done]
        yield CascadeOutput(decided, asked * len(decided))
        waiting[asked].add(x[~done], total[~done])
        if len(waiting[asked]) >= full:
            yield from ask(asked, *waiting[asked].take(full))

    full = 0
    for x in batches:
        full = full or len(x)
        yield from ask(0, x, None)
    for number, rest in enumerate(waiting):
        if len(rest):
            yield from ask(number, *rest.take(len(rest)))


class _Waiting:
    """Images that a member has to be asked about, with the sum S of the members before it."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        return sum(len(x) for x, _ in self.parts)

    def add(self, x: Tensor, total: Tensor) -> None:
        if len(x):
            self.parts.append((x, total))

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first ``count`` of them; the others stay."""
        x, total = (torch.cat(parts) for parts in zip(*self.parts, strict=True))
        self.parts = []
        self.add(x[count:], total[count:])
        return x[:count], total[:count]


def _logits(member: nn.Module, x: Tensor, filled: bool) -> Tensor:
    missing = -len(x) % BATCH_MULTIPLE if filled else 0
    return logits_of(member(torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x))[
        : len(x)
    ]
