"""The arithmetic of the checker: it accepts what the library certifies, and nothing near it."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from rs.reporting import check
from rs.statistics.radius import lower_bound, radius

DRAWS = (1, 2, 10, 200, 1000, 100_000)
ALPHAS = (1e-6, 0.001, 0.05, 0.5)


def changed_by(number, step):
    """The text of a number, made larger by the relative ``step``."""
    return str(Decimal(number) * (1 + Decimal(step)))


@pytest.mark.parametrize(("draws", "alpha"), [*product(DRAWS, ALPHAS), (10_000_000, 0.001)])
def test_the_checker_proves_bounds_to_twelve_digits_and_no_bounds_near_them(draws, alpha):
    counts = {draws - 1, draws}
    if draws < 1_000_000:
        counts |= {draws // 3, draws // 2 + 1}
    for votes in counts - {0}:
        bound = float(lower_bound(votes, draws, alpha))
        assert check.proved_bound(votes, draws, repr(alpha), repr(bound))
        for step in ("-2e-12", "2e-12"):
            assert not check.proved_bound(votes, draws, repr(alpha), changed_by(bound, step))


@pytest.mark.parametrize(
    ("step", "is_proved"), [("-2", False), ("-.9", True), (".9", True), ("2", False)]
)
@pytest.mark.parametrize("draws", [1, 2, 5, 12])
def test_a_proof_agrees_with_exact_rational_arithmetic(draws, step, is_proved):
    """With alpha the exact probability at p = 3/7, that p is the bound."""
    p = Fraction(3, 7)
    near = changed_by(Decimal(3) / Decimal(7), Decimal(step) * check.PRECISION)
    alpha = Fraction(0)
    for votes in range(draws, 0, -1):
        alpha += math.comb(draws, votes) * p**votes * (1 - p) ** (draws - votes)
        exact = str(Decimal(alpha.numerator) / Decimal(alpha.denominator))
        assert check.proved_bound(votes, draws, exact, near) == is_proved


@pytest.mark.parametrize("sigma", [0.12, 1.0])
@pytest.mark.parametrize("p", [0.5, 0.500001, 0.6, 0.9, 0.99311, 0.999931, 0.99999999])
def test_the_checker_proves_radii_to_twelve_digits_and_no_radii_near_them(p, sigma):
    certified = float(radius(p, sigma))
    assert check.proved_radius(repr(p), repr(sigma), repr(certified))
    for step in (-2.5e-12, 2.5e-12):
        near = certified + step * (certified + sigma)
        assert not check.proved_radius(repr(p), repr(sigma), repr(near))
