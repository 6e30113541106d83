"""Certification that stops early, as valid as with all samples (pure NumPy and SciPy).

A run looks at k successes of n samples repeatedly, and stops when they answer its question. A bound
for a single look would not be valid. So alpha is split between the exact binomial bounds at
n_1 < n_2 < ... <= budget samples.

:class:`Decider` asks which of some radii hold. It takes the votes for one class, which other
samples must have selected:

>>> decider = Decider([0.0, 0.5, 1.0], sigma=0.5, alpha=0.001, budget=100_000)
>>> while draws := decider.next_draws():
...     decider.update(successes=draws * 9 // 10, draws=draws)
>>> decider.certified()[1], decider.draws
(0.5, 800)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from rs.errors import InputError
from rs.statistics.certificate import MIN_ALPHA, round_down
from rs.statistics.radius import cap, fewest_votes, lower_bound, upper_bound

RANGE = f"strictly between 0 and 1, at least {MIN_ALPHA}"
STEP = 100  # minimum number of samples between looks: a block of certification noise

GROWTH = 1.25
"""Growth of the number of samples between looks; more looks stop earlier, at a lower level each."""


@lru_cache  # the runs of all images look at the same times
def look_schedule(budget: int, step: int = STEP) -> NDArray[np.int64]:
    """Return the numbers of samples n_1 < n_2 < ... < n_T = ``budget`` after which to look.

    Each is the multiple of ``step`` nearest to :data:`GROWTH` times the one before, and at least a
    step larger; the last one is the budget.

    >>> look_schedule(1000)
    array([ 100,  200,  300,  400,  500,  600,  800, 1000])
    """
    for name, count in (("budget", budget), ("step", step)):
        is_valid = count >= 1 and float(count).is_integer()
        _require(is_valid, name, "a whole number of at least 1", count)
    times = [0]
    while times[-1] < budget:
        steps = max(times[-1] // step + 1, round(GROWTH * times[-1] / step))
        times.append(min(budget, step * steps))
    return np.array(times[1:], dtype=np.int64)


FINAL_LOOK_SHARE = 0.8
"""Share of alpha for the last look, so that the budget certifies nearly as much as one look."""


def alpha_spending(times: ArrayLike) -> NDArray[np.float64]:
    """Return the shares of alpha for looks after ``times`` samples, shape (T,), which sum to 1.

        s_t = (1 - FINAL_LOOK_SHARE) sqrt(n_t) / sum_u sqrt(n_u),   + FINAL_LOOK_SHARE for t = T

    If p may be anywhere near p0, the probability that a run ends at n samples falls like
    1 / sqrt(n). So the samples spent there grow like sqrt(n), and alpha saves most there.

    >>> alpha_spending([100, 400, 900]).round(3)
    array([0.033, 0.067, 0.9  ])
    """
    roots = np.sqrt(np.asarray(times, dtype=np.float64))
    spent = (1 - FINAL_LOOK_SHARE) * roots / roots.sum()
    spent[-1] += FINAL_LOOK_SHARE
    return spent


@lru_cache  # of all images, which ask about the same radii
def required_share(p0: tuple[float, ...], budget: int, alpha: float) -> NDArray[np.float64]:
    """Return the smallest share of successes for which a look establishes each ``p0``.

    It is above 1 if no share does.
    """
    return fewest_votes(p0, budget, alpha) / budget


class Decider:
    """A run that asks which of the radii r_1 < r_2 < ... hold: p >= p_k = Phi(r_k / sigma).

    An answer is "yes" if a look established r_k and all smaller radii, by the Clopper-Pearson bound
    of all samples so far. The bound of look t is at level s_t alpha (:func:`alpha_spending`). By
    the union bound all lower bounds hold together with probability 1 - alpha, for every stopping
    rule: the runs in which the bound of some look exceeds p have probability at most sum_t alpha
    s_t = alpha. Alpha is not split over the radii. Let r_j be the smallest false radius. A run that
    says yes to any false radius says yes to r_j at the same look, which has probability at most
    alpha.

    "no" gives up: the budget is unlikely to establish r_k. Let w_k be the share of successes for
    which the last look does. The answer is "no" if p < w_k is established at level ``beta``, of
    which each look has the same part, and so with probability at most beta for each r_k with p >=
    w_k. "no" claims nothing, and neither does a radius without an answer at the end of the budget.

    Args:
        radii: Increasing, at least 0, in the unit of ``sigma``; 0 asks whether the class has half
            of the votes. A radius that only successes could not certify is answered "no" at once.
        alpha: Failure probability of the certificate: that some "yes" is wrong.
        beta: Probability of giving up a radius that the budget would probably certify. No
            certificate depends on it.
        budget, step: Maximum number of samples, and minimum number between looks.
    Attributes:
        times: Numbers of samples after which to look, increasing, shape (T,).
        required_share: Smallest share of successes for which the last look establishes each radius;
            above 1 if no share does.
        established: How many radii, from the smallest, are answered "yes".
        open_to: How many are not answered "no".
    Raises:
        InputError: If an argument leaves its range, or ``budget`` cannot certify the smallest
            radius.
    """

    def __init__(
        self,
        radii: Sequence[float],
        sigma: float,
        alpha: float,
        budget: int,
        *,
        beta: float = 0.01,
        step: int = STEP,
    ) -> None:
        _require(0 < sigma < np.inf, "sigma", "a positive number", sigma)
        for at in radii:
            _require(0 <= at < np.inf, "radius", "a number of at least 0", at)
        if not len(radii) or (np.diff(radii) <= 0).any():
            listed = ", ".join(map(str, radii)) or "none"
            raise InputError(f"radii must be one or more, in increasing order, got {listed}")
        for name, level in (("alpha", alpha), ("beta", beta)):
            _require(MIN_ALPHA <= level < 1, name, f"{RANGE}; 0.001 is usual", level)
        self.times = look_schedule(budget, step)
        self.alpha = alpha
        self.alphas = alpha * alpha_spending(self.times)
        self.beta = beta
        self.sigma = sigma
        self.radii = tuple(map(float, radii))
        self.p0 = ndtr(np.asarray(radii) / sigma)
        self.required_share = required_share(tuple(self.p0), budget, float(self.alphas[-1]))
        self.successes = 0
        self.draws = 0
        self.looks = 0
        self.established = 0
        self.open_to = int((self.required_share <= 1).sum())
        if self.open_to == 0:
            largest = round_down(cap(budget, alpha, sigma))
            raise InputError(
                f"radius must be at most {largest}, the largest that {budget:,} samples certify at "
                f"alpha = {alpha}, got {radii[0]}; ask for a smaller one, or take more samples"
            )

    def lower(self, successes: ArrayLike, look: int) -> NDArray[np.float64]:
        """Return lower bounds (...) of p at look ``look``, from 0, given all successes so far."""
        return lower_bound(successes, self.times[look], self.alphas[look])

    def upper(self, successes: ArrayLike, look: int) -> NDArray[np.float64]:
        """Return upper bounds (...) of p at look ``look``, from 0, given all successes so far."""
        return upper_bound(successes, self.times[look], self.beta / len(self.times))

    @property
    def mode(self) -> str:
        """The mode of rows of such runs, ``at-radius:R,...:BUDGET``.

        >>> Decider([0.25, 0.5], sigma=0.5, alpha=0.001, budget=100_000).mode
        'at-radius:0.25,0.5:100000'
        """
        return f"at-radius:{','.join(map(repr, self.radii))}:{self.times[-1]}"

    def next_draws(self) -> int:
        """Return the number of samples until the next look; 0 if the run has ended."""
        is_answered = self.established >= self.open_to
        if is_answered or self.looks == len(self.times):
            return 0
        return int(self.times[self.looks]) - self.draws

    def update(self, successes: int, draws: int) -> None:
        """Count ``successes`` among ``draws`` new samples, and look.

        Raises:
            ValueError: If ``draws`` is not ``next_draws()``, or ``successes`` is not one of 0, ...,
                ``draws``.
        """
        if not 0 <= successes <= draws == self.next_draws() > 0:
            raise ValueError(
                f"a look takes successes of {self.next_draws()} samples, got {successes} of {draws}"
            )
        look = self.looks
        self.successes += successes
        self.draws += draws
        self.looks += 1
        holds = self.lower(self.successes, look) >= self.p0  # p0 increases
        is_given_up = self.upper(self.successes, look) < self.required_share[: self.open_to]
        self.open_to -= int(is_given_up.sum())  # the last ones: larger radii need larger shares
        self.established = max(self.established, int(holds.sum()))

    def certified(self) -> tuple[float, float | None]:
        """Return a lower bound of p, and the largest radius that is certified or ``None``."""
        if self.established == 0:
            return 0.0, None
        best = self.established - 1
        return float(self.p0[best]), self.radii[best]


def _require(holds: bool, name: str, rule: str, value: float) -> None:
    if not holds:
        raise InputError(f"{name} must be {rule}, got {value}")
