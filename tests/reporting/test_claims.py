"""The claims of the paper against rows: ``benchmarks.claims``."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.claims import Compared, Study, findings, judged, main
from rs import params
from rs.statistics.comparison import Estimate, two_way_error
from tests.support.tiny_study import ENSEMBLES, cell_rows, ensemble_rows, make_study, write_rows


@pytest.fixture
def root(tmp_path):
    """The made-up study, where the pipeline puts results and logs."""
    made = make_study(tmp_path / "made")
    for kind in ("results", "logs"):
        (made / kind).rename(made / "aside")
        (made / kind).mkdir()
        (made / "aside").rename(made / kind / "tiny")
    return made


def found(root):
    made = findings(Study(params.read(root / "params.yaml"), "tiny", root))
    return {(one.claim, one.sigma, one.what): one for one in made}


def score(frame):
    return (frame["radius"] * frame["correct"]).to_numpy()


def estimate_of(value, error_images, error):
    return Estimate(value, error_images, error, 10, 1000, 5)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (estimate_of(0.03, 0.01, 0.01), "held"),
        (estimate_of(-0.03, 0.01, 0.01), "not held"),
        (estimate_of(0.03, 0.02, 0.001), "tie"),  # by images
        (estimate_of(0.03, 0.001, 0.02), "tie"),  # by seeds
        (estimate_of(0.03, 0.01, None), "held, images only"),
        (estimate_of(0.0, 0.0, 0.0), "tie"),
    ],
)
def test_a_verdict_goes_by_the_larger_error(made, verdict):
    (one,) = judged([Compared("a claim", 0.5, "this", made)])
    assert one.verdict == verdict


def test_the_differences_of_one_claim_are_judged_together_and_those_of_another_apart():
    """Alone each has p = .03; of two the smaller must be below .025, and the other claim has one difference."""
    value = float(stats.norm.isf(0.015))  # of so many images that Student's t is normal
    made = Estimate(value, 1.0, None, 1e9, 10**9, 1)
    verdicts = [one.verdict for one in judged([Compared(claim, 0.5, "", made) for claim in ("a", "a", "b")])]
    assert verdicts == ["tie, images only", "tie, images only", "held, images only"]


def test_an_ensemble_is_compared_with_the_mean_of_its_members_image_by_image(root):
    name = "advmacer 0-1"
    one = found(root)["EsbRS beats the mean of its members", 0.25, name]
    members = [score(cell_rows("advmacer", 0.25, seed)) for seed in (0, 1)]
    gaps = score(ensemble_rows(ENSEMBLES[0], 0.25)) - np.mean(members, axis=0)
    mean, error = gaps.mean(), gaps.std(ddof=1) / len(gaps) ** 0.5
    assert one.numbers == f"{mean:+.4f} ± {error:.4f}"
    assert one.verdict.endswith(", images only")


def test_models_of_several_seeds_have_both_errors(root):
    """AdvMacer has two seeds in this study; beside a method of the same two, both are left out one by one."""
    for sigma in (0.25, 0.5):
        for seed in (0, 1):
            made = cell_rows("gaussian", sigma, seed)
            write_rows(made, root / "results" / "tiny" / str(sigma) / "pool" / f"smoothadv-{seed}.tsv")
    values = params.read(root / "params.yaml") | {"members": ["advmacer", "smoothadv"], "member_seeds": [0, 1]}
    made = list(findings(Study(values, "tiny", root)))
    one = next(one for one in made if one.claim == "AdvMacer beats SmoothAdv" and one.sigma == 0.25)
    pairs = [score(cell_rows("advmacer", 0.25, s)) - score(cell_rows("gaussian", 0.25, s)) for s in (0, 1)]
    error, _ = two_way_error(np.array(pairs))
    assert one.numbers.endswith(f"[{error:.4f}]")
    assert "images only" not in one.verdict


def test_what_has_no_rows_is_not_tested(root):
    made = found(root)
    smoothadv = made["AdvMacer beats SmoothAdv", 0.5, "means over seeds"]
    assert (smoothadv.verdict, smoothadv.numbers) == ("not tested", "")
    assert made["AdvMacer beats MACER at equal training time", 0.5, "seed 0"].verdict == "not tested"
    assert made["EsbRS beats the mean of its members", 0.5, "advmacer 0-1"].verdict != "not tested"
    (root / "results" / "tiny" / "0.5" / "pool" / "advmacer-1.tsv").unlink()
    assert found(root)["EsbRS beats the mean of its members", 0.5, "advmacer 0-1"].verdict == "not tested"


def test_equal_time_is_read_from_its_own_folder(root):
    other = cell_rows("gaussian", 0.25, 0)
    write_rows(other, root / "equal-time" / "results" / "tiny" / "0.25" / "macer-0.tsv")
    one = found(root)["AdvMacer beats MACER at equal training time", 0.25, "seed 0"]
    gaps = score(cell_rows("advmacer", 0.25, 0)) - score(other)
    assert one.numbers.split()[0] == f"{gaps.mean():+.4f}"


@pytest.mark.parametrize(("macer", "smoothadv", "verdicts"), [(18, 5.5, "hh"), (16.3, 5.4, "nn"), (16.4, 5.5, "hh")])
def test_claims_about_time_have_a_tenth_to_spare(root, monkeypatch, macer, smoothadv, verdicts):
    seconds = {"advmacer": (6.0, 150), "macer": (float(macer), 440), "smoothadv": (smoothadv, 150)}
    monkeypatch.setattr(Study, "seconds", lambda _, method, __: seconds[method])
    made = found(root)
    for claim, letter in zip(
        ("an epoch of AdvMacer costs what one of SmoothAdv costs", "AdvMacer trains 3 times faster than MACER"),
        verdicts,
        strict=True,
    ):
        assert made[claim, 0.25, "seconds"].verdict == {"h": "held", "n": "not held"}[letter]
    seconds["macer"] = (1000.0, 30)  # of another recipe than the paper's
    assert found(root)["AdvMacer trains 3 times faster than MACER", 0.25, "seconds"].verdict == "not tested"


def test_seconds_and_epochs_are_those_of_the_last_line_of_the_timing(root):
    made = Study(params.read(root / "params.yaml"), "tiny", root)
    assert made.seconds("advmacer", 0.25) == (12.0, 4)  # 4 epochs of 3 seconds
    assert made.seconds("smoothadv", 0.25) is None


def test_the_page_has_every_finding_and_what_ran(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    main("tiny", tmp_path / "page.md", [], ["Ninety percent went through JPEG."], root / "params.yaml")
    page = (tmp_path / "page.md").read_text()
    for one in found(root).values():
        assert f"| {one.claim} | {one.sigma} | {one.what} | {one.numbers} | {one.verdict} |" in page
    assert "\nNinety percent went through JPEG.\n" in page
    assert "| 0.25 | 0 of 3 | 3 of 3 |" in page  # no provenance in this study
