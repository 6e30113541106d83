import io
import json
from statistics import NormalDist

import pandas as pd
import pytest

from rs.reporting import figures, report
from rs.statistics import metrics
from rs.storage import certificate_rows
from stages.tables import main
from tests.support.helpers import exit_code, refuses, update_json, write_row_file
from tests.support.tiny_bundle import undrawn
from tests.support.tiny_study import (
    ALPHA,
    ENSEMBLES,
    N0,
    SIGMAS,
    N,
    at_radii,
    cell_rows,
    make_study,
    read_study,
)


@pytest.fixture
def tiny(tmp_path):
    return make_study(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The report of the study as it is, with its pictures."""
    return tiny_report(make_study(tmp_path_factory.mktemp("study")))


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """No test draws pictures, which takes long; ``made`` is of the module, so it comes before."""
    monkeypatch.setattr(report, "_picture", undrawn)


def tiny_report(root):
    return report.make_report(read_study(root))


def times_of(root):
    """The report of times."""
    return report.report_times(read_study(root))


def csv_of(content, name):
    return pd.read_csv(io.BytesIO(content[name]))


def markdown(content):
    """The tables and pages, as text by file name."""
    return {name: text.decode() for name, text in content.items() if name.endswith(".md")}


def command(root, *more):
    """Run the stage; its exit code."""
    paths = [f"--{name}={root / name}" for name in ("results", "weights", "out")]
    return exit_code(main, "tiny", *paths, f"--params={root / 'params.yaml'}", *more)


def test_the_stage_writes_every_table_and_keeps_wall_times_apart(tiny):
    assert command(tiny) == 0
    (tiny / "out" / "certified-0.75.csv").write_text("of another grid")
    assert command(tiny) == 0
    names = {path.name for path in (tiny / "out").iterdir()}
    assert names >= {"main.md", "main.tex", "main.csv", "metrics.json", "index.html"}
    assert "certified-0.75.csv" not in names
    assert command(tiny, f"--logs={tiny / 'logs'}", f"--out={tiny / 'timed'}") == 0
    times = {path.name for path in (tiny / "timed").iterdir()}
    assert times & names == {"claims.md"}


def stated(root, **values):
    """The sidecars of the study, after they have got these values."""
    sidecars = sorted((root / "results").rglob("*.json"))
    for path in sidecars:
        update_json(path, **values)
    return sidecars


@pytest.mark.parametrize(
    ("key", "values", "name"),
    [("images", ("a" * 64, "b" * 64), "images"), ("seed", (0, 1), "noise seed")],
)
def test_rows_of_other_images_or_noise_than_the_others_are_refused(tiny, key, values, name):
    stated(tiny, **{key: values[0]})
    update_json(tiny / f"results/0.5/pool/{ENSEMBLES[2]}.json", **{key: values[1]})
    with refuses(f"must be certified with the same {name}, got [0a]+ and [1b]+|[1b]+ and [0a]+"):
        tiny_report(tiny)


def test_rows_that_only_say_which_radii_hold_are_refused(tiny):
    path = tiny / "results/0.5/gaussian-0.tsv"
    write_row_file(at_radii(certificate_rows.read_rows(path), 0.0, 0.25), path)
    with refuses(r"gaussian at sigma 0\.5, seed 0 must hold radii, .* without --at-radius"):
        tiny_report(tiny)


def test_rows_of_another_version_of_the_code_are_noted(tiny):
    """The stages for models and for pools are different code."""
    for path in stated(tiny, code="1" * 64):
        if path.parent.name == "pool":
            update_json(path, code="2" * 64)
    assert "Certified differently" not in "".join(markdown(tiny_report(tiny)).values())
    update_json(tiny / "results/0.25/gaussian-0.json", code="3" * 64)
    said = "code of models 33333333 (gaussian at sigma 0.25, seed 0), 11111111 (all others)"
    assert said in tiny_report(tiny)["main.md"].decode()


@pytest.mark.parametrize("name", ["gaussian-0", f"pool/{ENSEMBLES[0]}"])
def test_a_classifier_of_which_no_image_was_selected_right_stands_in_every_table(tiny, name):
    skipped = {"n": 0, "counts": "-", "p_lower": 0.0, "radius": 0.0, "mode": "shortcut"}
    skipped |= {"counts0": f"2:{N0}", "predict": 2, "correct": 0}
    for sigma in SIGMAS:
        path = tiny / "results" / str(sigma) / f"{name}.tsv"
        write_row_file(certificate_rows.read_rows(path).assign(**skipped), path)
    tables = markdown(tiny_report(tiny)).values()
    assert not [text for text in tables if "nan" in text]
    captions = [text for text in tables if "n₀ = " in text]
    assert len(captions) > 5
    assert all("n = 200," in text for text in captions)


COMPARING = ["claims", "main", "differences", "bounds"] + [
    f"{stem}-{sigma}" for stem in ("certified", "ensembles", "weighting") for sigma in SIGMAS
]
"""Pages with rows of the ensembles; that of cost has the trained methods alone."""


def test_every_table_says_what_was_certified_differently(tiny):
    for path in (tiny / "results").glob("*/**/*.json"):
        precision = "bfloat16" if path.stem == ENSEMBLES[0] else "float32"
        update_json(path, precision=precision, versions={"torch": "2.9.1"})
    said = "Certified differently: precision bfloat16 (advmacer 0-1), float32 (all others)."
    texts = markdown(times_of(tiny) | tiny_report(tiny))
    assert {name for name, text in texts.items() if said in text} == {
        f"{stem}.md" for stem in COMPARING
    }


def test_the_metrics_are_the_acrs_of_methods_and_of_the_first_ensemble(made):
    acrs = json.loads(made["metrics.json"])["acr"]
    assert list(acrs) == ["gaussian", "advmacer", "advmacer 0-1"]
    for sigma in SIGMAS:
        expected = metrics.acr(cell_rows("gaussian", sigma, 0))
        assert acrs["gaussian"][str(sigma)] == pytest.approx(expected)


def test_gains_are_of_the_best_largest_ensembles_at_radii_of_the_curves(made):
    curves = csv_of(made, "curves.csv")
    gains = csv_of(made, "gains.csv")
    assert len(gains) > 0
    for (sigma, method, single), line in gains.groupby(["sigma", "method", "single"]):
        at_sigma = curves[curves["sigma"] == sigma].set_index("radius")
        of_ensemble = at_sigma[at_sigma["method"] == method].loc[line["radius"]]
        of_single = at_sigma[at_sigma["method"] == single].loc[line["radius"]]
        expected = of_ensemble["accuracy"].to_numpy() - of_single["accuracy"].to_numpy()
        assert line["gain"].to_numpy() == pytest.approx(expected)
        assert set(of_single["members"]) == {1}
        assert set(of_ensemble["members"]) == {curves["members"].max()}


def lines_of(axis):
    """Lines of a panel by name, those with bars too."""
    named = zip(*axis.get_legend_handles_labels(), strict=True)
    return {name: getattr(line, "lines", [line])[0] for line, name in named}


def test_curves_and_gains_are_drawn_with_the_largest_possible_radius(made):
    """Clopper and Pearson's bound of n votes of n is alpha^(1/n)."""
    curves = csv_of(made, "curves.csv")
    gains = csv_of(made, "gains.csv")
    axes = figures.draw_certified_accuracy(curves, gains, N, ALPHA).axes
    largest = lines_of(axes[0])["largest possible"].get_xdata()[0]
    assert largest == pytest.approx(SIGMAS[0] * NormalDist().inv_cdf(ALPHA ** (1 / N)))
    singles = curves[curves["members"] == 1]
    for axis, frame, column in ((axes[0], singles, "accuracy"), (axes[2], gains, "gain")):
        for name, line in frame[frame["sigma"] == SIGMAS[0]].groupby("method"):
            assert lines_of(axis)[name].get_ydata().tolist() == line[column].tolist()


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_numbers_give_the_same_bytes_without_a_date(form, begin):
    line = {"sigma": 0.5, "method": "macer", "seconds": [10.0], "acr": 0.1, "error": 0.01}
    picture = report.drawn(figures.draw_acr_over_time(pd.DataFrame(line)), form)
    assert picture == report.drawn(figures.draw_acr_over_time(pd.DataFrame(line)), form)
    assert picture.startswith(begin)
    assert b"dc:date" not in picture


def test_tables_do_not_change_with_the_clock_or_with_what_else_lies_about(tiny, made):
    timed = times_of(tiny)
    for path in tiny.rglob("timing.csv"):
        path.write_text("epoch,seconds\n2,99.0\n4,100.0\n")
    for path in tiny.rglob("alone.csv"):
        path.write_text(path.read_text().replace(".5", ".75"))
    write_row_file(cell_rows("gaussian", 0.5, 0), tiny / "results" / "0.5" / "unlisted-0.tsv")
    again = tiny_report(tiny)
    assert again.keys() == made.keys()
    drawn = (".png", ".svg")  # by `made` only
    assert [n for n in made if not n.endswith(drawn) and again[n] != made[n]] == []
    same = {name for name, content in times_of(tiny).items() if content == timed[name] and content}
    assert same == {"claims.md"}  # of methods that this study does not have


def test_a_study_that_was_never_evaluated_has_no_picture_of_it(tiny):
    for path in tiny.rglob("history.csv"):
        path.write_text("epoch,acr\n1,\n2,\n")
    content = times_of(tiny)
    assert content["acr-vs-time.csv"] == b"method,sigma,epoch,seconds,acr,error\n"
    assert "acr-vs-time.png" not in content


def test_times_of_another_training_or_other_rows_are_not_reported(tiny):
    """What came back from a cache was timed in another run, whose times lie where its own would."""
    content = times_of(tiny)
    assert {*csv_of(content, "cost.csv")["method"]} == {"gaussian", "advmacer"}
    assert csv_of(content, "weighting-0.5.csv")["seconds"].notna().all()
    for sigma in SIGMAS:
        update_json(tiny / f"logs/{sigma}/gaussian/0/provenance.json", classifier="f" * 64)
    update_json(tiny / f"results/0.5/pool/{ENSEMBLES[0]}.json", device="cuda")
    content = times_of(tiny)
    assert {*csv_of(content, "cost.csv")["method"]} == {"advmacer"}
    weighting = csv_of(content, "weighting-0.5.csv")
    unknown = weighting[weighting["seconds"].isna()]
    assert unknown[["ensemble", "combination"]].values.tolist() == [["advmacer 0-1", "average"]]


def test_a_wrong_input_is_one_line_that_says_what_to_do(tiny, capsys):
    params = tiny / "params.yaml"
    params.write_text(params.read_text().replace("combination: average,", "combination: avarage,"))
    assert command(tiny) == 2
    error = capsys.readouterr().err
    assert "got 'avarage'" in error
    assert error.count("\n") == 1
    assert not (tiny / "out").exists()


@pytest.mark.parametrize("name", ["timing.csv", "history.csv"])
def test_wrong_times_name_the_command_that_makes_them(tiny, name):
    (tiny / "logs/0.25/gaussian/0" / name).write_text("a\n1\n")
    with refuses(r"dvc repro train@tiny-gaussian-0\.25-0"):
        times_of(tiny)
