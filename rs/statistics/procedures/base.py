"""What every certification procedure has: a test of one image, and rules for its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Rows as arrays (N,) by name, which are compared faster than the columns of a frame."""

Rule = tuple[NDArray[np.bool_], str]
"""Which rows break a rule, shape (N,), and what the rule says."""


class SequentialTest(Protocol):
    """A test of one image: it asks for samples, and says what their votes certify."""

    alpha: float  # failure probability of the certificate
    sigma: float  # noise of its radii, in pixels of [0, 1]
    draws: int  # samples counted so far

    @property
    def mode(self) -> str:
        """Mode of the certificate."""

    def next_draws(self) -> int:
        """Return how many samples to take next; 0 ends the test."""

    def update(self, successes: int, draws: int) -> Any:
        """Count the votes for the selected class among new samples."""

    def certified(self) -> tuple[float, float | None]:
        """Return a lower bound of the class probability, and the certified radius or ``None``."""


class Procedure(NamedTuple):
    """A certification procedure, as readers of rows know it.

    ``row_rules`` yields the rules that rows of its modes must obey; a rule may rely on the rules
    before it. Its arguments are the rows, the class that the n0 samples select, shape (N,), and
    the votes of the n samples for this class, shape (N,).
    """

    is_mode: Callable[[str], bool]
    row_rules: Callable[[Columns, NDArray[np.int64], NDArray[np.int64]], Iterator[Rule]]
