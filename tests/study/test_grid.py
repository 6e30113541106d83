import re

import pytest

from rs.errors import InputError
from rs.params import parse
from rs.study import grid
from rs.study.layout import GridCell
from tests.support import tiny_study
from tests.support.tiny_study import CELLS, SIGMAS


def test_hyper_parameters_are_those_of_the_noise_level_with_the_methods_own_training():
    values = parse(tiny_study.PARAMS, "test")
    assert grid.configuration(values, "tiny", "advmacer", 0.5) == {
        "draws": 2, "epsilon": 0.2, "epochs": 2, "batch": 8,
    }  # fmt: skip
    assert grid.configuration(values, "tiny", "advmacer x3", 0.5) == {"epochs": 4, "batch": 8}


WITH_TARGETS = {
    "sigmas": [0.25],
    "methods": ["gaussian"],
    "methods_with_targets": ["cat-rs"],
    "seeds": [0],
}


def test_methods_with_targets_have_stages_of_their_own():
    cells = grid.cells(WITH_TARGETS, "tiny")
    names = [cell.target(stage) for cell in cells for stage in ("train", "certify")]
    assert names[:2] == ["train@tiny-gaussian-0.25-0", "certify@tiny-gaussian-0.25-0"]
    assert names[2:] == [
        "train_from_targets@tiny-cat-rs-0.25-0",
        "certify_from_targets@tiny-cat-rs-0.25-0",
    ]


WITH_STARTS = {
    "sigmas": [0.25, 0.5],
    "methods": ["gaussian"],
    "seeds": [0],
    "warm_start": {"methods": ["macer"], "seeds": [1, 2], "sigma": 0.001, "epochs": 3},
}


def test_trainings_with_a_warm_start_have_stages_of_their_own_and_share_the_start_of_their_seed():
    _, _, *cells = grid.cells(WITH_STARTS, "tiny")
    assert [cell.target("train") for cell in cells] == [
        f"train_from_start@tiny-macer-{sigma}-{seed}" for sigma in (0.25, 0.5) for seed in (1, 2)
    ]
    assert cells[0].target("certify") == "certify_from_start@tiny-macer-0.25-1"
    assert [cell.start for cell in cells] == [
        GridCell("tiny", "gaussian", 0.001, seed) for seed in (1, 2)
    ] * 2


def test_the_start_has_parameters_and_its_trainings_can_be_members_of_ensembles():
    ensembles = {"macer x2": {"members": {"macer": 2}, "combinations": ["average"]}}
    values = (
        parse(tiny_study.PARAMS, "test") | WITH_STARTS | {"members": [], "ensembles": ensembles}
    )
    values["recipes"]["tiny"] |= {
        name: {"n0": 10, "noises": 2} for name in ("model", "certify", "weights", "pool", "macer")
    }
    assert "train/gaussian-0.001" in grid.stage_parameters(values, "tiny")
    assert [(cell.method, cell.seed) for cell in grid.pool_cells(values, "tiny", 0.5)] == [
        ("macer", 1),
        ("macer", 2),
    ]


PLAIN = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0]}
TWICE = [
    ("sigmas", [0.5, 0.25, 0.5]),
    ("sigmas", [1, 1.0]),
    ("methods", ["macer", "macer"]),
    ("seeds", [0, 0]),
    ("members", ["macer", "macer"]),
    ("member_seeds", [1, 2, 1]),
]
NEEDS = "must have gaussian among methods"
ONLY_ONE = "warm_start.methods, methods and members must be different"
TRAINED_TWICE = (
    "member_seeds must be none of seeds for methods that are in members too, got macer with seed 0"
)
BOTH = "warm_start must have methods and seeds, or neither"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *((PLAIN | {key: entries}, f"{key} must be different") for key, entries in TWICE),
        (PLAIN | {"members": ["gaussian", "macer"], "member_seeds": [1, 0]}, TRAINED_TWICE),
        (WITH_TARGETS | {"members": ["cat-rs"], "member_seeds": [0]}, "got cat-rs with seed 0"),
        (WITH_STARTS | {"methods": ["gaussian", "macer"]}, ONLY_ONE),
        (WITH_STARTS | {"members": ["macer"], "member_seeds": [1]}, ONLY_ONE),
        (
            WITH_STARTS | {"warm_start": {"methods": ["macer"], "seeds": [1, 1]}},
            "warm_start.seeds must be different",
        ),
        (
            WITH_STARTS | {"warm_start": {"methods": ["macer"], "epoch": 3}},
            "warm_start.epoch is not a known key",
        ),
        (WITH_STARTS | {"warm_start": {"methods": ["macer"]}}, BOTH),
        (WITH_STARTS | {"warm_start": {"seeds": [0]}}, BOTH),
        (
            WITH_STARTS | {"warm_start": {"methods": ["macer"], "seeds": [0], "sigma": 0.25}},
            "warm_start.sigma must be none at which the grid trains gaussian with the same seeds, "
            "got 0.25",
        ),
        (
            WITH_TARGETS | {"methods": [], "warm_start": {"methods": ["gaussian"], "seeds": [0]}},
            NEEDS,
        ),
        (WITH_TARGETS | {"methods": ["macer"]}, NEEDS),
        (
            WITH_TARGETS | {"methods": ["macer"], "members": ["gaussian"], "member_seeds": [1]},
            NEEDS,
        ),
        (
            WITH_TARGETS | {"members": ["cat-rs"], "member_seeds": [1]},
            "members must need no targets, got cat-rs",
        ),
        (WITH_TARGETS | {"methods": ["gaussian", "cat-rs"]}, "methods must be different"),
    ],
)
def test_a_grid_at_fault_is_refused(values, message):
    with pytest.raises(InputError, match=re.escape(message)):
        grid.cells(values, "tiny")


def test_a_member_may_have_the_seeds_of_methods_that_it_is_not_among():
    cells = grid.cells(PLAIN | {"members": ["gaussian"], "member_seeds": [0, 1]}, "tiny")
    assert [(cell.method, cell.seed) for cell in cells] == [
        ("macer", 0),
        ("gaussian", 0),
        ("gaussian", 1),
    ]


def test_the_tiny_study_has_every_cell_once():
    cells = grid.cells(parse(tiny_study.PARAMS, "test"), "tiny")
    assert [(c.method, c.seed, c.sigma) for c in cells] == [
        (m, k, s) for s in SIGMAS for m, k in CELLS
    ]
