"""The commands ``rs show`` and ``rs compare``, as a person runs them."""

import json

import pytest
from typer.testing import CliRunner

from rs.command_line.main import app
from rs.reporting.summaries import compare_rows, summarize_rows
from rs.reporting.summary_texts import comparison_text, summary_text
from rs.storage import certificate_rows
from tests.support.helpers import update_json
from tests.support.tiny_study import ALPHA, N0, N, at_radii, cell_rows, write_rows


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"advmacer-{seed}.tsv" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        write_rows(cell_rows("advmacer", 0.5, seed), path)
    return paths


def said(*words):
    """Exit code of ``rs WORDS``, and what it prints on stdout and, in one line, on stderr."""
    result = CliRunner().invoke(app, [*map(str, words)], prog_name="rs")
    return result.exit_code, result.stdout, str(result.exception or result.stderr)


def refusal(*words):
    """The line in which ``rs WORDS`` refuses, with nothing on stdout."""
    code, out, error = said(*words)
    assert code != 0
    assert out == ""
    return error


def test_one_file_is_described_and_several_are_lines_of_one_table(files):
    text = summary_text(summarize_rows(files[0]))
    assert said("show", files[0])[:2] == (0, text + "\n")
    code, out, _ = said("show", *files, "--radii", "0.25,0.5")
    common, _, head, *lines = out.splitlines()
    assert code == 0
    assert common == f"12 images; sigma = 0.5, n0 = {N0}, n = {N:,}, alpha = {ALPHA:g}"
    assert head.split() == ["ACR", "at", "0.25", "at", "0.5"]
    for line, path in zip(lines, files, strict=True):
        about = summarize_rows(path, [0.25, 0.5])
        shares = [f"{share:.1%}" for share in about["certified_accuracy"].values()]
        acr = [f"{about['acr']:.3f}", "±", f"{about['standard_error']:.3f}"]
        assert line.split() == [path.stem, *acr, *shares]


def test_every_file_is_an_object_on_a_line_of_its_own(files):
    code, out, _ = said("show", *files, "--json", "--radii", "0.25,0.5")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        summarize_rows(path, [0.25, 0.5]) for path in files
    ]


def test_files_are_drawn(files, tmp_path):
    curves = tmp_path / "curves.svg"
    assert said("show", *files, "--picture", curves)[0] == 0
    assert all(path.stem in curves.read_text(encoding="utf-8") for path in files)


def test_files_of_two_noise_levels_are_compared_at_given_radii(files, tmp_path):
    """Certified accuracies at one radius mean the same at each sigma, ACRs do not."""
    other = tmp_path / "other.tsv"
    write_rows(cell_rows("advmacer", 1.0, 0), other)
    at_radius = (files[0], other, "--radii", "0.25")
    found = json.loads(said("compare", *at_radius, "--json")[1])
    assert (found["acr"], found["clean_accuracy"], found["sigma"]) == (None, None, None)
    shares = []
    for path in (files[0], other):
        rows = certificate_rows.read_rows(path)
        shares.append(((rows["radius"] >= 0.25) & (rows["correct"] == 1)).mean())
    row = found["certified_accuracy"]["0.25"]
    assert [row["a"], row["b"]] == shares
    assert "sigma = 0.5 and 1" in said("compare", *at_radius)[1]


def test_radii_that_are_no_numbers_are_named(files):
    error = refusal("show", files[0], "--radii", "a half")
    assert error == "--radii must be numbers with commas between them, like 0.25,0.5, got 'a half'"


def test_options_say_what_logs_do_not(files, tmp_path):
    log = tmp_path / "theirs.log"
    assert said("export", files[0], "--out", log)[:2] == (0, f"12 images; log in {log}\n")
    stated = {"sigma": 0.5, "n0": N0, "n": N, "alpha": ALPHA}
    words = [f"--{name}={value}" for name, value in stated.items()]
    assert said("show", log, *words)[1] == summary_text(summarize_rows(log, **stated)) + "\n"
    expected = comparison_text(compare_rows(log, files[1], **stated))
    assert said("compare", log, files[1], *words)[1] == expected + "\n"
    for refused, message in (
        (
            ["show", log, "--picture", tmp_path / "curves.png"],
            "must have a noise level to be drawn",
        ),
        (["report", log, "--out", tmp_path / "report.html"], "must have labels and all votes"),
        (["compare", *files, words[2]], "--n must be left out"),
    ):
        assert message in refusal(*refused)
    assert not {".png", ".html"} & {path.suffix for path in tmp_path.iterdir()}
    log.write_text(log.read_text().replace("\tradius", ""))
    message = "line 1: must be certificate rows of `rs certify`, with"
    assert message in refusal("show", log, "--sigma", 0.5)


def test_rows_of_given_radii_have_no_picture(tmp_path):
    path = tmp_path / "rows.tsv"
    write_rows(at_radii(cell_rows("advmacer", 0.5, 0), 0.25), path)
    error = refusal("show", path, "--picture", tmp_path / "curves.png")
    assert f"{path} must have labels and radii to be drawn" in error
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize("column", ["label", "counts"])
def test_rows_of_more_classes_than_their_sidecar_has_are_neither_shown_nor_exported(
    files, tmp_path, column
):
    rows = cell_rows("advmacer", 0.5, 0)
    if column == "label":
        rows = rows.assign(label=99, correct=0)
    else:
        rows["counts"] = rows["counts"].str.replace("1:", "99:")
    write_rows(rows, files[0])
    for words in (["show", files[0]], ["export", files[0], "--out", tmp_path / "theirs.log"]):
        message = "has labels or votes of 100 classes but its sidecar 3; certify again"
        assert message in refusal(*words)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split_size": 13}, " of the images all of 13, as its sidecar says, but"),
        (
            {"split_size": 5},
            "must be of the images all of 5, as its sidecar says, but is of others",
        ),
        ({"share": "1/2"}, "must be of the images all, as its sidecar says, but is"),
    ],
)
def test_a_sidecar_of_another_split_is_refused_by_every_command_that_reads_rows(
    files, tmp_path, change, message
):
    sidecar = files[0].with_suffix(".json")
    update_json(sidecar, subset="all", split_size=12)
    assert said("show", files[0])[0] == 0
    update_json(sidecar, **{"split_size": None} | change)
    page = tmp_path / "page.html"
    for words in (["show", files[0]], ["compare", *files], ["report", files[0], "--out", page]):
        assert message in refusal(*words)
