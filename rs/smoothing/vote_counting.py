"""Votes of base classifiers on noisy images, counted on the device, and what they certify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN, Certificate
from rs.statistics.procedures.base import SequentialTest
from rs.statistics.procedures.fixed import SHORTCUT, FixedTest


class Tally(NamedTuple):
    """Votes of noisy copies of an image."""

    votes: NDArray[np.int64]  # per class, shape (K,)
    evaluations: int | None = None  # of members, of a cascade (``rs.ensemble.cascade``)


class VoteCounter:
    """Votes per class of several classifiers on the same samples, kept on the device of the scores.

    Args:
        classifiers: Number of classifiers.
        classes: Number of scores of each, K.
        device: Device of the scores.
    """

    def __init__(self, classifiers: int, classes: int, device: torch.device) -> None:
        self.counts = torch.zeros(classifiers, classes, dtype=torch.int64, device=device)
        self.broken = torch.zeros(classifiers, dtype=torch.bool, device=device)

    def add(self, scores: Tensor, samples: int, numbers: Tensor | slice = slice(None)) -> None:
        """Count the argmax of each sample, the lowest class of equals.

        Args:
            scores: Scores of classifiers, (E, samples, K).
            samples: How many samples there must be.
            numbers: Which classifiers they are, (E,), each once; all if not given.
        Raises:
            InputError: If the scores have another shape.
        """
        width = self.counts.shape[1]
        _check_shape(tuple(scores.shape[1:]), (samples, width))
        largest, classes = scores.max(dim=-1)
        votes = torch.zeros(len(scores), width, dtype=torch.int64, device=scores.device)
        self.counts[numbers] += votes.scatter_add_(1, classes, torch.ones_like(classes))
        self.broken[numbers] |= (~largest.isfinite()).any(dim=1)

    def fetch(self) -> list[NDArray[np.int64]]:
        """Return the votes per class of each classifier, shape (K,).

        Raises:
            InputError: If a largest score was not a finite number; other scores may be -inf.
        """
        if self.broken.any():
            raise InputError(
                "base must return logits that are finite numbers, got NaN or infinity; look at its "
                "weights and its input"
            )
        return list(self.counts.cpu().numpy())


def _check_shape(actual: tuple[int, ...], expected: tuple[int, int]) -> None:
    if actual == expected:
        return
    must = f"the model must return logits of shape {expected}, got {actual}"
    if len(actual) == 2 and actual[0] == expected[0]:
        must = (
            f"the model must return {expected[1]} logits per image, one per class, got {actual[1]}"
        )
    raise InputError(
        f"{must}; correct the model, or the classes: --classes or the subfolders' names, in Python "
        "num_classes"
    )


def winner(counts: NDArray[np.int64]) -> int:
    """Return the class with the most votes (ties to the lowest)."""
    return int(counts.argmax())


def certificate_of_votes(
    first: Tally, second: Tally | None, alpha: float, sigma: float, noise: str = "gaussian"
) -> Certificate:
    """Return the certificate of the votes of the n0 samples and of a fixed number of samples.

    Without a ``second``, the n samples are skipped because the selected class is not the label.
    """
    n = 0 if second is None else int(second.votes.sum())
    test = FixedTest(sigma, alpha, n)
    if second is not None:
        test.update(int(second.votes[winner(first.votes)]), n)
    return certificate_of_test(first, second, test, noise)


def certificate_of_test(
    first: Tally, second: Tally | None, test: SequentialTest, noise: str
) -> Certificate:
    """Return what a test certifies that has counted the votes of ``second``.

    Without a ``second``, the mode is "shortcut".
    """
    predict = winner(first.votes)
    mode = SHORTCUT
    p_lower = 0.0
    certified_radius: float | None = None
    tallies = [first]
    votes = np.zeros_like(first.votes)
    if second is not None:
        mode = test.mode
        p_lower, certified_radius = test.certified()
        tallies.append(second)
        votes = second.votes
        if certified_radius is None:
            predict = ABSTAIN
    return Certificate(
        predict=predict,
        radius=certified_radius or 0.0,
        p_lower=p_lower,
        n0=int(first.votes.sum()),
        n=int(votes.sum()),
        alpha=test.alpha,
        sigma=test.sigma,
        counts0=first.votes,
        counts=votes,
        mode=mode,
        evaluations=sum_of_evaluations(tallies),
        noise=noise,
    )


def sum_of_evaluations(tallies: Sequence[Tally]) -> int | None:
    """Return the evaluations of all passes; ``None`` if none was counted."""
    counted = [tally.evaluations for tally in tallies if tally.evaluations is not None]
    return sum(counted) if counted else None
