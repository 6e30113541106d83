import pytest

from rs.params import parse, read
from rs.reporting import load
from rs.study import grid
from tests.support import tiny_study
from tests.support.tiny_study import CELLS, SIGMAS, make_study


@pytest.fixture
def tiny(tmp_path):
    return make_study(tmp_path)


def test_the_best_acr_so_far_never_falls_and_means_are_over_seeds(tiny):
    """Evaluated at epochs 2 and 4: 0.2, then 0.1, so 0.2; seconds 1.5 * epoch * 2 and * 3 for the two seeds."""
    best = load.best_acr_over_time(grid.cells(read(tiny / "params.yaml"), "tiny"), tiny / "logs")
    line = best[(best["method"] == "advmacer") & (best["sigma"] == 0.25)]
    assert line["acr"].tolist() == [0.2, 0.2]
    assert line["seconds"].tolist() == [7.5, 15.0]


def test_hyper_parameters_are_those_of_the_noise_level_with_the_methods_own_training():
    values = read_text(tiny_study.PARAMS)
    assert grid.configuration(values, "tiny", "advmacer", 0.5) == {
        "draws": 2, "epsilon": 0.2, "epochs": 2, "batch": 8,
    }  # fmt: skip
    assert grid.configuration(values, "tiny", "advmacer x3", 0.5) == {"epochs": 4, "batch": 8}
    assert grid.base_dataset(values, "cifar10-fast") == "cifar10"
    assert grid.base_dataset(values, "tiny") == "tiny"


def read_text(text):

    return parse(text, "test")


def test_the_tiny_study_has_every_cell_once():
    cells = grid.cells(read_text(tiny_study.PARAMS), "tiny")
    assert [(c.method, c.seed, c.sigma) for c in cells] == [(m, k, s) for s in SIGMAS for m, k in CELLS]
