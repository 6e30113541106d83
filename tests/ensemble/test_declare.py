"""The files of ensembles of a noise level: ``rs.ensemble.declare`` and the command ``ensemble``."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rs.ensemble.declare import POOL, read_pool, write_ensembles
from rs.ensemble.spec import EnsembleSpec, read
from rs.study.ensembles import Combination, EnsembleDeclaration
from stages.ensemble import main
from tests.support import tiny_pool
from tests.support.combinations import named
from tests.support.ensemble_specs import member
from tests.support.helpers import refusal, refuses, tiny_params, update_json

MIXED = {"members": {"macer": [1], "gaussian": [0]}, "combinations": ["mme", "printed"]}
THREE = {"members": {"macer": [0, 1, 2]}, "combinations": ["average", "optimal"]}
VALUES = tiny_pool.GRID | {
    "sigmas": [0.25, 0.5],
    "member_seeds": [2, 1],
    "recipes": tiny_params()["recipes"],
    "combinations": tiny_pool.COMBINATIONS,
    "ensembles": named(MIXED, THREE),
}
SLUGS = [
    "macer-1+gaussian-0.mme",
    "macer-1+gaussian-0.printed",
    "macer-0-1-2.average",
    "macer-0-1-2.optimal",
]
OUT = Path("ensembles/0.25")


@pytest.fixture(autouse=True)
def project(models_here):
    """Models of two methods, and parameters, in the current folder."""
    Path("params.yaml").write_text(json.dumps(VALUES))


def make():
    write_ensembles(VALUES, "tiny", 0.25, Path("models"), OUT)
    return OUT


# ------------------------------------------------------------------------------------------------
# what is made


def test_an_ensemble_is_of_its_members_as_they_are_in_the_order_of_the_parameters():
    assert read(make() / f"{SLUGS[0]}.json") == EnsembleSpec(
        declaration=EnsembleDeclaration(
            name="macer 1 + gaussian 0",
            members=(("macer", 1), ("gaussian", 0)),
            key="mme",
            combination=Combination(rule="mme", scope="noisy-input"),
        ),
        dataset="tiny",
        sigma=0.25,
        members=[member("macer", 1), member("gaussian", 0)],
        fitted=None,
    )


# ------------------------------------------------------------------------------------------------
# reading it back


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": None}, "members: "),
        ({"ensembles": ["../notes"]}, r"ensembles\.0: String should match pattern"),
    ],
)
def test_a_pool_that_is_none_is_refused(changes, message):
    update_json(make() / POOL, **changes)
    with refuses(rf"pool\.json must be a pool, but: {message}"):
        read_pool(OUT)


def test_a_file_that_is_not_the_ensemble_of_its_name_is_refused():
    """Rows take the name of the file: as macer-0 they would take the place of those of a member."""
    (make() / f"{SLUGS[0]}.json").rename(OUT / "macer-0.json")
    update_json(OUT / POOL, ensembles=["macer-0", *SLUGS[1:]])
    with refuses(
        r"macer-0\.json must be the ensemble macer-0, got macer-1\+gaussian-0\.mme;",
    ):
        read_pool(OUT)


def test_an_ensemble_of_a_member_that_the_pool_has_not_is_refused():
    """The same folder, but trained again after the pool was made."""
    spec = read(make() / f"{SLUGS[2]}.json")
    strange = [replace(spec.members[0], classifier="0" * 64), *spec.members[1:]]
    replace(spec, members=strange).write(OUT / f"{SLUGS[2]}.json")
    with refuses(
        r"macer-0-1-2\.average\.json must have members of ensembles/0\.25/pool\.json",
    ):
        read_pool(OUT)


# ------------------------------------------------------------------------------------------------
# the command


WORDS = ["tiny", "--sigma", 0.25, "--models", "models", "--out", OUT]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sigma", 0.5], "must have the sigma 0.5 in this ensemble, but has 0.25"),
        (["--models", "other"], "other lacks 4; dvc repro train@tiny-gaussian-0.25-0 "),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, capfd, options, message):
    before = {*tmp_path.rglob("*")}
    assert message in refusal(capfd, main, *WORDS, *options)
    assert {*tmp_path.rglob("*")} == before
