"""Votes of base classifiers on noisy images: counted on the device, and what their counts certify."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, Certificate
from rs.statistics.radius import lower_bound, radius


class Tally(NamedTuple):
    """Votes of noisy copies of an image."""

    votes: NDArray[
        np.int64
    ]  # per class, shape (K,), or (K + 1,) where there are votes for no class
    evaluations: int | None = None  # of members, of a cascade (``rs.ensemble.cascade``)


def _misshapen(shape: tuple[int, ...], came: tuple[int, ...]) -> str:
    remedy = "correct the model, or the classes: --classes or the subfolders' names, in Python num_classes"
    if len(came) == 2 and came[0] == shape[0]:
        return f"the model must give {shape[1]} logits an image, one for each class, got {came[1]}; {remedy}"
    return f"the model must give logits of shape {shape}, got {came}; {remedy}"


class VoteCounter:
    """Votes per class of several classifiers on the same draws, counted where the scores are and
    fetched once.

    Args:
        widths: Number of scores of each classifier: K, or K + 1.
        device: Of the scores.
    """

    def __init__(self, widths: Sequence[int], device: torch.device) -> None:
        self.widths = widths
        self.counts = torch.zeros(len(widths), max(widths), dtype=torch.int64, device=device)
        self.broken = torch.zeros(len(widths), dtype=torch.bool, device=device)

    def add(
        self, scores: Tensor, shape: tuple[int, int], numbers: Tensor | slice = slice(None)
    ) -> None:
        """Count the argmax of each draw, the lowest class of equals.

        Args:
            scores: Of classifiers of one width, (E, draws, width).
            shape: What their last two axes must be.
            numbers: Which classifiers they are, (E,), each once; all if not given.
        Raises:
            InputError: If the scores have another shape.
        """
        if scores.shape[1:] != shape:
            raise InputError(_misshapen(shape, tuple(scores.shape[1:])))
        largest, classes = scores.max(dim=-1)
        votes = torch.zeros(
            len(scores), self.counts.shape[1], dtype=torch.int64, device=scores.device
        )
        self.counts[numbers] += votes.scatter_add_(1, classes, torch.ones_like(classes))
        self.broken[numbers] |= (~largest.isfinite()).any(dim=1)

    def fetch(self) -> list[NDArray[np.int64]]:
        """Return the votes per class of each classifier, shape (its width,).

        Raises:
            InputError: If a largest score was not a finite number; other scores may be -inf.
        """
        if self.broken.any():
            raise InputError(
                "base must give logits that are numbers, got NaN or infinity; look at its weights "
                "and its input"
            )
        return [
            counts[:width].copy()
            for counts, width in zip(self.counts.cpu().numpy(), self.widths, strict=True)
        ]


def winner(counts: NDArray[np.int64], undecided: bool = False) -> int:
    """Return the class with the most votes (ties to the lowest); ABSTAIN if it is the last one,
    ``undecided``.
    """
    selected = int(counts.argmax())
    return ABSTAIN if undecided and selected == len(counts) - 1 else selected


def certificate_of_votes(
    first: Tally,
    second: Tally | None,
    alpha: float,
    sigma: float,
    noise: str = "gaussian",
    *,
    undecided: bool = False,
) -> Certificate:
    """Return the certificate of the votes of the n0 draws and of the n draws, each of shape (K,).

    Without a ``second``, the n draws are skipped because the selected class is not the label: the
    mode is "shortcut". With ``undecided`` the last of K + 1 counts is of votes for no class; if it
    wins the n0 draws, no class has a bound and ``p_lower`` is 0.
    """
    selected, votes = (
        winner(first.votes, undecided),
        np.zeros_like(first.votes) if second is None else second.votes,
    )
    p_lower = certified = 0.0
    if second is not None and selected != ABSTAIN:
        p_lower, certified = _bound(int(votes[selected]), int(votes.sum()), alpha, sigma)
    return Certificate(
        predict=selected if second is None or p_lower >= 0.5 else ABSTAIN,
        radius=certified,
        p_lower=p_lower,
        n0=int(first.votes.sum()),
        n=int(votes.sum()),
        alpha=alpha,
        sigma=sigma,
        counts0=first.votes,
        counts=votes,
        mode="shortcut" if second is None else "certify",
        evaluations=evaluations_of([first] if second is None else [first, second]),
        noise=noise,
    )


@lru_cache(maxsize=2**14)  # hundreds of classifiers of a pool share few numbers of votes
def _bound(votes: int, n: int, alpha: float, sigma: float) -> tuple[float, float]:
    """Return the lower bound of a probability and its radius."""
    p_lower = float(lower_bound(votes, n, alpha))
    return p_lower, float(radius(p_lower, sigma))


def evaluations_of(tallies: Sequence[Tally]) -> int | None:
    """Return the evaluations of all passes; ``None`` if none was counted."""
    counted = [tally.evaluations for tally in tallies if tally.evaluations is not None]
    return sum(counted) if counted else None
