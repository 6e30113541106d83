"""The page on training a network of one's own says what its committed rows say."""

import csv
import re
from math import sqrt
from statistics import fmean, stdev

from benchmarks.own_network import PAGE, ROWS, page, read_groups
from tests.support.helpers import ROOT

FOLDER = ROOT / ROWS


def radii(name):
    """The radius of each image that is certified rightly, 0 of the others, and whether it is classified rightly."""
    with (FOLDER / f"{name}.tsv").open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [float(row["radius"]) * int(row["correct"]) for row in rows], [int(row["correct"]) for row in rows]


def test_the_page_is_that_of_the_committed_rows():
    assert (ROOT / PAGE).read_text() == page(FOLDER)


def test_the_table_has_acr_error_accuracy_and_seconds_of_each_run():
    with (FOLDER / "seconds.csv").open() as lines:
        seconds = {row["run"]: float(row["cpu_seconds"]) for row in csv.DictReader(lines)}
    lines = [line.strip("| ").split(" | ") for line in page(FOLDER).splitlines() if re.match(r"\| [\d.]+ \|", line)]
    assert len(lines) == len(read_groups(FOLDER)) > 2
    for sigma, start, method, epochs, spent, acr, accuracy, _ in lines:
        name = f"{sigma}-{start}-{method}-{epochs.strip() or 0}-0"
        scores, right = radii(name)
        value, error = map(float, acr.split(" ± "))
        assert abs(value - fmean(scores)) < 6e-5
        assert abs(error - stdev(scores) / sqrt(len(scores))) < 6e-5
        assert accuracy == f"{fmean(right):.1%}"
        assert spent == f"{seconds.get(name, 0):,.0f}"
