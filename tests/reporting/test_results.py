import math
from dataclasses import replace

import pytest

from rs.reporting.results import Result, grouped
from rs.reporting.tables import notes
from rs.statistics.metrics import acr
from rs.statistics.resampling import two_sided
from rs.storage.provenance import Provenance
from tests.support.helpers import refuses
from tests.support.tiny_study import CLASSES, cell_rows, result


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n": 999, "sigma": 1.0}, "the same n, got 200 and 999"),
        ({"subset": "first-4"}, "the same subset, got all and first-4"),
        ({"name": "a"}, "a at sigma 0.5, seed 0 must come once"),
        ({"radii": [1.0] * 5}, "the same images, got 4 and 5"),
        ({"name": "a", "seed": 1, "ensemble": "a x2"}, "must be one kind of classifier"),
    ],
)
def test_what_cannot_be_compared_never_stands_in_one_table(other, message):
    with refuses(message):
        grouped([result("a", [1.0] * 4), result(**{"name": "z", "radii": [1.0] * 4, **other})])


def ran(method="a", seed=0, **provenance):
    provenance = {"classifier": method} | provenance
    return result(method, [0.1, 0.2], seed=seed, provenance=Provenance(**provenance))


def test_one_that_was_computed_differently_is_named_with_what_differs():
    results = [ran("a", device="x"), ran("b", device="y"), ran("c", device="x")]
    (note,) = notes.provenance_notes(results)
    assert note == "Certified differently: device y (b), x (all others)."
    assert notes.provenance_notes(results[::2]) == []


def test_what_a_sidecar_does_not_say_differs_from_what_another_says():
    alone = result("theirs", [0.1, 0.2])
    results = [ran("a", 0), ran("a", 1), ran("b", arithmetic="native"), alone]
    (note,) = notes.provenance_notes(results)
    assert note == "Certified differently: arithmetic native (b), not stated (all others)."
    assert notes.provenance_notes([alone, ran("a")]) == []


def test_two_sided_acrs_are_those_of_the_votes_and_unknown_without_a_number_of_classes():
    rows = cell_rows("gaussian", 0.5, 0)
    unknown = Result(name="a", sigma=0.5, seed=0, rows=rows, subset="all")
    known = replace(unknown, classes=CLASSES)
    assert known.acr_two_sided == acr(two_sided(rows, CLASSES))
    assert math.isnan(unknown.acr_two_sided)
