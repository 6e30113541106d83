"""The claims of the paper against rows: ``benchmarks.claims``."""

import numpy as np
import pytest
from tiny_study import ENSEMBLES, cell_rows, ensemble_rows, make_study, write_rows

from benchmarks.claims import Study, findings, main, verdict_of
from rs import params
from rs.metrics import Paired


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


@pytest.mark.parametrize(
    ("difference", "error", "verdict"),
    [(0.03, 0.014, "held"), (-0.03, 0.014, "not held"), (0.03, 0.016, "tie"), (-0.03, 0.016, "tie"), (0.0, 0.0, "tie")],
)
def test_a_verdict_needs_two_standard_errors(difference, error, verdict):
    assert verdict_of(Paired(difference, error, 10, abs(difference) <= 2 * error)) == verdict


def test_an_ensemble_is_compared_with_the_mean_of_its_members_image_by_image(root):
    name = "advmacer x2"
    one = found(root)["EsbRS beats the mean of its members", 0.25, name]
    members = [score(cell_rows("advmacer", 0.25, seed)) for seed in (0, 1)]
    gaps = score(ensemble_rows(ENSEMBLES[0], 0.25)) - np.mean(members, axis=0)
    mean, error = gaps.mean(), gaps.std(ddof=1) / len(gaps) ** 0.5
    assert one.numbers == f"{mean:+.4f} ± {error:.4f}"
    assert one.verdict == ("tie" if abs(mean) <= 2 * error else "held" if mean > 0 else "not held")


def test_what_has_no_rows_is_not_tested(root):
    made = found(root)
    smoothadv = made["AdvMacer beats SmoothAdv", 0.5, "means over seeds"]
    assert (smoothadv.verdict, smoothadv.numbers) == ("not tested", "")
    assert made["AdvMacer beats MACER at equal training time", 0.5, "seed 0"].verdict == "not tested"
    assert made["EsbRS beats the mean of its members", 0.5, "advmacer x2"].verdict != "not tested"
    (root / "results" / "tiny" / "0.5" / "pool" / "advmacer-1.tsv").unlink()
    assert found(root)["EsbRS beats the mean of its members", 0.5, "advmacer x2"].verdict == "not tested"


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
