"""The claims of the paper against rows: ``rs.reporting.claims``."""

import numpy as np
import pytest

from rs.reporting import claims
from rs.reporting.claims import (
    Comparison,
    findings,
    findings_about_time,
    judged,
    training_seconds_of,
)
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED
from rs.statistics.comparison import Estimate
from rs.statistics.metrics import acr
from rs.storage import files
from tests.support.tiny_study import cell_rows, make_study, read_study, write_rows


def study(root):
    return read_study(root, equal_time=root / "equal-time", attacks=root / "attacks")


@pytest.fixture
def root(tmp_path):
    return make_study(tmp_path)


def found(root):
    return {(one.claim, one.sigma, one.subject): one for one in findings(study(root))}


def difference(value, p_value, error=0.01):
    return Estimate(value, 0.01, error, p_value, images=100, seeds=5)


@pytest.mark.parametrize(
    ("estimated", "verdict"),
    [
        (difference(0.03, 0.01), "held"),
        (difference(-0.03, 0.01), "refuted"),
        (difference(0.03, 0.06), "tie"),
        (difference(0.03, 0.01, error=None), f"held, {SEEDS_NOT_COVERED}"),
    ],
)
def test_a_difference_that_is_no_tie_is_judged_by_its_sign(estimated, verdict):
    (one,) = judged([Comparison("a claim", 0.5, "this", estimated)])
    assert one.verdict == verdict


def test_the_differences_of_one_claim_are_judged_together_and_those_of_another_apart():
    """Alone each has p = .03; the smaller of two must be below .025, the single one below .05."""
    one = difference(0.03, 0.03)
    found = judged([Comparison(claim, 0.5, "", one) for claim in ("a", "a", "b")])
    assert [each.verdict for each in found] == ["tie", "tie", "held"]


def test_what_has_no_rows_is_not_tested(root):
    made = found(root)
    smoothadv = made["AdvMacer beats SmoothAdv", 0.5, "means over seeds"]
    assert (smoothadv.verdict, smoothadv.numbers) == ("not tested", "")
    assert made["AdvMacer beats MACER at equal training time", 0.5, "rows"].verdict == "not tested"
    assert made["EsbRS beats the mean of its members", 0.5, "advmacer 0-1"].verdict != "not tested"


@pytest.mark.parametrize(
    ("trained", "counted"),
    [
        ({0.25: [0]}, [0]),  # at the other noise level there is none
        ({0.25: [0, 1], 0.5: [0, 1]}, [0, 1]),
        ({0.25: [0, 1], 0.5: [0]}, [0]),
    ],
)
def test_at_equal_time_verdicts_count_the_seeds_that_every_noise_level_has(root, trained, counted):
    """A training that was added at one level because others left a tie makes a verdict likelier
    than its level.
    """
    for sigma, seeds in trained.items():
        for seed in seeds:
            path = root / "equal-time" / str(sigma) / f"macer-{seed}.tsv"
            write_rows(cell_rows("gaussian", sigma, seed), path)
    subject = f"means over seeds {', '.join(map(str, counted))}"
    one = found(root)["AdvMacer beats MACER at equal training time", 0.25, subject]
    gaps = []
    for seed in counted:
        gaps.append(acr(cell_rows("advmacer", 0.25, seed)) - acr(cell_rows("gaussian", 0.25, seed)))
    assert one.numbers.split()[0] == f"{np.mean(gaps):+.4f}"
    assert (SEEDS_NOT_COVERED in one.verdict) == (len(counted) == 1)


ATTACKS = """sigma,classifier,scope,distance,attacked,below_half,outvoted
0.25,two.per-image,per-image,0.99,12,4,3
0.25,two.per-image,per-image,0.9,12,0,0
0.25,two.average,global,0.99,12,0,0
0.25,three.per-image,per-image,0.99,11,0,0
"""


def test_one_false_certificate_refutes_a_guarantee_and_none_does_not_prove_it(root):
    guarantee = "weights chosen per image keep the guarantee"
    assert found(root)[guarantee, 0.25, "attacks"].verdict == "not tested"
    files.write_text(root / "attacks" / "tiny.csv", ATTACKS)
    verdicts = {key[1:]: one.verdict for key, one in found(root).items() if key[0] == guarantee}
    assert verdicts == {
        (0.25, "two.per-image"): "refuted",
        (0.25, "three.per-image"): "tie",
        (0.5, "attacks"): "not tested",
    }


@pytest.mark.parametrize(
    ("macer", "smoothadv", "verdict"),
    [(18.0, 5.5, "held"), (16.4, 5.5, "held"), (16.3, 5.4, "refuted")],
)
def test_claims_about_time_have_a_tolerance_of_a_tenth(
    root, monkeypatch, macer, smoothadv, verdict
):
    seconds = {"advmacer": (6.0, 150), "macer": (macer, 440), "smoothadv": (smoothadv, 150)}
    monkeypatch.setattr(claims, "training_seconds_of", lambda _, method, __: seconds[method])
    cost, faster = list(findings_about_time(study(root)))[:2]
    assert (cost.verdict, faster.verdict) == (verdict, verdict)
    seconds["macer"] = (1000.0, 30)  # of another recipe than the paper's
    assert list(findings_about_time(study(root)))[1].verdict == "not tested"


def test_seconds_and_epochs_are_those_of_the_timing(root):
    assert training_seconds_of(study(root), "advmacer", 0.25) == (12.0, 4)  # 4 epochs of 3 seconds
    assert training_seconds_of(study(root), "smoothadv", 0.25) is None
    (root / "logs/0.25/advmacer/0/timing.csv").write_text("epoch,seconds\n1,9.0\n2,10.0\n3,11.0\n")
    assert training_seconds_of(study(root), "advmacer", 0.25) == (
        3.0,
        3,
    )  # the first epoch is no measure of the others
