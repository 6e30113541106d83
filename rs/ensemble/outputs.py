"""Member outputs on noisy images, computed once for all rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

ROUNDING = 1e-6
"""Largest rounding error of a weight, which files give with six digits."""


def on_simplex(weights: ArrayLike) -> tuple[float, ...]:
    """Return weights (L,) that are at least 0 and sum to 1, without rounding errors.

    Raises:
        ValueError: If a weight is off by more than :data:`ROUNDING`.
    """
    w = np.asarray(weights, dtype=np.float64)
    is_vector = w.ndim == 1 and w.size > 0
    if not (is_vector and w.min() >= -ROUNDING and abs(w.sum() - 1) <= ROUNDING * w.size):
        raise ValueError(
            f"weights must be at least 0 and sum to 1, one for each member, got {w.tolist()}"
        )
    w = w.clip(min=0.0)
    return tuple((w / w.sum()).tolist())


def weighted(weights: tuple[float, ...], values: Tensor) -> Tensor:
    """Return sum_l w_l v_l in float64, (N, K), of weights (L,) and values (L, N, K).

    Members are added one after the other. The order of other sums, and of matrix products, depends
    on the position of an image in its batch, on how many sums are computed together, and on the
    processor.
    """
    if len(weights) != len(values):
        raise ValueError(
            f"there must be one weight for each member, got {len(weights)} for {len(values)}"
        )
    return summed(_tensor(weights, values.device), values.double())


def summed(weights: Tensor, terms: Iterable[Tensor]) -> Tensor:
    """Return sum_l w_l t_l for weights (..., L) and L terms that are (N, K), or (..., N, K)."""
    total: Tensor | None = None
    for weight, term in zip(weights.unbind(-1), terms, strict=True):
        product = weight[..., None, None] * term
        total = product if total is None else total + product
    assert total is not None  # there is at least one member
    return total


@lru_cache(maxsize=1024)
def _tensor(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Return weights on a device, cached: a copy to a GPU would wait for all of its work."""
    with torch.inference_mode(False):
        return torch.tensor(weights, dtype=torch.float64, device=device)


class Outputs:
    """Logits of L members on N images, and what rules derive from them, computed at most once.

    Args:
        member_logits: Logits of the members, (N, K) each, or all of them, (L, N, K).
    Raises:
        ValueError: If they are of different shapes.

    >>> outputs = Outputs(torch.zeros(3, 1, 2))
    >>> outputs.of([2, 0]).probabilities
    tensor([[[0.5000, 0.5000]],
            [[0.5000, 0.5000]]], dtype=torch.float64)
    """

    def __init__(self, member_logits: Sequence[Tensor] | Tensor) -> None:
        self.member_logits = tuple(member_logits)
        self._views = {tuple(range(len(self.member_logits))): self}
        shapes = [tuple(logits.shape) for logits in self.member_logits]
        # not in a set: torch's tracer makes each size a tensor of its own
        if not shapes or any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                f"all members must give logits of one shape, got {shapes}; use members of one data "
                "set"
            )

    def of(self, member_ids: Sequence[int]) -> Outputs:
        """Return the outputs of some members, by number: the same object for the same members.

        The softmax is the one of all members; logits keep the dtype that each member has alone.
        """
        numbers = tuple(member_ids)
        if numbers not in self._views:
            view = Outputs([self.member_logits[number] for number in numbers])
            members = self.probabilities.unbind()
            view.probabilities = torch.stack([members[number] for number in numbers])
            self._views[numbers] = view
        return self._views[numbers]

    @cached_property
    def logits(self) -> Tensor:
        """Shape (L, N, K)."""
        return torch.stack(self.member_logits)

    @cached_property
    def probabilities(self) -> Tensor:
        """The softmax of the logits, (L, N, K), float64."""
        return torch.softmax(self.logits.double(), dim=-1)

    @cached_property
    def probabilities_by_draw(self) -> Tensor:
        """The same numbers with samples adjacent in memory, which makes comparisons faster."""
        return self.probabilities.mT.contiguous().mT

    @cached_property
    def classes(self) -> Tensor:
        """The class of the largest logit, the lowest of equals, (L, N)."""
        return self.logits.max(dim=-1).indices

    @cached_property
    def votes(self) -> Tensor:
        """1 for that class and 0 for the others, (L, N, K), float64."""
        zeros = torch.zeros_like(self.logits, dtype=torch.float64)
        return zeros.scatter_(-1, self.classes[..., None], 1.0)

    @cached_property
    def gaps(self) -> Tensor:
        """The largest probability minus the second, (L, N), float64."""
        first, second = self.probabilities.topk(2, dim=-1).values.unbind(-1)
        return first - second

    @cached_property
    def broken(self) -> Tensor:
        """Whether the largest logit of a member is not a finite number, (L, N)."""
        return ~self.logits.amax(dim=-1).isfinite()
