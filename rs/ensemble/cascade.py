"""Cascades: members evaluated in turn, each only on samples that earlier ones left undecided.

The running sum S_j = sum_{l <= j} softmax(F^l) / L decides a sample as soon as the average of the
first j members, S_j L / j, has a largest class that leads the second by a threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rs.smoothing.inputs import logits_of

BATCH_MULTIPLE = 20
"""Batch granularity: a gathered batch is padded to a multiple of it, which divides a noise block.

Matrix products handle rows by fours or more, and the remaining rows in another order. So for an
image at the end of an odd batch, the last bits of its logits may differ.
"""


class CascadeOutput(NamedTuple):
    """Samples that a cascade has decided, in no particular order."""

    scores: Tensor  # (N, K), float64
    evaluations: int  # of members on these samples, without padding


def accumulate(total: Tensor | None, probabilities: Tensor, member_count: int) -> Tensor:
    """Return S_j from S_(j-1), ``None`` for j = 1, and the softmax (N, K) of member j.

    S_L is the softmax average.
    """
    term = probabilities * (1 / member_count)
    return term if total is None else total + term


def top_two_gap(total: Tensor, evaluated_members: int, member_count: int) -> Tensor:
    """Return the lead of the top class over the second, (N,).

    ``total`` is the sum S of the evaluated members; the lead is that of their average.
    """
    first, second = total.topk(2, dim=-1).values.unbind(-1)
    return (first - second) * (member_count / evaluated_members)


def evaluate_cascade(
    members: Sequence[nn.Module], thresholds: Sequence[float], batches: Iterable[Tensor]
) -> Iterator[CascadeOutput]:
    """Evaluate each member only on the images that need it, in batches as large as the first one.

    Args:
        members: L classifiers, images (N, C, H, W) -> logits (N, K).
        thresholds: Leads at which the first 1, 2, ..., L - 1 members decide.
        batches: Of noisy images.
    """
    # images that wait for each member, with the sum S of the members before it
    queues: list[tuple[Tensor, Tensor] | None] = [None for _ in members]
    batch_size = 0

    def evaluate_member(number: int, x: Tensor, total: Tensor | None) -> Iterator[CascadeOutput]:
        evaluated_members = number + 1
        logits = _logits(members[number], x, is_padded=number > 0)
        total = accumulate(total, torch.softmax(logits.double(), dim=-1), len(members))
        if evaluated_members == len(members):
            yield CascadeOutput(total, evaluated_members * len(x))
            return
        gap = top_two_gap(total, evaluated_members, len(members))
        is_decided = gap >= thresholds[number]  # a gap that is NaN decides nothing
        decided = total[is_decided]
        yield CascadeOutput(decided, evaluated_members * len(decided))
        x, total = x[~is_decided], total[~is_decided]
        queue = queues[evaluated_members]
        if queue is not None:
            x = torch.cat([queue[0], x])
            total = torch.cat([queue[1], total])
        if len(x) >= batch_size:
            yield from evaluate_member(evaluated_members, x[:batch_size], total[:batch_size])
            x, total = x[batch_size:], total[batch_size:]
        queues[evaluated_members] = (x, total)

    for x in batches:
        batch_size = batch_size or len(x)
        yield from evaluate_member(0, x, None)
    for number, queue in enumerate(queues):
        if queue is not None and len(queue[0]):
            yield from evaluate_member(number, *queue)


def _logits(member: nn.Module, x: Tensor, is_padded: bool) -> Tensor:
    """Return the logits of images, evaluated in a batch that is padded to BATCH_MULTIPLE."""
    count = len(x)
    missing = -count % BATCH_MULTIPLE
    if is_padded and missing:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return logits_of(member(x))[:count]
