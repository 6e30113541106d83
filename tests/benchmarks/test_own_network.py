"""The page on training a network of one's own says what its committed rows say."""

import re
from math import sqrt
from statistics import fmean, median, stdev

from benchmarks.finetune import METHODS
from benchmarks.other_networks import NETWORKS
from benchmarks.own_network import OTHER_ROWS, PAGE, ROWS, others, page, read_groups
from rs.methods import DEFAULT_METHOD
from tests.support.helpers import ROOT, read_csv

FOLDER = ROOT / ROWS


def radii(name, folder=FOLDER):
    """The radius of each image that is certified rightly, 0 of the others, and whether it is
    classified rightly.
    """
    rows = read_csv(folder / f"{name}.tsv", "\t")
    return [float(row["radius"]) * int(row["correct"]) for row in rows], [
        int(row["correct"]) for row in rows
    ]


def test_the_page_is_that_of_the_committed_rows():
    assert (ROOT / PAGE).read_text() == page(FOLDER) + others(ROOT / OTHER_ROWS)


def cells(lines):
    """The cells of lines of a table."""
    return [line.strip("| ").split(" | ") for line in lines]


def check_run(folder, sigma, start, method, epochs, seeds, spent, acr, accuracy, _):
    """Hold a line of a table against the rows of its run and the seconds of its method."""
    name = f"{sigma}-{start}-{method}-{epochs.strip() or 0}"
    of_seeds = [radii(f"{name}-{seed}", folder) for seed in range(int(seeds))]
    assert not (folder / f"{name}-{seeds}.tsv").exists()
    scores, right = (
        [fmean(image) for image in zip(*parts, strict=True)]
        for parts in zip(*of_seeds, strict=True)
    )
    value, error = map(float, re.match(r"(\S+) ± (\S+)", acr).groups())
    assert abs(value - fmean(scores)) < 6e-5
    assert abs(error - stdev(scores) / sqrt(len(scores))) < 6e-5
    assert accuracy == f"{fmean(right):.1%}"
    trainings = [
        (row["run"].split("-"), float(row["cpu_seconds"]))
        for row in read_csv(folder / "seconds.csv")
    ]
    an_epoch = [
        seconds / int(words[-2]) for words, seconds in trainings if "-".join(words[2:-2]) == method
    ]
    assert spent == f"{int(epochs.strip() or 0) * median(an_epoch or [0]):,.0f}"


def test_the_tables_have_acr_error_accuracy_and_seconds_of_each_run():
    runs = cells(
        line for line in page(FOLDER).splitlines() if re.match(r"\| [\d.]+ \| \w+ \|", line)
    )
    assert len(runs) == len(read_groups(FOLDER)) > 2
    for run in runs:
        check_run(FOLDER, *run)
    runs = cells(line for line in others(ROOT / OTHER_ROWS).splitlines() if " | clean | " in line)
    assert {network for network, *_ in runs} == {*NETWORKS}
    for network, *run in runs:
        check_run(ROOT / OTHER_ROWS / NETWORKS[network].function, *run)


def test_no_method_has_a_larger_acr_than_the_default_after_one_epoch():
    for sigma in ("0.25", "0.5"):
        best, _ = radii(f"{sigma}-clean-{DEFAULT_METHOD}-1-0")
        for method in METHODS:
            scores, _ = radii(f"{sigma}-clean-{method}-1-0")
            gains = [a - b for a, b in zip(best, scores, strict=True)]
            assert method == DEFAULT_METHOD or fmean(gains) > -stdev(gains) / sqrt(len(gains))


def test_no_training_of_about_the_same_cost_beats_the_default():
    first = f"| {DEFAULT_METHOD}, 1 epoch, clean |"
    differences = [
        line.strip("| ").split(" | ")[-1] for line in page(FOLDER).splitlines() if first in line
    ]
    assert len(differences) == 6
    assert all(difference.startswith("+") or "tie" in difference for difference in differences)
