"""The cells of a study, and the parameters of their trainings."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rs.params import parse
from rs.study import grid
from rs.study.ensembles import declared_ensembles
from rs.study.layout import pool_rows
from tests.support import tiny_study
from tests.support.helpers import METHOD_PARAMETERS, refuses, tiny_params

PLAIN = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0]}


def test_a_member_may_have_the_seeds_of_methods_that_it_is_not_among():
    cells = grid.cells(PLAIN | {"members": ["gaussian"], "member_seeds": [0, 1]}, "tiny")
    assert [cell.target("train") for cell in cells] == [
        "train@tiny-macer-0.5-0",
        "train_members@tiny-gaussian-0.5-0",
        "train_members@tiny-gaussian-0.5-1",
    ]
    assert [cell.target("certify") for cell in cells[:2]] == [
        "certify@tiny-macer-0.5-0",
        "certify_ensembles@tiny-0.5",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigmas": [0.5, 0.25, 0.5]}, "sigmas must be different, got 0.5, 0.25, 0.5"),
        ({"seeds": [0, 0]}, "seeds must be different"),
        ({"members": None}, "members: Input should be a valid list, got None"),
        ({"seeds": None}, "seeds: Input should be a valid list, got None"),
        (
            {"members": ["gaussian", "macer"], "member_seeds": [1, 0]},
            "seeds and member_seeds must not overlap for methods in members, but macer has seed 0",
        ),
    ],
)
def test_a_grid_without_lists_of_different_entries_is_refused(changes, message):
    with refuses(re.escape(message)):
        grid.cells(PLAIN | changes, "tiny")


def test_hyper_parameters_are_those_of_the_noise_level_with_the_methods_own_training():
    values = parse(tiny_study.PARAMS, "test")
    assert grid.configuration(values, "tiny", "advmacer", 0.5) == {
        "draws": 2, "epsilon": 0.2, "epochs": 2, "batch": 8,
    }  # fmt: skip
    assert grid.configuration(values, "tiny", "advmacer x3", 0.5) == {"epochs": 4, "batch": 8}


def test_a_training_depends_on_the_settings_of_its_pretraining():
    """Of ``gaussian`` at the noise level of the warm start and of the targets."""
    rates = {0.001: 0.3, 0.25: 0.2, 0.5: 0.1}
    own = METHOD_PARAMETERS["cat-rs"] | {
        "training": {"warm_start": {"sigma": 0.001, "epochs": 5}},
    }
    values = tiny_params(**{"gaussian": {"training": {"learning_rate": rates}}, "cat-rs": own})
    found = grid.training_parameters(values, "tiny", "cat-rs", 0.5)
    assert found["pretraining"]["warm_start"]["learning_rate"] == 0.3
    assert found["pretraining"]["targets"]["learning_rate"] == 0.2
    assert "pretraining" not in grid.training_parameters(values, "tiny", "macer", 0.5)


def test_a_pretraining_takes_values_of_the_nearest_noise_level_as_its_training_does():
    rates = {0.25: 0.2, 0.5: 0.1}
    own = METHOD_PARAMETERS["macer"] | {
        "training": {"warm_start": {"sigma": 0.001, "epochs": 5}},
    }
    values = tiny_params(gaussian={"training": {"learning_rate": rates}}, macer=own)
    found = grid.training_parameters(values, "tiny", "macer", 0.5)
    assert found["pretraining"]["warm_start"]["learning_rate"] == 0.2


STUDY = parse(tiny_study.PARAMS, "test")


def rows_of(values, results):
    """The files of rows of a study, and what DVC calls the cells that make them."""
    files = {}
    for cell in grid.cells(values, "tiny"):
        files[cell.rows(results)] = cell.target("certify")
    for sigma in values["sigmas"]:
        for ensemble in declared_ensembles(values):
            path = pool_rows(results, sigma, ensemble.slug)
            files[path] = f"certify_ensembles@tiny-{sigma}"
    return files


@given(st.sets(st.sampled_from(sorted(rows_of(STUDY, Path())))))
def test_a_part_of_a_study_has_all_its_rows_and_what_is_missing_is_named(absent):
    """The reference, gaussian, has rows, so no noise level is left out without it."""
    absent = {path for path in absent if path.name != "gaussian-0.tsv"}
    with TemporaryDirectory() as folder:
        results = Path(folder)
        missing = set()
        for path, cell in rows_of(STUDY, Path()).items():
            if path in absent:
                missing.add(cell)
                continue
            (results / path).parent.mkdir(parents=True, exist_ok=True)
            (results / path).touch()
        part, named = grid.part_with_rows(STUDY, "tiny", results)
        assert named == sorted(missing)
        assert part["sigmas"] == STUDY["sigmas"]
        assert all(path.is_file() for path in rows_of(part, results))
    if not absent:
        assert part == STUDY


def test_a_noise_level_without_rows_of_the_reference_is_left_out(tmp_path):
    for path in rows_of(STUDY, tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "0.25" / "gaussian-0.tsv").unlink()
    part, missing = grid.part_with_rows(STUDY, "tiny", tmp_path)
    assert part == STUDY | {"sigmas": [0.5]}
    assert missing == ["certify@tiny-gaussian-0.25-0"]
