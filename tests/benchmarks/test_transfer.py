"""The page on certificates by transfer says what its committed votes say."""

from statistics import fmean

import pytest
from scipy.stats import beta, norm

from benchmarks.transfer_page import PAGE, ROWS, page
from tests.support.helpers import ROOT, read_csv

FOLDER, ALPHA, COUNT = ROOT / ROWS, 0.001, 1000
FILES = sorted(FOLDER.glob("*.csv"))


def acr(rows, bound, predict):
    """The mean of radius times correct, by SciPy alone."""
    radii = [float(row["sigma"]) * norm.ppf(bound(row)) if row[predict] == row["label"] else 0.0 for row in rows]
    return fmean(max(value, 0.0) for value in radii)


def anew(row):
    votes = int(row[f"votes_{COUNT}"])
    return beta.ppf(ALPHA, votes, COUNT - votes + 1)


def transferred(row):
    votes, n, losses = (int(row[name]) for name in ("votes", "n", f"losses_{COUNT}"))
    return beta.ppf(ALPHA / 2, votes, n - votes + 1) - beta.ppf(1 - ALPHA / 2, losses + 1, COUNT - losses)


def test_the_page_is_that_of_the_committed_votes():
    assert (ROOT / PAGE).read_text() == page(FOLDER)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_acrs_are_those_of_the_votes(path):
    rows = read_csv(path)
    about = f"| {float(rows[0]['sigma']):g} | {rows[0]['form']} |"
    cells = [line.split(" | ") for line in page(FOLDER).splitlines() if line.startswith(about)]
    printed = {cell[2]: float(cell[4].split(" ± ")[0]) for cell in cells if cell[3] == f"{COUNT:,}"}
    assert printed["anew"] == pytest.approx(acr(rows, anew, "anew"), abs=6e-5)
    assert printed["transfer"] == pytest.approx(acr(rows, transferred, "predict"), abs=6e-5)
