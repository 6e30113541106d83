"""The page on the gain of a router says what its committed rows say."""

import csv
from statistics import fmean

from benchmarks.router import table
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import ROOT

FOLDER, PAGE = ROOT / "reports/rows/router", ROOT / "benchmarks/results/router.md"
NAMES = {"sigma 0.25": "0.25", "sigma 0.5": "0.5", "sigma 1": "1", "router": "router"}


def test_the_table_is_that_of_the_committed_rows():
    assert table({name: read_rows(FOLDER / f"{stem}.tsv") for name, stem in NAMES.items()}) in PAGE.read_text()


def test_the_acrs_are_means_of_radius_times_correct():
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    printed = {row[0]: float(row[1].split(" ± ")[0]) for row in cells if " ± " in row[1]}
    for name, stem in NAMES.items():
        with (FOLDER / f"{stem}.tsv").open() as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        assert abs(printed[name] - fmean(float(row["radius"]) * int(row["correct"]) for row in rows)) < 6e-5
