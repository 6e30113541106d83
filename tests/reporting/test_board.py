"""The board: figures by hand from small logs, groups, what is refused, and the committed board."""

import io
import json
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from rs.command_line.main import app
from rs.params import parse
from rs.reporting.board import LIST, PAGE, board_files
from rs.statistics.comparison import estimate, sample
from tests.support.helpers import ROOT, refuses, write_row_file
from tests.support.tiny_study import ALPHA, N, cell_rows, make_rows

HALF = ("1.23", "1.18", "1.14", "1.11", "0.557", "0.351", "0.197")
"""Radii that 1,000, 999, 998, 997, 900, 800 and 700 of 1,000 votes give at sigma 0.5 and alpha
0.001, as logs write them: sigma Phi^-1 of .99312, .9908, .98882, .987, .86746, .75845 and .65347.
"""

QUARTER = ("0.616", "0.589", "0.571", "0.557", "0.279", "0.175", "0.0987")
COMMITTED = ROOT / "reports" / "board"


def log(radii=HALF, wrong=(), abstaining=(), first=0):
    """A log of images of class 1, which are right but for those named."""
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    for image, radius in enumerate(radii):
        predict = -1 if image in abstaining else 2 if image in wrong else 1
        shown = "0.0" if image in abstaining else radius
        lines.append(f"{image + first}\t1\t{predict}\t{shown}\t{int(predict == 1)}\t0:00:01.5")
    return "\n".join(lines) + "\n"


def entry(name, **changes):
    stated = {"name": name, "dataset": "cifar10", "network": "resnet110", "licence": "MIT"}
    stated |= {"sigma": 0.5, "n": 1000, "alpha": 0.001, "source": f"https://example.org/{name}.tsv"}
    return stated | {"file": f"{name}.tsv"} | changes


def folder(path, texts, entries):
    """A folder of logs with its list."""
    path.mkdir(exist_ok=True)
    for name, text in texts.items():
        (path / name).write_text(text)
    (path / LIST).write_text("".join(f"- {json.dumps(each)}\n" for each in entries))
    return path


def board(path):
    """The page of a board and its numbers, by method."""
    content = board_files(path, 100)
    return content[PAGE].decode(), pd.read_csv(io.BytesIO(content["board.csv"]))


# -------------------------------------------------------------------------------------------------
# figures


def test_the_figures_are_those_by_hand(tmp_path):
    texts = {"a.tsv": log(wrong=[3]), "b.tsv": log(wrong=[0], abstaining=[4])}
    _, numbers = board(folder(tmp_path, texts, [entry("b"), entry("a")]))
    assert numbers["method"].tolist() == ["a", "b"], "the largest ACR must stand first"
    a, b = (numbers.set_index("method").loc[name] for name in "ab")
    assert a["acr"] == pytest.approx((1.23 + 1.18 + 1.14 + 0.557 + 0.351 + 0.197) / 7, rel=1e-12)
    assert b["acr"] == pytest.approx((1.18 + 1.14 + 1.11 + 0.351 + 0.197) / 7, rel=1e-12)
    shares = ["clean_accuracy", "0.50", "1.00", "p_A >= 0.9", "p_A >= 0.99"]
    assert (a[shares] * 7).tolist() == pytest.approx([6, 4, 3, 3, 2])
    assert (b[shares] * 7).tolist() == pytest.approx([5, 3, 3, 3, 1])
    assert b["to_best_difference"] == pytest.approx(b["acr"] - a["acr"], rel=1e-12)
    assert (a["best"], b["best"]) == (True, True), "a tie"


def test_trainings_of_one_name_have_an_error_over_images_and_seeds(tmp_path):
    listed = []
    samples = {}
    for name in ("gaussian", "advmacer"):
        frames = [cell_rows(name, 0.5, seed) for seed in (0, 1)]
        samples[name] = sample(frames, [[0], [1]])
        for seed, rows in enumerate(frames):
            write_row_file(rows, tmp_path / f"{name}-{seed}.tsv")
            file = f"{name}-{seed}.tsv"
            listed.append(entry(name, file=file, seed=seed, n=N, alpha=ALPHA))
    _, numbers = board(folder(tmp_path, {}, listed))
    first, second = numbers["method"]
    expected = estimate(samples[second], samples[first])
    assert numbers["trainings"].tolist() == [2, 2]
    assert numbers["to_best_difference"][1] == pytest.approx(expected.value, rel=1e-12)
    assert numbers["to_best_error"][1] == pytest.approx(expected.error, rel=1e-12)


# -------------------------------------------------------------------------------------------------
# groups


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (log(), {"network": "resnet20"}),
        (log(QUARTER), {"sigma": 0.25}),
        (log(first=1), {}),
    ],
    ids=["network", "sigma", "images"],
)
def test_what_may_not_be_compared_is_not(tmp_path, text, changes):
    listed = [entry("a"), entry("b", **changes)]
    _, numbers = board(folder(tmp_path, {"a.tsv": log(wrong=[0]), "b.tsv": text}, listed))
    assert numbers["best"].tolist() == [True, True]
    assert "to_best_difference" not in numbers


def test_figures_without_rows_are_quoted_below_their_group(tmp_path):
    listed = [entry("a"), entry("b", sigma=0.25), entry("q", quoted="ACR 0.76", file=None)]
    page, _ = board(folder(tmp_path, {"a.tsv": log(), "b.tsv": log(QUARTER)}, listed))
    half, _, quarter = page.partition("σ = 0.25")
    assert "Without rows: q, ACR 0.76 (https://example.org/q.tsv)." in half
    assert "Without rows" not in quarter


# -------------------------------------------------------------------------------------------------
# refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigma": 0.25}, "line 2: radius must be one that n = 1000, alpha = 0.001"),
        ({"file": None}, "with either a file or quoted figures, got a"),
        ({"dataset": "a | b"}, "0.dataset"),
        ({"file": "b.tsv"}, "b.tsv must be a file, but there is none"),
    ],
)
def test_an_entry_at_fault_or_that_its_log_contradicts_is_refused(tmp_path, changes, words):
    with refuses(words):
        board(folder(tmp_path, {"a.tsv": log()}, [entry("a", **changes)]))


@pytest.mark.parametrize("stated", [{"sigma": 0.25}, {"n": 9}])
def test_an_entry_that_its_rows_contradict_is_refused(tmp_path, stated):
    write_row_file(make_rows(0.5, 0), tmp_path / "a.tsv")
    listed = [entry("a", **{"n": N, "alpha": ALPHA} | stated)]
    with refuses("as board.yaml says, but its rows say otherwise"):
        board(folder(tmp_path, {}, listed))


@pytest.mark.parametrize("text", ["", "a: 1", "- {year: 2023-01-01}", "- {? [a] : 1}", "- {a"])
def test_a_list_that_is_none_is_refused(tmp_path, text):
    (tmp_path / LIST).write_text(text)
    with refuses(LIST):
        board(tmp_path)


@pytest.mark.parametrize("seed", [{}, {"seed": 1}])
def test_a_file_cannot_count_as_two_trainings(tmp_path, seed):
    listed = [entry("a"), entry("a", file="b.tsv", **seed)]
    with refuses("once"):
        board(folder(tmp_path, {"a.tsv": log(), "b.tsv": log()}, listed))


# -------------------------------------------------------------------------------------------------
# command


def test_the_command_writes_the_board_and_replaces_nothing_else(tmp_path):
    path = folder(tmp_path / "logs", {"a.tsv": log()}, [entry("a")])
    out = tmp_path / "board"
    words = ["board", str(path), "--out", str(out)]
    invoke = CliRunner().invoke
    assert invoke(app, words).stdout == f"board of {path} in {out}\n"
    assert {file.name: file.read_bytes() for file in out.iterdir()} == board_files(path, 100)
    assert "replace it with --force" in str(invoke(app, words).exception)
    words.append("--force")
    assert invoke(app, words).exit_code == 0
    (out / PAGE).rename(out / "thesis.txt")
    assert "must be new or a board, but holds" in str(invoke(app, words).exception)


# -------------------------------------------------------------------------------------------------
# committed

PUBLISHED = {
    0.25: "0.5616 0.5534 0.5519 0.5511 0.5444 0.5436 0.5313 0.4240 0.4199",
    0.5: "0.7571 0.7378 0.7356 0.7195 0.6910 0.6841 0.5312 0.5251",
    1.0: "0.8148 0.7896 0.7854 0.7563 0.7441 0.5145 0.5105",
}
"""ACRs of the public logs over all 10,000 images, which were computed without this project."""


@pytest.fixture(scope="module")
def listed():
    return parse((COMMITTED / LIST).read_text(), LIST)


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(COMMITTED / "board.csv")


@pytest.mark.parametrize("sigma", PUBLISHED)
def test_the_committed_acrs_of_public_logs_are_those_computed_elsewhere(committed, sigma):
    rows = committed.query("network == 'resnet110' and sigma == @sigma")
    assert [f"{value:.4f}" for value in rows["acr"]] == PUBLISHED[sigma].split()


@pytest.mark.parametrize(
    "sigma", [0.25, *(pytest.param(sigma, marks=pytest.mark.trust_only) for sigma in (0.5, 1.0))]
)
def test_the_committed_board_of_our_rows_is_made_of_the_committed_rows(
    listed, committed, tmp_path, sigma
):
    is_ours = "reports/rows/"
    ours = [one for one in listed if one["source"].startswith(is_ours) and one["sigma"] == sigma]
    for source in {each["source"] for each in ours}:
        shutil.unpack_archive(ROOT / source, tmp_path / source.split("/")[2], filter="data")
    _, numbers = board(folder(tmp_path, {}, ours))
    expected = committed.query("network == 'resnet8' and sigma == @sigma").reset_index(drop=True)
    expected = expected.dropna(axis="columns", how="all")
    assert len(numbers) > 10
    pd.testing.assert_frame_equal(numbers[list(expected)], expected, check_dtype=False, rtol=1e-9)
