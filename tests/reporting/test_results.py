from dataclasses import replace

import pytest

from rs.reporting.results import Result, filter_groups, grouped
from rs.reporting.tables import notes
from rs.statistics.metrics import acr
from rs.statistics.resampling import two_sided
from rs.storage.provenance import Provenance
from tests.support.helpers import refuses
from tests.support.tiny_study import CLASSES, N0, N, cell_rows, result

CLOSE = [
    result("a", [1.0, 1.1, 0.8, 1.0]),
    result("b", [0.9, 1.2, 0.8, 0.9]),
    result("c", [0.1] * 4),
]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n": 999}, "the same n, got 200 and 999"),
        ({"n": 999, "sigma": 1.0}, "the same n, got 200 and 999"),
        ({"subset": "first-4"}, "the same subset, got all and first-4"),
        ({"name": "a"}, "a at sigma 0.5, seed 0 must come once"),
        ({"radii": [1.0] * 5}, "the same images, got 4 and 5"),
    ],
)
def test_what_cannot_be_compared_never_stands_in_one_table(other, message):
    with refuses(message):
        grouped([CLOSE[0], result(**{"name": "z", "radii": [1.0] * 4, **other})])


def test_a_model_and_an_ensemble_of_one_name_are_refused():
    model = result("macer", [0.1, 0.2])
    ensemble = result(
        "macer", [0.3, 0.4], seed=None, ensemble="macer x2", members=(("macer", 0), ("macer", 1))
    )
    with refuses("one kind of classifier"):
        grouped([model, ensemble])


def ran(method="a", seed=0, **provenance):
    provenance = {"classifier": method} | provenance
    return result(method, [0.1, 0.2], seed=seed, provenance=Provenance(**provenance))


@pytest.mark.parametrize("name", ["device", "noise", "outputs"])
def test_one_that_was_computed_differently_is_named_with_what_differs(name):
    results = [ran("a", **{name: "x"}), ran("b", **{name: "y"}), ran("c", **{name: "x"})]
    assert notes.provenance_notes(results) == [
        f"Certified differently: {name} y (b), x (all others)."
    ]
    assert notes.provenance_notes(results[::2]) == []


def test_what_a_sidecar_does_not_say_differs_from_what_another_says():
    alone = result("theirs", [0.1, 0.2])
    results = [ran("a", 0), ran("a", 1), ran("b", arithmetic="native"), alone]
    assert notes.provenance_notes(results) == [
        "Certified differently: arithmetic native (b), not stated (all others)."
    ]
    assert notes.provenance_notes([alone, results[0]]) == []


def test_only_some_groups_keep_their_order_and_leave_no_noise_level_empty():
    groups = grouped([*CLOSE, result("other", [1.0] * 4, sigma=1.0)])
    kept = filter_groups(groups, lambda one: one.name in "bc")
    assert {sigma: list(methods) for sigma, methods in kept.items()} == {0.5: ["b", "c"]}
    assert kept[0.5]["b"] is groups[0.5]["b"]


def test_two_sided_acrs_are_those_of_the_votes_and_unknown_without_a_number_of_classes():
    rows = cell_rows("gaussian", 0.5, 0)
    known = Result(name="a", sigma=0.5, seed=0, rows=rows, subset="all", classes=CLASSES)
    assert known.acr_two_sided == {
        split: acr(table) for split, table in two_sided(rows, CLASSES).items()
    }
    assert Result(name="a", sigma=0.5, seed=0, rows=rows, subset="all").acr_two_sided == {}


def test_a_draw_takes_as_many_evaluations_as_there_are_members_or_as_the_rows_count():
    assert result("a", [1.0, 1.0]).members_per_draw == 1
    pair = result("a x2", [1.0, 1.0], ensemble="a x2", members=(("a", 0), ("a", 1)))
    assert pair.members_per_draw == 2
    counted = pair.rows.assign(
        evaluations=[(N0 + N), 2 * (N0 + N)]
    )  # one image decided by the first member
    assert replace(pair, rows=counted).members_per_draw == 1.5
