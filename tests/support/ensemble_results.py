"""Made-up results of ensembles and members on four images, for the tests of tables."""

from itertools import combinations, permutations

import numpy as np

from rs.statistics.comparison import sample
from rs.study.ensembles import composition, members_text
from tests.support.tiny_study import result

PAIR = (("advmacer", 0), ("advmacer", 1))
MIXED = (("advmacer", 0), ("smoothadv", 0))
MIX_NAME = "advmacer 0 + smoothadv 0"


def ensemble(members, combination, radii, scope="global", name=None, **changes):
    """Return the result of an ensemble; the combination ``average`` adds nothing to its name."""
    name = name or members_text(members)
    label = name if combination == "average" else f"{name} ({combination})"
    changes |= {"ensemble": name, "combination": combination, "members": members}
    return result(label, radii, seed=None, scope=scope, **changes)


# ACRs of the members: 1.0, 0.8 (mean 0.9) and 0.5
SINGLES = [
    result("advmacer", [1.0, 1.0, 1.0, 1.0], seed=0),
    result("advmacer", [0.6, 0.6, 1.0, 1.0], seed=1),
    result("smoothadv", [0.5, 0.5, 0.5, 0.5], seed=0),
]
# ACR 1.2: to the members' mean (0.8, 0.8, 1, 1) +0.4, +0.4, +0.2, +0.2; to the best member always
# +0.2
AVERAGE = ensemble(PAIR, "average", [1.2, 1.2, 1.2, 1.2])
# ACR 1.1: to the average -0.2, 0, -0.2, 0
OPTIMAL = ensemble(PAIR, "optimal", [1.0, 1.2, 1.0, 1.2])
PER_IMAGE = ensemble(PAIR, "per-image", [9.0, 9.0, 9.0, 9.0], scope="per-image")
MIX = ensemble(MIXED, "average", [1.4, 1.4, 1.4, 1.3])
ALL = [*SINGLES, AVERAGE, OPTIMAL, PER_IMAGE, MIX]


def cell(table, column, **where):
    """The cell of a column in the row whose data are these."""
    data = table.data
    for name, value in where.items():
        data = data[data[name] == value]
    (row,) = data.index
    return table.body[row][table.header.index(column)]


def family(teams, scores, combination="average", **changes):
    """All ensembles of an entry by numbers; ``scores`` is a function of the members of a team."""
    ensembles = []
    for members in teams:
        name = composition(members)
        ensembles.append(ensemble(members, combination, scores(members), name=name, **changes))
    return ensembles


SEEDS = (0, 1, 2)
TRIO = {
    ("advmacer", 0): [1.0, 1.2, 1.0, 1.2],
    ("advmacer", 1): [2.0, 2.0, 2.2, 2.0],
    ("advmacer", 2): [4.0, 4.0, 4.0, 4.4],
    ("smoothadv", 0): [0.5, 0.6, 0.5, 0.5],
    ("smoothadv", 1): [0.1, 0.1, 0.3, 0.1],
    ("smoothadv", 2): [0.8, 0.7, 0.8, 0.8],
}
"""Scores of three models of two methods on four images."""
MODELS = [result(method, radii, seed=seed) for (method, seed), radii in TRIO.items()]
PAIRS = [(("advmacer", a), ("advmacer", b)) for a, b in combinations(SEEDS, 2)]
ONE_OF_EACH = [(("advmacer", a), ("smoothadv", b)) for a, b in permutations(SEEDS, 2)]


def higher(step):
    """Return a function from members to scores: their mean, plus a step for the smallest seed."""

    def scores(members):
        mean = np.mean([TRIO[member] for member in members], axis=0)
        smallest = min(seed for _, seed in members)
        return mean + step * (1 + smallest)

    return scores


OF_TWO = family(PAIRS, higher(0.5))


def sample_of(teams, scores):
    """A sample straight from scores, with the seeds of the members of each team."""
    rows = [result("any", radii).rows for radii in scores]
    seeds = [{seed for _, seed in members} for members in teams]
    return sample(rows, seeds)
