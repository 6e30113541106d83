"""Numbers that the library and the page must agree in: ``python -m tests.support.make_vectors``.

``tests/reporting/vectors.json`` holds rows of arguments and values by kind. Those of bounds, radii
and Student's t come from closed forms and the distributions of ``scipy.stats``; those without such
an oracle from the library, whose own tests hold them against simulations: two-sided radii, two-way
p-values and intervals, estimates, decimals.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
from scipy import stats

from rs.reporting.tables.formatting import decimals_needed
from rs.statistics.comparison import LEVEL, Estimate, Sample, estimate, fewest_seeds_of
from rs.statistics.metrics import BUDGET, Terms
from rs.statistics.radius import two_sided_radius
from rs.statistics.two_way import MeanSquares, half_width, p_value

VECTORS = Path(__file__).parents[1] / "reporting" / "vectors.json"
TERMS = Terms("certify", dict.fromkeys(BUDGET, 1.0), np.arange(12), np.zeros(12))
"""What the samples of an estimate share; it changes no number."""


def bounds(votes, draws, alpha):
    """Clopper and Pearson's one-sided bounds: quantiles of the beta distribution, in closed form at
    the ends.
    """
    if votes == 0:
        return [0.0, -math.expm1(math.log(alpha) / draws)]
    if votes == draws:
        return [alpha ** (1 / draws), 1.0]
    return [
        float(stats.beta.ppf(alpha, votes, draws - votes + 1)),
        float(stats.beta.isf(alpha, votes + 1, draws - votes)),
    ]


def made(sample):
    """A sample as the library has it."""
    seeds = tuple(map(frozenset, sample["seeds"]))
    return Sample(TERMS, np.array(sample["scores"]), seeds, sample.get("fewestSeeds"))


def estimated(samples):
    """Value, both errors, p-value and tie."""
    found = estimate(*map(made, samples))
    return [found.value, found.error_images, found.error, found.p_value, found.tie]


def two_way(mean, *squares):
    """P-value, and half the width of the interval."""
    layout = MeanSquares(*squares)
    return [float(p_value(mean, layout)), half_width(LEVEL, layout)]


def two_sided(votes, sigma, alpha):
    return [float(two_sided_radius(np.array([votes]), np.array([0]), sigma, alpha)[0])]


def decimals(value, error_images, error, images):
    """How many a difference is printed with."""
    return [decimals_needed(Estimate(value, error_images, error, 0.05, images, 1))]


MAKERS = {
    "bounds": bounds,
    "radius": lambda p, sigma: [sigma * float(stats.norm.ppf(p))],
    "two-sided radius": two_sided,
    "student": lambda value, error, freedom: [2 * float(stats.t.sf(value / error, freedom))],
    "student's quantile": lambda images: [float(stats.t.isf(LEVEL / 2, images - 1))],
    "two-way": two_way,
    "estimate": lambda *samples: estimated(samples),
    "decimals": decimals,
}


def samples():
    """Scores of 2 to 4 classifiers on 12 images, of one, two or three seeds each, and samples of
    differences.

    The last ones have fewer seeds on one side, other seeds, and an ensemble whose methods have
    three and two.
    """
    rng = np.random.default_rng(0)
    for seeds in ([[0]], [[]], [[0], [1]], [[0], [1], [2]], [[0, 1], [0, 2], [1, 2]]):
        first, second = (
            rng.normal(level, 0.3, (len(seeds), 12)).round(3).tolist() for level in (0.6, 0.5)
        )
        yield [{"scores": first, "seeds": seeds}]
        yield [{"scores": first, "seeds": seeds}, {"scores": second, "seeds": seeds}]
        yield [{"scores": first, "seeds": seeds}, {"scores": second[:1], "seeds": [[0]]}]
    for seeds in ([[0], [1]], [[3], [4]]):  # fewer than three, or others
        first = rng.normal(0.6, 0.3, (3, 12)).round(3).tolist()
        second = rng.normal(0.5, 0.3, (len(seeds), 12)).round(3).tolist()
        yield [{"scores": first, "seeds": [[0], [1], [2]]}, {"scores": second, "seeds": seeds}]
    members = [[["a", one], ["b", other]] for one in range(3) for other in range(2) if one != other]
    mixed = {"members": members, "seeds": [[seed for _, seed in team] for team in members]}
    mixed |= {"fewestSeeds": fewest_seeds_of(members)}
    yield [mixed | {"scores": rng.normal(0.6, 0.3, (len(members), 12)).round(3).tolist()}]


def arguments():
    """What each kind is asked of."""
    budgets = [(n, a) for n in (1, 2, 10, 200, 1000, 100_000) for a in (1e-6, 0.001, 0.05, 0.5)]
    votes = [
        (k, n, a)
        for n, a in budgets
        for k in sorted({0, 1, n // 3, n // 2 + 1, n - n // 100, n - 1, n})
    ]
    votes += [(n - missing, n, 0.001) for n in (1_000_000, 10_000_000) for missing in (0, 1, 5)]
    sizes, parts = itertools.product((12, 2000), (2, 3, 6)), (1e-3, 0.3, 1.0)
    yield "bounds", votes
    shares = sorted({bound for case in votes for bound in bounds(*case) if 0.5 <= bound < 1})
    yield "radius", itertools.product(shares[::2], (0.12, 1.0))
    counts = [
        (700, 300),
        (1000, 0),
        (999, 1),
        (500, 500),
        (600, 200, 200),
        (400, 350, 250),
        (900, *[10] * 10),
    ]
    yield "two-sided radius", itertools.product(counts, (0.5,), (1e-5, 0.001, 0.1))
    yield (
        "student",
        [*itertools.product((1e-4, 0.001, 0.3, 2.0, 9.0), (0.5, 1.0), (1, 2.5, 11, 1999))],
    )
    yield "student's quantile", [(images,) for images in (2, 3, 12, 359, 2000, 10_000)]
    squares = [(0.0, 1.0, 0.0), *itertools.product(parts, (0.0, *parts), (0.0, 0.3))]
    yield (
        "two-way",
        [(mean, *one, *size) for size in sizes for one in squares for mean in (0.2, 2.0)],
    )
    yield "estimate", samples()
    some = itertools.product((-0.001952, 0.00204, 0.0), (0.000996,), (None, 0.000996), (359,))
    yield "decimals", [*some, (0.00195, 0.00095, None, 359), (0.00004, 0.00001, 0.00001, 359)]


def main():
    rows = {kind: [[list(one), MAKERS[kind](*one)] for one in asked] for kind, asked in arguments()}
    lines = [
        f"{json.dumps(kind)}: [\n" + ",\n".join(map(json.dumps, cases)) + "\n]"
        for kind, cases in rows.items()
    ]
    VECTORS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
