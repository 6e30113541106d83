"""One file of numbers holds library, checker and page: ``vectors.json``, of
``tests.support.make_vectors``.
"""

import json
import math
import shutil
import subprocess
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from rs.reporting import check, page
from rs.statistics.radius import lower_bound, radius, upper_bound
from tests.support.make_vectors import MAKERS, VECTORS

ROWS = json.loads(VECTORS.read_text())
NODE = shutil.which("node")
MADE_BY_THE_LIBRARY = ("two-sided radius", "two-way", "estimate", "decimals")
RELATIVE = 1e-9


def close(found, expected):
    """Hold rows of values against others; an error over seeds can be ``None``."""
    for row, other in zip(found, expected, strict=True):
        assert [value is None for value in row] == [value is None for value in other]
        assert [value or 0 for value in row] == pytest.approx(
            [value or 0 for value in other], rel=RELATIVE, abs=1e-12
        )


def split(kind):
    """The arguments of a kind, and the values."""
    return zip(*ROWS[kind], strict=True)


# -------------------------------------------------------------------------------------------------
# the library


@pytest.mark.parametrize("kind", MADE_BY_THE_LIBRARY)
def test_what_only_the_library_computes_is_what_it_was(kind):
    arguments, values = split(kind)
    close([MAKERS[kind](*one) for one in arguments], values)


def test_bounds_and_radii_of_the_library_are_those_of_scipys_distributions():
    arguments, values = split("bounds")
    found = [[float(lower_bound(*one)), float(upper_bound(*one))] for one in arguments]
    assert np.array(found) == pytest.approx(np.array(values), rel=1e-11, abs=0)
    arguments, values = split("radius")
    close([[float(radius(*one))] for one in arguments], values)


# -------------------------------------------------------------------------------------------------
# the checker


def moved(number, step):
    """The text of a number that is larger by ``step``, relative."""
    return str(Decimal(number) * (1 + Decimal(step)))


def test_the_checker_proves_bounds_to_twelve_digits_and_none_beside_them():
    some = ROWS["bounds"][::4]  # of every number of draws
    assert {draws for (_, draws, _), _ in some} == {draws for (_, draws, _), _ in ROWS["bounds"]}
    for (votes, draws, alpha), _ in some:
        if votes:
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
    near = [
        moved(Decimal(3) / Decimal(7), Decimal(step) * check.PRECISION)
        for step in ("-2", "-.9", ".9", "2")
    ]
    assert [check.proved_bound(k, n, exact, text) for text in near] == [False, True, True, False]


def test_the_checker_proves_radii_to_twelve_digits_and_none_beside_them():
    for (p, sigma), _ in ROWS["radius"]:
        certified = float(radius(p, sigma))
        assert check.proved_radius(repr(p), repr(sigma), repr(certified))
        for step in (-2.5e-12, 2.5e-12):
            assert not check.proved_radius(
                repr(p), repr(sigma), repr(certified + step * (certified + sigma))
            )


# -------------------------------------------------------------------------------------------------
# the page

SQUARES = "{images: a, seeds: b, rest: r, imageCount: i, seedCount: s}"
PAGE = {
    "bounds": "([k, n, a]) => [lowerBound(k, n, a), upperBound(k, n, a)]",
    "radius": "([p, sigma]) => [oneSidedRadius(sigma, p)]",
    "two-sided radius": "([v, sigma, a]) => [boundsOf(v.reduce((x, y) => x + y), a).two(v.length)(sigma, v[0], v[1])]",
    "student": "(one) => [pValue(...one)]",
    "student's quantile": "([n]) => [studentQuantile(n)]",
    "two-way": f"([m, a, b, r, i, s]) => [twoWayPValue(m, {SQUARES}), twoWayHalfWidth({SQUARES})]",
    "estimate": "(some) => { const e = estimate(...some); return [e.value, e.errorImages, e.error, e.p, e.tie]; }",
    "decimals": "([value, errorImages, error, images]) => [decimalsOf({value, errorImages, error, images, "
    "tie: isTie(value, errorImages, error, images)})]",
}


@pytest.fixture(scope="module")
def values_of_the_page():
    """What the page makes of the arguments of every kind."""
    program = f"const given = JSON.parse(require('fs').readFileSync(0));\n{(page.WEB / 'statistics.js').read_text()}"
    made = ", ".join(
        f"{json.dumps(kind)}: given[{json.dumps(kind)}].map({text})" for kind, text in PAGE.items()
    )
    program += f"\nconsole.log(JSON.stringify({{{made}}}));"
    given = json.dumps({kind: [arguments for arguments, _ in ROWS[kind]] for kind in PAGE})
    done = subprocess.run(
        [NODE, "-e", program], input=given, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="node runs the page's mathematics")
@pytest.mark.parametrize("kind", PAGE)
def test_the_page_says_the_same(values_of_the_page, kind):
    _, values = split(kind)
    close(values_of_the_page[kind], values)
