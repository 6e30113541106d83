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


def moved(number, step):
    """The text of a number that is larger by ``step``, relative."""
    return str(Decimal(number) * (1 + Decimal(step)))


@pytest.mark.parametrize(("draws", "alpha"), [*product(DRAWS, ALPHAS), (10_000_000, 0.001)])
def test_the_checker_proves_bounds_to_twelve_digits_and_none_beside_them(draws, alpha):
    low = {draws // 3, draws // 2 + 1} if draws < 1_000_000 else set()
    for votes in (low | {draws - 1, draws}) - {0}:
        bound = float(lower_bound(votes, draws, alpha))
        assert check.proved_bound(votes, draws, repr(alpha), repr(bound))
        for step in ("-2e-12", "2e-12"):
            assert not check.proved_bound(votes, draws, repr(alpha), moved(bound, step))


@pytest.mark.parametrize(("k", "n"), [(k, n) for n in (1, 2, 5, 12) for k in range(1, n + 1)])
def test_a_proof_agrees_with_exact_rational_arithmetic(k, n):
    """With alpha the exact probability at p = 3/7, that p is the bound."""
    p = Fraction(3, 7)
    alpha = sum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1))
    exact = str(Decimal(alpha.numerator) / Decimal(alpha.denominator))
    proved = {}
    for step in ("-2", "-.9", ".9", "2"):
        near = moved(Decimal(3) / Decimal(7), Decimal(step) * check.PRECISION)
        proved[step] = check.proved_bound(k, n, exact, near)
    assert proved == {"-2": False, "-.9": True, ".9": True, "2": False}


@pytest.mark.parametrize("sigma", [0.12, 1.0])
@pytest.mark.parametrize("p", [0.5, 0.500001, 0.6, 0.9, 0.99311, 0.999931, 0.99999999])
def test_the_checker_proves_radii_to_twelve_digits_and_none_beside_them(p, sigma):
    certified = float(radius(p, sigma))
    assert check.proved_radius(repr(p), repr(sigma), repr(certified))
    for step in (-2.5e-12, 2.5e-12):
        near = certified + step * (certified + sigma)
        assert not check.proved_radius(repr(p), repr(sigma), repr(near))
