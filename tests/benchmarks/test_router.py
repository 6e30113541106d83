"""The page on the gain of a router says what its committed rows say, and what came out of the search."""

import shutil
from statistics import fmean

import pytest

from benchmarks.router import table
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import ROOT, read_csv

PAGE = (ROOT / "benchmarks/results/router.md").read_text()
CELLS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
NAMES = {"sigma 0.25": "0.25", "sigma 0.5": "0.5", "sigma 1": "1", "router": "router"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    shutil.unpack_archive(ROOT / "reports/rows/router/rows.tar.xz", root, filter="data")
    return root


def test_the_table_is_that_of_the_committed_rows(folder):
    assert table({name: read_rows(folder / f"{stem}.tsv") for name, stem in NAMES.items()}) in PAGE


def test_the_acrs_are_means_of_radius_times_correct(folder):
    printed = {row[0]: float(row[1].split(" ± ")[0]) for row in CELLS if " ± " in row[1]}
    for name, stem in NAMES.items():
        rows = read_csv(folder / f"{stem}.tsv", "\t")
        assert abs(printed[name] - fmean(float(row["radius"]) * int(row["correct"]) for row in rows)) < 6e-5


def test_the_settings_are_those_of_the_search():
    rows = [[*row.values()] for row in read_csv(ROOT / "docs/tuning/router.csv")]
    shown = [[*row[:3], *(f"{float(v):.1%}" for v in row[3:6]), *(f"{float(v):.3f}" for v in row[6:])] for row in rows]
    assert [row for row in CELLS if len(row) == 8 and row[0].isdigit()] == shown
