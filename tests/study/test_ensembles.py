"""Declared ensembles: how the parts of a combination fit, and which ensembles a parameter file
names.
"""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.params import read_params
from rs.study.ensembles import Combination, declared_ensembles
from rs.study.grid import pool_cells
from tests.support.combinations import EQUAL, GOOD, named
from tests.support.helpers import ROOT, refuses

REAL = read_params(ROOT / "params.yaml")


KNOWN = {name: GOOD[name] for name in ("mme", "printed", "consensus", "cascade")}
KNOWN["average"] = EQUAL


def entry(**changes):
    return {"members": {"macer": [0]}, "combinations": ["average"], **changes}


OF_MACER = {
    "ensembles": {"a": entry(members={"macer": 1})},
    "combinations": KNOWN,
    "methods": ["macer"],
}


def of(*entries, **grid):
    return declared_ensembles({"combinations": KNOWN, "ensembles": named(*entries), **grid})


def test_an_ensemble_is_declared_once_for_each_of_its_combinations_in_their_order():
    """The name of its file says what is in it, whatever tables call it."""
    two = entry(members={"macer": [2, 0], "gaussian": [1]}, combinations=["mme", "average"])
    ensembles = {"Two": two, "Alone": entry()}
    declared = declared_ensembles({"combinations": KNOWN, "ensembles": ensembles})
    assert [(one.name, one.slug) for one in declared] == [
        ("Two", "macer-2-0+gaussian-1.mme"),
        ("Two", "macer-2-0+gaussian-1.average"),
        ("Alone", "macer-0.average"),
    ]
    first = declared[0]
    assert first.members == (("macer", 2), ("macer", 0), ("gaussian", 1))
    assert first.combination == Combination(**GOOD["mme"])


BAD_ENTRIES = [
    (
        entry(combinations=["magic"]),
        "ensembles.a.combinations must be among mme, printed, consensus, cascade, average; got",
    ),
    (
        entry(members={"macer": [1, 1]}),
        "ensembles.a.members must name each seed once, got {'macer': [1, 1]}",
    ),
    (entry(members={"macer": 1}), "ensembles.a.members must leave each member its own seed"),
    (
        entry(members={"macr": 1}),
        "ensembles.a.members must be among macer; got macr; did you mean 'macer'?",
    ),
    (
        entry(combinations=["average", "printed"]),
        "ensembles.a, combination printed: the printed weights must be of 2 members, got 1",
    ),
    (
        entry(combinations=["consensus"]),
        "ensembles.a, combination consensus: agree must be at most the number of members, 1, got",
    ),
    (
        entry(combinations=["cascade"]),
        "ensembles.a, combination cascade: a cascade must have at least 2 members",
    ),
]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            (OF_MACER | {"ensembles": {"first": entry(), "a": one}}, message)
            for one, message in BAD_ENTRIES
        ),
        (OF_MACER | {"ensembles": {"a/b": entry()}}, "ensembles.a/b.[key]: String should match"),
        # whose rows would be averaged with those of the method's seeds
        (
            OF_MACER | {"ensembles": {"macer": entry()}},
            "ensembles.macer must not have the name of a method",
        ),
        ({"ensembles": {"a": entry()}}, "must have the key combinations"),
        (
            OF_MACER | {"combinations": {"cascade": GOOD["cascade"] | {"share": 1.0}}},
            "combinations.cascade.share: Input should be less than 1, got 1.0",
        ),
        (
            OF_MACER | {"combinations": KNOWN | {"../a": EQUAL}},
            "combinations.../a.[key]: String should",
        ),
        (OF_MACER | {"methods": True}, "methods: Input should be"),
        (
            {
                "ensembles": {"a": entry(combinations=["a" * 200])},
                "combinations": {"a" * 200: EQUAL},
            },
            "ensembles.a must make file names of at most 200 characters, got ",
        ),
    ],
)
def test_what_declares_no_ensembles_is_named(values, message):
    with refuses(rf"^params\.yaml:? {re.escape(message)}"):
        declared_ensembles(values)


def trained(values, method):
    """The seeds that the grid trains a method with, in order."""
    seeds = set()
    if method in values["methods"]:
        seeds.update(values["seeds"])
    if method in values["members"]:
        seeds.update(values["member_seeds"])
    return sorted(seeds)


def enumerated(wanted, values):
    """All ensembles of that many members, by trying every seed in every place."""
    places = []
    for method, count in wanted.items():
        places += [method] * count
    found = []
    for seeds in itertools.product(*[trained(values, method) for method in places]):
        pairs = tuple(zip(places, seeds, strict=True))
        ascending = sorted(pairs, key=lambda pair: (places.index(pair[0]), pair[1]))
        if list(pairs) == ascending and len(set(seeds)) == len(seeds):  # each set of seeds once
            found.append(pairs)
    return found


METHODS = ("macer", "gaussian", "advmacer")
SOME = st.lists(st.sampled_from(METHODS), unique=True)
SEEDS = st.lists(st.integers(0, 5), unique=True, max_size=4)
GRIDS = st.fixed_dictionaries(
    {"methods": SOME, "members": SOME, "seeds": SEEDS, "member_seeds": SEEDS}
)
WANTED = st.dictionaries(st.sampled_from(METHODS), st.integers(1, 3), min_size=1, max_size=3)


@given(GRIDS, WANTED)
def test_numbers_ask_for_every_ensemble_of_trained_members_of_other_seeds_each_once(grid, wanted):
    expected = enumerated(wanted, grid)
    values = entry(members=wanted, combinations=["average", "mme"])
    if expected:
        found = of(values, **grid)
        assert [one.members for one in found if one.key == "average"] == expected
        assert [one.members for one in found if one.key == "mme"] == expected
        assert len({one.slug for one in found}) == len(found) == 2 * len(expected)
    else:
        trained_methods = [*grid["methods"], *grid["members"]]
        unknown = [method for method in wanted if method not in trained_methods]
        message = r"members must leave each member its own seed, but "
        if unknown:
            message = rf"members must be among .*; got {unknown[0]}"
        with refuses(message):
            of(values, **grid)


def test_a_pool_holds_further_seeds_and_the_members_of_ensembles_and_no_other_cell():
    """Seed 3 is further but in no ensemble; gaussian 0 is in one; macer 0 is neither."""
    values = {
        "sigmas": [0.25, 0.5],
        "methods": ["macer", "gaussian"],
        "seeds": [0],
        "members": ["gaussian"],
        "member_seeds": [1, 3],
        "combinations": KNOWN,
        "ensembles": {"a": entry(members={"gaussian": [1, 0]})},
        "recipes": {"tiny": {}},
    }
    pool = pool_cells(values, "tiny", 0.5)
    assert [(cell.method, cell.seed, cell.sigma) for cell in pool] == [
        ("gaussian", seed, 0.5) for seed in (0, 1, 3)
    ]
    assert [cell.seed for cell in pool_cells(values | {"ensembles": {}}, "tiny", 0.5)] == [1, 3]
    with refuses(r"must be one of the sigmas of the parameters, 0\.25, 0\.5; got 0\.3"):
        pool_cells(values, "tiny", 0.3)


def test_a_member_that_the_grid_does_not_train_is_named():
    values = REAL | {"ensembles": {"a": entry(members={"macer": [0, 9]})}}
    with refuses("ensembles need macer with seed 9, but the grid does not train it; add it"):
        pool_cells(values, REAL["dataset"], REAL["sigmas"][0])
