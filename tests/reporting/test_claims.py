"""The claims of the paper against rows: ``rs.reporting.claims``."""

import numpy as np
import pytest
from scipy import stats

from rs import params
from rs.reporting.claims import (
    Comparison,
    Evidence,
    claims_text,
    findings,
    findings_about_time,
    judged,
    times_text,
)
from rs.reporting.load import StudyFiles
from rs.reporting.results import grouped
from rs.statistics.comparison import Estimate
from rs.storage import files
from tests.support.helpers import update_json
from tests.support.tiny_study import cell_rows, make_study, write_rows


@pytest.fixture
def root(tmp_path):
    return make_study(tmp_path)


def evidence(root, epoch_seconds=None, **changes):
    values = params.read_params(root / "params.yaml") | changes
    folders = [root / name for name in ("results", "weights", "logs")]
    study = StudyFiles(values, "tiny", *folders, epoch_seconds)
    groups = grouped([*study.read_models(), *study.read_ensembles()])
    return Evidence(study, groups, root / "equal-time", root / "attacks")


def by_key(found):
    return {(one.claim, one.sigma, one.subject): one for one in found}


def found(root):
    return by_key(findings(evidence(root)))


def score(frame):
    return (frame["radius"] * frame["correct"]).to_numpy()


def estimate_of(value, error_images, error):
    """An estimate of so many images that Student's t is normal."""
    largest = max(error_images, error or 0)
    p = 2 * stats.norm.sf(abs(value) / largest) if largest else float(value == 0)
    return Estimate(value, error_images, error, p, 10**9, 5)


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (estimate_of(0.03, 0.01, 0.01), "held"),
        (estimate_of(-0.03, 0.01, 0.01), "not held"),
        (estimate_of(0.03, 0.02, 0.001), "tie"),  # by images
        (estimate_of(0.03, 0.001, 0.02), "tie"),  # by seeds
        (estimate_of(0.03, 0.01, None), "held, images only"),
        (estimate_of(0.0, 0.0, 0.0), "tie"),
    ],
)
def test_a_verdict_goes_by_the_larger_error(difference, verdict):
    (one,) = judged([Comparison("a claim", 0.5, "this", difference)])
    assert one.verdict == verdict


def test_the_differences_of_one_claim_are_judged_together_and_those_of_another_apart():
    """Alone each has p = .03; of two the smaller must be below .025, and the other claim has one
    difference.
    """
    difference = estimate_of(float(stats.norm.isf(0.015)), 1.0, None)
    verdicts = [
        one.verdict
        for one in judged([Comparison(claim, 0.5, "", difference) for claim in ("a", "a", "b")])
    ]
    assert verdicts == ["tie, images only", "tie, images only", "held, images only"]


def test_what_has_no_rows_is_not_tested(root):
    made = found(root)
    smoothadv = made["AdvMacer beats SmoothAdv", 0.5, "means over seeds"]
    assert (smoothadv.verdict, smoothadv.numbers) == ("not tested", "")
    assert made["AdvMacer beats MACER at equal training time", 0.5, "rows"].verdict == "not tested"
    assert made["EsbRS beats the mean of its members", 0.5, "advmacer 0-1"].verdict != "not tested"


@pytest.mark.parametrize(
    ("trained", "counted", "added"),
    [
        ({0.25: [0]}, [0], ""),  # at the other noise level there is none
        ({0.25: [0, 1], 0.5: [0, 1]}, [0, 1], ""),
        ({0.25: [0, 1], 0.5: [0]}, [0], "seed 1 at σ = 0.25"),
    ],
)
def test_at_equal_time_verdicts_count_the_seeds_that_every_noise_level_has(
    root, trained, counted, added
):
    """A training that was added at one level because others left a tie makes a verdict likelier
    than its level.
    """
    for sigma, seeds in trained.items():
        for seed in seeds:
            write_rows(
                cell_rows("gaussian", sigma, seed),
                root / "equal-time" / str(sigma) / f"macer-{seed}.tsv",
            )
    subject = f"means over seeds {', '.join(map(str, counted))}"
    one = found(root)["AdvMacer beats MACER at equal training time", 0.25, subject]
    gaps = [
        score(cell_rows("advmacer", 0.25, s)) - score(cell_rows("gaussian", 0.25, s))
        for s in counted
    ]
    assert one.numbers.split()[0] == f"{np.mean(gaps):+.4f}"
    assert ("images only" in one.verdict) == (len(counted) == 1)
    assert (f"and not {added}:" in claims_text(evidence(root), None, [])) == bool(added)


def test_a_study_without_weights_by_image_says_nothing_of_attacks_on_them(root):
    files.write_text(root / "attacks" / "tiny.csv", ATTACKS)
    params = (
        (root / "params.yaml")
        .read_text()
        .replace("combinations: [average, per-image]", "combinations: [average]")
    )
    (root / "params.yaml").write_text(params)
    assert not [one for one in found(root).values() if "chosen by the image" in one.claim]
    assert "attack" not in claims_text(evidence(root), None, [])


def test_a_page_says_that_weights_were_attacked_only_where_they_were(root):
    said = "Weights chosen by the image were attacked"
    assert said not in claims_text(evidence(root), None, [])
    files.write_text(root / "attacks" / "tiny.csv", ATTACKS)
    assert said in claims_text(evidence(root), None, [])


ATTACKS = """sigma,classifier,scope,distance,attacked,below_half,outvoted
0.25,two.per-image,per-image,0.9,12,0,0
0.25,two.per-image,per-image,0.99,12,4,3
0.25,two.average,global,0.99,12,0,0
0.25,three.per-image,per-image,0.99,11,0,0
"""


def test_one_false_certificate_refutes_the_guarantee_of_weights_by_image_and_none_does_not_prove_it(
    root,
):
    guarantee = "weights chosen by the image keep the guarantee"
    assert {one.verdict for (claim, *_), one in found(root).items() if claim == guarantee} == {
        "not tested"
    }
    files.write_text(root / "attacks" / "tiny.csv", ATTACKS)
    verdicts = {key[1:]: one.verdict for key, one in found(root).items() if key[0] == guarantee}
    expected = {
        (0.25, "two.per-image"): "not held",
        (0.25, "three.per-image"): "tie",
        (0.5, "attacks"): "not tested",
    }
    assert verdicts == expected
    said = "of 12 certified balls the class is below one half in 4, and outvoted in 3"
    assert found(root)[guarantee, 0.25, "two.per-image"].numbers == said


@pytest.mark.parametrize(
    ("macer", "smoothadv", "verdicts"), [(18, 5.5, "hh"), (16.3, 5.4, "nn"), (16.4, 5.5, "hh")]
)
def test_claims_about_time_have_a_tenth_to_spare(root, monkeypatch, macer, smoothadv, verdicts):
    seconds = {"advmacer": (6.0, 150), "macer": (float(macer), 440), "smoothadv": (smoothadv, 150)}
    monkeypatch.setattr(Evidence, "seconds", lambda _, method, __: seconds[method])
    made = by_key(findings_about_time(evidence(root)))
    faster = "AdvMacer trains 3 times faster than MACER"
    for claim, letter in zip(
        ("an epoch of AdvMacer costs what one of SmoothAdv costs", faster), verdicts, strict=True
    ):
        assert made[claim, 0.25, "seconds"].verdict == {"h": "held", "n": "not held"}[letter]
    seconds["macer"] = (1000.0, 30)  # of another recipe than the paper's
    assert (
        by_key(findings_about_time(evidence(root)))[faster, 0.25, "seconds"].verdict == "not tested"
    )


def test_the_page_of_times_says_what_the_seconds_are(root):
    (root / "seconds.csv").write_text("method,seconds\ngaussian,1.0\nadvmacer,2.0\n")
    own, measured = (times_text(evidence(root, path)) for path in (None, root / "seconds.csv"))
    assert (
        "Seconds of the first seed, as if every epoch took the median of them, with 10% to spare."
        in own
    )
    assert (
        "Seconds are epochs times seconds of an epoch that were measured for all methods side by "
        "side" in measured
    )
    assert "first seed" not in measured


def test_seconds_and_epochs_are_those_of_the_timing(root):
    assert evidence(root).seconds("advmacer", 0.25) == (12.0, 4)  # 4 epochs of 3 seconds
    assert evidence(root).seconds("smoothadv", 0.25) is None
    (root / "logs/0.25/advmacer/0/timing.csv").write_text("epoch,seconds\n1,9.0\n2,10.0\n3,11.0\n")
    assert evidence(root).seconds("advmacer", 0.25) == (
        3.0,
        3,
    )  # the first epoch is no measure of the others


def test_the_page_has_every_finding_what_there_is_and_what_must_be_said(root):
    text = claims_text(evidence(root), "smallnet", ["Ninety percent went through JPEG."])
    for one in found(root).values():
        assert (
            f"| {one.claim} | {one.sigma} | {one.subject} | {one.numbers} | {one.verdict} |" in text
        )
    assert "\nNinety percent went through JPEG.\n" in text
    assert "\n12 images (subset first-12), n₀ = 10, n = 200, α = 0.01. Network: smallnet.\n" in text
    assert "| 0.25 | 3 of 3 | 3 of 3 |" in text
    assert "| 0.5 | 3 of 3 | 3 of 3 |" in text


def test_the_page_says_which_trainings_start_from_other_models(root):
    said = "Trainings by advmacer start from models that were trained almost without noise, not from random weights."
    assert said not in claims_text(evidence(root), None, [])
    recipes = params.read_params(root / "params.yaml")["recipes"]
    recipes["tiny"]["advmacer"]["training"]["warm_start"] = {"sigma": 0.001, "epochs": 5}
    warm_only = evidence(root, recipes=recipes)
    assert f"\n{said}\n" in claims_text(warm_only, None, [])


def test_the_page_says_of_which_classifiers_the_logits_were_rounded(root):
    assert "float16" not in claims_text(evidence(root), None, [])
    update_json(root / "results/0.5/pool/advmacer-1.json", outputs="float16")
    text = claims_text(evidence(root), None, [])
    assert "The pool kept the logits of its members in float16" in text
    assert (
        "Certified differently: outputs float16 (advmacer at sigma 0.5, seed 1), as computed (all "
        "others)." in text
    )
