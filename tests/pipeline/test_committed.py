"""Committed results agree with each other: rows, reports, the pages made of them, and the lock
file.
"""

import functools

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from benchmarks.common import unpack_rows
from benchmarks.page_tables import LEVELS, Committed, digits_ensembles, digits_methods, rows_of
from benchmarks.pages import BLOCK, blocks, fill, pages
from benchmarks.warm_starts import trainings
from rs.errors import InputError
from rs.statistics.comparison import estimate
from rs.statistics.metrics import acr
from rs.storage import certificate_rows
from tests.support.helpers import ROOT
from tests.support.small_project import run

MADE_OF_ROWS = [
    pytest.param(block, id=block[1])
    for page in pages()
    for block in blocks(page)
    if not block[1].startswith(
        "digits"
    )  # whose report `make repro` makes again, on each machine its own
]


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """The project, and the rows of each study unpacked, of which each file is read once."""
    folder = tmp_path_factory.mktemp("rows")
    unpack_rows(ROOT / "reports/rows", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate_rows, "read_rows", functools.cache(certificate_rows.read_rows))
        yield Committed(ROOT, folder)


def test_the_lock_file_has_the_cells_of_the_pipeline_and_no_others():
    stages = YAML(typ="safe", pure=True).load((ROOT / "dvc.lock").read_text())["stages"]
    assert {*stages} == {*run(ROOT, "dvc", "stage", "list", "--name-only").split()}


@pytest.mark.parametrize("block", MADE_OF_ROWS)
def test_make_pages_changes_no_table_that_is_made_of_committed_rows(block, committed):
    assert fill(block, committed) == block[0]


@pytest.mark.parametrize("level", LEVELS)
def test_the_acrs_on_cifar10_are_those_of_the_committed_rows(committed, level):
    frame = pd.read_csv(ROOT / "reports/cifar10-cpu/main.csv", index_col=["method", "sigma"])
    for method in committed.methods():
        row = frame.loc[(method, float(level))]
        frames, _ = rows_of(method, committed.study("cifar10-cpu", level))
        assert len(frames) == row["seeds"]
        assert np.mean([acr(frame) for frame in frames]) == pytest.approx(row["acr"], rel=1e-12)


def test_the_picture_of_warm_starts_shows_the_acrs_and_seconds_of_its_table(committed):
    folders = [committed.rows / study for study in ("cifar10-cpu", "cifar10-cpu-warm")]
    points = [*trainings(*folders, ROOT / "reports/rows/cifar10-cpu/epoch-seconds.csv")]
    of_three = {point[:3]: point for point in points if point.acr.seeds == 3}
    assert len(of_three) == 12
    for (method, is_warm, level), point in of_three.items():
        study = folders[is_warm].name
        assert point.acr == estimate(committed.sample(method, level, study))
        seconds, start = committed.seconds()[method], 5 * committed.seconds()["gaussian"]
        epochs = committed.epochs(study, level, method)
        assert point.seconds == pytest.approx(epochs * seconds + is_warm * start)


# ------------------------------------------------------------------------------------------ of
# digits


def test_a_method_of_the_digits_is_shown_with_its_errors_where_they_are_known(tmp_path):
    (tmp_path / "reports/digits").mkdir(parents=True)
    (tmp_path / "reports/digits/main.csv").write_text(
        "method,sigma,acr,standard_error,clean_accuracy,images,seeds,standard_error_with_seeds\n"
        "macer,0.25,0.46714,0.00794,0.9791,359,4,0.00866\n"
        "macer,0.5,0.36164,0.01278,0.8579,359,1,\n"
    )
    titles, line = digits_methods(Committed(tmp_path, tmp_path), "macer")
    assert titles == ["method", "σ = 0.25", "σ = 0.5"]
    assert line == ["macer", "0.467 ± 0.008 [0.009] (97.9%)", "0.362 ± 0.013 (85.8%)"]


def test_an_ensemble_of_the_digits_is_shown_with_what_it_gains_over_equal_weights(tmp_path):
    (tmp_path / "reports/digits").mkdir(parents=True)
    head = "ensemble,combination,members_per_draw,acr,images,seeds,reference_difference,reference_error_images,"
    lines = {
        0.25: "macer x3,average,3.0,0.48301,359,4,,,\nmacer x3,cascade,1.136,0.48181,359,4,-0.0012,0.0003,0.0010\n",
        0.5: "macer x3,average,3.0,0.38131,359,4,,,\nmacer x3,cascade,1.534,0.38551,359,4,0.0042,0.0004,\n",
    }
    for sigma, text in lines.items():
        path = tmp_path / f"reports/digits/ensembles-{sigma}.csv"
        path.write_text(f"{head}reference_error\n{text}macer x2,average,2.0,0.4,359,4,,,\n")
    _, average, cascade = digits_ensembles(Committed(tmp_path, tmp_path))
    assert average == ["macer x3", "average", "3.00", "0.483", "–", "3.00", "0.381", "–"]
    of_one = ["1.14", "0.482", "-0.0012 ± 0.0003 [0.0010] tie"]
    assert cascade == ["macer x3", "cascade", *of_one, "1.53", "0.386", "+0.0042 ± 0.0004"]


# ------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize(
    "text",
    ["<!-- generated: a -->\n", "<!-- generated: a -->\n<!-- generated: b -->\n<!-- end -->"],
)
def test_a_block_without_an_end_is_refused_before_a_page_is_overwritten(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError, match="must have one <!-- end -->"):
        blocks(page)


def test_a_block_is_filled_from_its_name_and_arguments(monkeypatch):
    def table(committed, *rest):
        return [["method", "σ"], ["macer", *rest]]

    monkeypatch.setattr("benchmarks.page_tables.complementary", table)
    made = fill(BLOCK.search("<!-- generated: complementary 0.5 -->\nold\n<!-- end -->"), None)
    shown = "| method | σ |\n|---|---:|\n| macer | 0.5 |"
    assert made == f"<!-- generated: complementary 0.5 -->\n\n{shown}\n\n<!-- end -->"
