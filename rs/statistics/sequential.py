"""Certification that stops as soon as it is sure, as valid as with all draws (pure NumPy and SciPy).

A run looks at k successes of n draws again and again, and stops when they settle the question. Two rules allow for
looking often, which a bound made for one look does not:

- :class:`Cumulative`: exact binomial bounds at n_1 < n_2 < ... <= budget, the chance of error split between them;
- :class:`Betting`: a bet against p0, whose stake is unlikely ever to grow 1 / alpha times if p0 is the truth.

:func:`at_radius` asks whether one radius holds, :class:`RadiusSequence` asks for the radius. Both are fed with
counts of the votes for one class, which must have been chosen on other draws:

>>> decider = at_radius(0.5, sigma=0.5, alpha=0.001, budget=100_000)
>>> while draws := decider.next_draws():
...     answer = decider.update(successes=draws, draws=draws)
>>> answer, decider.draws
('yes', 100)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, ndtr, ndtri, xlog1py, xlogy

from rs.errors import InputError
from rs.statistics.radius import lower_bound, radius, upper_bound

Answer = Literal["yes", "no"]
STEP = 100  # draws between looks, at least: a block of certification noise


def check_times(budget: int, growth: float, step: int = STEP) -> NDArray[np.int64]:
    """Return the numbers of draws n_1 < n_2 < ... < n_T = ``budget`` after which to look.

    Each is the multiple of ``step`` nearest to ``growth`` times the one before, and a step beyond it at least; the last
    one is the budget. With growth 1 they are a step apart.

    >>> check_times(2000, growth=1.5)
    array([ 100,  200,  300,  400,  600,  900, 1400, 2000])
    """
    for name, count in (("budget", budget), ("step", step)):
        _require(count >= 1 and float(count).is_integer(), name, "a whole number of at least 1", count)
    times = [0]
    while times[-1] < budget:
        times.append(min(budget, step * max(times[-1] // step + 1, round(growth * times[-1] / step))))
    return np.array(times[1:], dtype=np.int64)


def share(check: int, checks: int) -> float:
    """Return the part of alpha that look t = ``check`` + 1 of T = ``checks`` may spend.

        s_t = 5 / ((t + 4) (t + 5)) for t < T (Voracek 2024),   s_T = 5 / (T + 4), what later looks would have had

    They sum to 1: as s_t = 5 / (t + 4) - 5 / (t + 5) for t < T, s_1 + ... + s_(T-1) telescopes to 1 - 5 / (T + 4).
    """
    t = check + 1
    return 5 / (t + 4) if t == checks else 5 / ((t + 4) * (t + 5))


@dataclass(frozen=True, eq=False)
class _Rule:
    growth: ClassVar[float]  # of the times
    times: NDArray[np.int64]  # numbers of draws to look after, increasing, shape (T,)
    alpha: float  # chance to claim too much, in (0, 1)
    beta: float  # chance to give up needlessly, in (0, 1)

    def __post_init__(self) -> None:
        for name, level in (("alpha", self.alpha), ("beta", self.beta)):
            _require(0 < level < 1, name, "strictly between 0 and 1; 0.001 is usual", level)


class Cumulative(_Rule):
    """Clopper-Pearson bounds from all draws so far, look t at level ``share(t) * alpha``.

    By the union bound all lower bounds hold together with probability 1 - alpha, whatever the rule that stops: the
    runs in which the bound of some look exceeds p have probability at most sum_t alpha s_t = alpha. So "yes" is wrong
    with probability at most alpha, and so is the largest lower bound seen: where none exceeds p, neither does the
    largest. Upper bounds likewise, at ``beta``.
    """

    growth = 1.25  # more looks stop sooner, at a lower level each

    def lower(self, successes: ArrayLike, check: int) -> NDArray[np.float64]:
        """Lower bounds of p at look ``check`` (from 0), from ``successes`` of all draws so far, shape (...)."""
        return lower_bound(successes, self.times[check], self.alpha * share(check, len(self.times)))

    def upper(self, successes: ArrayLike, check: int) -> NDArray[np.float64]:
        """Upper bounds of p, likewise."""
        return upper_bound(successes, self.times[check], self.beta * share(check, len(self.times)))

    def above(self, successes: ArrayLike, check: int, p0: float) -> NDArray[np.bool_]:
        """Whether look ``check`` establishes p >= ``p0``, shape (...)."""
        return self.lower(successes, check) >= p0

    def below(self, successes: ArrayLike, check: int, p0: float) -> NDArray[np.bool_]:
        """Whether look ``check`` establishes p < ``p0``, shape (...)."""
        return self.upper(successes, check) < p0


class Betting(_Rule):
    """A bet on the draws with the mixture of Krichevsky and Trofimov (1981).

        W_n = B(k + 1/2, n - k + 1/2) / (B(1/2, 1/2) p0^k (1 - p0)^(n - k)),   "yes" if W_n >= 1 / alpha and k > n p0

    W is a likelihood ratio against p0, so if p = p0 it is a martingale of mean 1, and Ville's inequality bounds the
    chance that it ever reaches 1 / alpha by alpha: the rule may look after every draw. W_n is convex in k and at most 1
    at k = n p0, where p0 is the likeliest value; so "yes" needs k above a threshold, which smaller p reach less often.
    """

    growth = 1.0  # looks are free

    def log_wealth(self, successes: ArrayLike, check: int, p0: float) -> NDArray[np.float64]:
        """Return log W at look ``check`` (from 0), shape (...)."""
        k, n = np.asarray(successes, dtype=np.float64), self.times[check]
        mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)
        return mixture - xlogy(k, p0) - xlog1py(n - k, -p0)

    def above(self, successes: ArrayLike, check: int, p0: float) -> NDArray[np.bool_]:
        """Whether look ``check`` establishes p > ``p0``, shape (...)."""
        won = self.log_wealth(successes, check, p0) >= -np.log(self.alpha)
        return won & (np.asarray(successes) > self.times[check] * p0)

    def below(self, successes: ArrayLike, check: int, p0: float) -> NDArray[np.bool_]:
        """Whether look ``check`` establishes p < ``p0``, shape (...)."""
        won = self.log_wealth(successes, check, p0) >= -np.log(self.beta)
        return won & (np.asarray(successes) < self.times[check] * p0)


RULES: dict[str, type[Cumulative | Betting]] = {"cumulative": Cumulative, "betting": Betting}  # of at_radius, by name


class _Run:
    def __init__(self, rule: Cumulative | Betting) -> None:
        self.rule, self.times, self.alpha = rule, rule.times, rule.alpha
        self.successes = self.draws = self.looks = 0
        self.stopped = False

    def next_draws(self) -> int:
        """Return how many draws to take before the next look; 0 where the run is over."""
        return 0 if self.stopped else int(self.times[self.looks]) - self.draws

    def _look(self, successes: int, draws: int) -> int:
        """Count the draws up to the next look, and return its number from 0."""
        if not 0 <= successes <= draws == self.next_draws() > 0:
            raise ValueError(f"a look takes successes of {self.next_draws()} draws, got {successes} of {draws}")
        self.successes, self.draws, self.looks = self.successes + successes, self.draws + draws, self.looks + 1
        self.stopped = self.looks == len(self.times)
        return self.looks - 1


class Decider(_Run):
    """A run that asks whether p reaches ``p0``; made by :func:`at_radius`.

    ``answer`` is "yes" with probability at most alpha if p < p0, and "no" with probability at most beta otherwise. It
    stays ``None`` where the budget decides nothing, which certifies nothing either.
    """

    def __init__(self, rule: Cumulative | Betting, p0: float, radius: float) -> None:
        super().__init__(rule)
        self.p0, self.radius = p0, radius
        self.answer: Answer | None = None

    @property
    def mode(self) -> str:
        """The mode of rows of such runs, ``at-radius:R:BUDGET``.

        >>> at_radius(0.5, sigma=0.5, alpha=0.001, budget=100_000).mode
        'at-radius:0.5:100000'
        """
        return f"at-radius:{self.radius!r}:{self.times[-1]}"

    def certified(self) -> tuple[float, float | None]:
        """Return a lower bound of p, and the radius that is certified or ``None``."""
        return (self.p0, self.radius) if self.answer == "yes" else (0.0, None)

    def update(self, successes: int, draws: int) -> Answer | None:
        """Count as :meth:`RadiusSequence.update` does, and return the answer, if there is one."""
        check = self._look(successes, draws)
        if self.rule.above(self.successes, check, self.p0):
            self.answer = "yes"
        elif self.rule.below(self.successes, check, self.p0):
            self.answer = "no"
        self.stopped |= self.answer is not None
        return self.answer


def at_radius(
    radius: float,
    sigma: float,
    alpha: float,
    budget: int,
    *,
    beta: float = 0.001,
    rule: str = "cumulative",
    step: int = STEP,
) -> Decider:
    """Return a fresh run that decides whether an image is certified at ``radius``: whether p >= Phi(radius / sigma).

    Args:
        radius: At least 0, in the unit of ``sigma``; 0 asks whether the class has half of the votes.
        alpha, beta: Chances that "yes" and that "no" is wrong. No certificate depends on beta.
        budget, step: Draws to take at most, and between looks at least.
        rule: A name of ``RULES``.
    Raises:
        InputError: If an argument leaves its range, or not even successes alone could certify the radius.
    """
    if rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}; got {rule!r}")
    _require(0 < sigma < np.inf, "sigma", "a positive number", sigma)
    _require(0 <= radius < np.inf, "radius", "a number of at least 0", radius)
    times = check_times(budget, RULES[rule].growth, step)
    decider = Decider(RULES[rule](times, alpha, beta), float(ndtr(radius / sigma)), radius)
    reach = f"within reach of {budget} draws at alpha = {alpha}; take more draws or a smaller radius"
    _require(bool(decider.rule.above(budget, len(times) - 1, decider.p0)), "radius", reach, radius)
    return decider


class RadiusSequence(_Run):
    """A run that asks for the radius, and stops when more draws could add ``tolerance`` to it at most.

    It keeps the largest lower and the smallest upper bound of :class:`Cumulative`, and stops before the budget
    - if ``p_upper`` < 1/2: it will abstain;
    - if ``p_lower`` >= 1/2 and sigma (Phi^-1(p_high) - Phi^-1(p_lower)) <= tolerance, where p_high is ``p_upper``
      or, if less, what the last look would report if all draws to come succeeded.
    While 1/2 lies between the bounds it goes on, so that no tolerance turns an answer into an abstention. The radius
    is that of ``p_lower``, and exceeds the true one with probability at most alpha (see :class:`Cumulative`).

    Args:
        tolerance: Radius to give away, at least 0, in the unit of ``sigma``. For the others see :func:`at_radius`.

    >>> run = RadiusSequence(sigma=0.5, tolerance=0.05, alpha=0.001, budget=100_000)
    >>> while draws := run.next_draws():
    ...     run.update(successes=draws * 9 // 10, draws=draws)
    >>> run.draws, round(run.radius, 3)
    (23100, 0.616)
    """

    rule: Cumulative

    def __init__(
        self, sigma: float, tolerance: float, alpha: float, budget: int, *, beta: float = 0.001, step: int = STEP
    ) -> None:
        _require(0 < sigma < np.inf, "sigma", "a positive number", sigma)
        _require(tolerance >= 0, "tolerance", "at least 0; it is radius to give away", tolerance)
        super().__init__(Cumulative(check_times(budget, Cumulative.growth, step), alpha, beta))
        self.sigma, self.tolerance = sigma, tolerance
        self.p_lower, self.p_upper, self.radius = 0.0, 1.0, 0.0

    @property
    def mode(self) -> str:
        """The mode of rows of such runs, ``within:TOLERANCE:BUDGET``."""
        return f"within:{self.tolerance!r}:{self.times[-1]}"

    def certified(self) -> tuple[float, float | None]:
        """Return the lower bound of p, and the radius that is certified or ``None``."""
        return self.p_lower, self.radius if self.p_lower >= 0.5 else None

    def update(self, successes: int, draws: int) -> None:
        """Count ``successes`` among ``draws`` new draws; ``ValueError`` if they are not ``next_draws()``."""
        check = self._look(successes, draws)
        self.p_lower = max(self.p_lower, float(self.rule.lower(self.successes, check)))
        self.p_upper = min(self.p_upper, float(self.rule.upper(self.successes, check)))
        self.radius = float(radius(self.p_lower, self.sigma))
        best = min(self.p_upper, self.rule.lower(self.times[-1] - self.draws + self.successes, len(self.times) - 1))
        left = self.sigma * (float(ndtri(best)) - float(ndtri(self.p_lower)))
        self.stopped |= self.p_upper < 0.5 or (self.p_lower >= 0.5 and left <= self.tolerance)


def _require(holds: bool, name: str, rule: str, value: float) -> None:
    if not holds:
        raise InputError(f"{name} must be {rule}, got {value}")
