import pytest
from scipy import stats

from rs.reporting.results import grouped, published
from rs.reporting.tables import method_tables
from rs.reporting.tables.formatting import SEEDS_NOT_COVERED
from rs.statistics.comparison import LEVEL
from tests.support.ensemble_results import ensemble
from tests.support.tiny_study import result

PER_ERROR = stats.t.isf(LEVEL / 2, 1) / stats.norm.isf(LEVEL / 2)
"""Errors as printed, of one standard error over two seeds."""


def cell(table, method, column="σ = 0.5"):
    (row,) = [row for row in table.body if row[0].strip("*") == method]
    return row[table.header.index(column)]


def test_several_seeds_give_their_mean_and_both_errors():
    """ACRs 1 and 2: mean 1.5; the mean of the seeds is 1.5 on every image, so no error over images.

    Over seeds it is 1/2, of one degree of freedom: the interval is 1/2 times Student's quantile,
    and 1.96 errors wide.
    """
    seeds = [result("gaussian", [1.0, 1.0], seed=0), result("gaussian", [2.0, 2.0], seed=1)]
    table = method_tables.main_table(grouped(seeds))
    (error_with_seeds,) = table.data["standard_error_with_seeds"]
    (error,) = table.data["standard_error"]
    assert cell(table, "gaussian").strip("*") == "1.5000 ± 0.0000 [3.2414] (100.0%)"
    assert error_with_seeds == pytest.approx(0.5 * PER_ERROR, rel=1e-4)
    assert error == 0.0


CLOSE = [
    result("a", [1.0, 1.1, 0.8, 1.0]),
    result("b", [0.9, 1.2, 0.8, 0.9]),
    result("c", [0.1] * 4),
]


def test_the_best_and_whatever_ties_with_it_are_bold():
    table = method_tables.main_table(grouped(CLOSE))
    is_bold = [cell(table, name).startswith("**") for name in "abc"]
    assert is_bold == [True, True, False]


def test_published_figures_stand_next_to_ours_of_the_same_kind_where_there_are_any():
    """The paper prints "advmacer x3", of whatever seeds."""
    trio = ensemble([("advmacer", seed) for seed in (0, 1, 2)], "average", [1.0, 0.5])
    groups = grouped([result("advmacer", [1.0, 0.5]), result("gaussian", [0.1, 0.2]), trio])
    data = method_tables.published_table(groups, published("cifar10")).data
    by_method = data.set_index(["method", "radius"])
    assert set(data["method"]) == {"advmacer", "advmacer x3"}
    assert by_method.loc[("advmacer", 0.75), ["ours", "paper"]].tolist() == [0.5, 0.442]
    assert method_tables.published_table(groups, published("no such data set")) is None


def test_certified_accuracies_are_shares_of_correct_images_of_that_radius():
    first = result("a", [0.2, 0.6, 0.9, 2.0], [1, 1, 1, 0])
    second = result("b", [0.5, 0.5, 0.1, 0.0])
    table = method_tables.certified_table(grouped([first, second]), 0.5, [0.0, 0.5, 1.0])
    assert table.body[0] == ["a", "0.750", "0.500", "0.000", "0.4250"]
    assert table.body[1] == ["b", "1.000", "0.500", "0.000", "0.2750"]


def test_differences_are_paired_and_ties_are_called_ties():
    """b - a is -0.1, 0.1, 0, -0.1: mean -0.025, deviation 0.0957, error 0.048."""
    table = method_tables.differences_table(grouped(CLOSE), ["a", "missing"])
    to_itself, close, far = [cell(table, name, "minus a, σ = 0.5") for name in "abc"]
    assert to_itself.strip("*") == "–"
    assert close == f"-0.0250 ± 0.0479 tie, {SEEDS_NOT_COVERED}"
    assert far.strip("*").startswith("-0.8750")
    assert "tie" not in far


def test_the_cost_table_shows_hyper_parameters_and_the_mean_time():
    results = [
        result("a", [1.0, 1.0], seed=0, training_seconds=3600.0),
        result("a", [1.0, 1.0], seed=1, training_seconds=7200.0),
        result("log", [1.0, 1.0], seed=None, training_seconds=None),
    ]
    table = method_tables.cost_table(grouped(results), lambda *_: {"draws": 4, "epsilon": 1.0})
    assert table.header == ["Method", "σ", "ACR", "Time", "m", "epsilon"]
    assert table.body == [["a", "0.5", "1.0000", "1.5 h", "4", "1.0"]]
