"""What cells depend on in the parameters: the stage ``fingerprint``, and what ``rs.study.grid``
merges for it.
"""

import datetime
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from rs.certification.certify_model import certification_settings
from rs.command_line.fingerprints import cell_fingerprints
from rs.methods import EVERY_METHOD
from rs.runtime.code_fingerprint import stage_fingerprints
from rs.study.grid import CERTIFY_IN_WEIGHTS, check_section_names, stage_parameters
from stages import ensemble, fingerprint, weights
from tests.support.folders import contents
from tests.support.helpers import (
    CERTIFY,
    METHOD_PARAMETERS,
    ROOT,
    SECTIONS,
    TRAINING,
    refuses,
    tiny_params,
    write_tiny,
)

GRID = {
    "sigmas": [0.25],
    "methods": ["macer"],
    "seeds": [0, 1],
    "datasets": {"tiny": {"source": "folder", "root": "raw"}},
}


@pytest.fixture(scope="module")
def code():
    """Fingerprints of the code, which takes long to read and does not change here."""
    return stage_fingerprints(ROOT, EVERY_METHOD)


@pytest.fixture(autouse=True)
def code_of_today(code, monkeypatch):
    """Read the code once."""
    monkeypatch.setattr("rs.runtime.code_fingerprint.stage_fingerprints", lambda *_: code)


def tiny(**sections):
    """Parameters with the grid and all sections of a recipe."""
    return tiny_params(**SECTIONS | sections) | GRID


def test_a_value_reaches_the_trainings_of_its_method_and_noise_level_and_the_report_alone():
    method = METHOD_PARAMETERS["advmacer"]

    def changed(values, **sections):
        """The stages whose parameters change with sections of the recipe."""
        before = stage_parameters(deepcopy(values), "tiny")
        values["recipes"]["tiny"] |= sections
        after = stage_parameters(values, "tiny")
        return {name for name in before if before[name] != after[name]}

    values = tiny(advmacer=method | {"epsilon": {0.25: 0.1, 0.5: 0.2}})
    values |= {"methods": ["macer", "advmacer"], "sigmas": [0.25, 0.5]}
    other = method | {"epsilon": {0.25: 0.3, 0.5: 0.2}}
    assert changed(values, advmacer=other) == {"train/advmacer-0.25", "tables"}
    trainings = {f"train/{name}-{sigma}" for name in values["methods"] for sigma in (0.25, 0.5)}
    assert changed(values, training=TRAINING | {"epochs": 3}) == {*trainings, "tables"}


def test_a_value_of_a_base_reaches_the_cells_that_inherit_it_alone():
    values = tiny() | {"methods": ["macer", "gaussian"]}
    values["recipes"]["mine"] = {"base": "tiny", "gaussian": {"training": {"epochs": 7}}}
    before = stage_parameters(values, "mine")
    assert before["certify"] == stage_parameters(values, "tiny")["certify"]
    changed = deepcopy(values)
    changed["recipes"]["tiny"]["training"]["epochs"] = 3
    after = stage_parameters(changed, "mine")
    different = {name for name in before if before[name] != after[name]}
    assert different == {"train/macer-0.25", "tables"}
    values["recipes"]["tiny"]["mcaer"] = {"lam": 1.0}
    with refuses(r"sections of recipes\.tiny must be among .*; got mcaer"):
        check_section_names(values, "mine", EVERY_METHOD)


def test_only_a_method_in_the_grid_must_have_a_value_for_each_noise_level():
    values = tiny(stability={"lam": {0.5: 1.0}})
    assert "train/stability-0.25" not in stage_parameters(values, "tiny")
    with refuses(r"recipes\.tiny\.stability\.lam must have a value for sigma 0\.25"):
        stage_parameters(values | {"methods": ["stability"]}, "tiny")


def test_a_training_that_begins_with_gaussian_depends_on_its_code(tmp_path):
    values = tiny() | POOL | {"methods": ["macer", "cat-rs"]}
    found = cell_fingerprints(values, "tiny", tmp_path / "data", tmp_path / "out", ROOT)
    begins = found["parameters/tiny/train/cat-rs-0.25"]["pretraining"]
    assert begins["code"] == found["code/methods/gaussian"]
    assert "pretraining" not in found["parameters/tiny/train/macer-0.25"]


def test_stale_files_do_not_stay(tmp_path):
    for method in ("macer", "stability"):
        fingerprint_of(tmp_path, methods=[method], ensembles=None)
        folder = tmp_path / "out" / "parameters" / "tiny" / "train"
        assert [path.name for path in folder.iterdir()] == [f"{method}-0.25.json"]


POOL = {
    "combinations": {
        "mme": {"rule": "mme", "scope": "noisy-input"},
        "frozen": {
            "rule": "softmax",
            "weights": "optimal",
            "scope": "per-image",
            "target": "label",
        },
        "three": {"rule": "softmax", "weights": "equal", "scope": "global"},
    },
    "ensembles": {"a": {"members": {"macer": 2}, "combinations": ["mme", "frozen"]}},
    "tables": {"radii": [0.0], "reference": "macer", "combination": "mme", "remarks": []},
}


DENOISER = {"denoiser-mse": {"depth": 3, "width": 8}}
STOP = {"at_radius": [0.05], "beta": 0.01, "step": 100}


def recipe(**sections):
    """A change of the recipe alone."""
    return {"recipes": tiny(**sections)["recipes"]}


def fingerprint_of(tmp_path, **sections):
    values = tiny() | POOL | sections
    (tmp_path / "params.json").write_text(json.dumps(values))
    fingerprint.main("tiny", tmp_path / "data", tmp_path / "out", tmp_path / "params.json", ROOT)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"sigams": [0.5]}, "sections .* must be among .*; got sigams; did you mean 'sigmas'"),
        (
            {"methods": ["macer", "mcaer"]},
            "methods and members must be among gaussian, .*; got mcaer; did you mean 'macer'",
        ),
        ({"defaults": {"trainnig": {}}}, "sections of defaults must be among .*; got trainnig"),
        (
            recipe(arithmetic="portable", training=TRAINING | {"precision": "bfloat16"}),
            "depends on the processor",
        ),
        (recipe(pool={"timed": -1}), r"recipes\.tiny\.pool\.timed: Input should be greater"),
        (
            recipe(certify=CERTIFY | {"subset": {"range": [9, 5]}}),
            r"recipes\.tiny\.certify\.subset: a subset must pick at least one image",
        ),
        (
            recipe(certify=CERTIFY | {"subset": 20}),
            r"recipes\.tiny\.certify\.subset: a subset must be .*; got 20$",
        ),
        (recipe(weights={}), r"recipes\.tiny\.weights\.noises is missing"),
        (
            recipe(certify=CERTIFY | {"stop": STOP}),
            r"recipes\.tiny\.certify\.stop must be null where a pool is",
        ),
        (
            recipe(**DENOISER) | {"methods": ["macer", "denoiser-mse"]},
            r"denoiser-mse must have a network in recipes\.tiny\.model, got .*; add network",
        ),
        ({"datasets": {}}, r"must have the key datasets\.tiny"),
        (
            {"tables": POOL["tables"] | {"reference": "gausian"}},
            r"tables\.reference must be among .*; got gausian",
        ),
        ({"launcher": "torchun -n 2"}, "launcher must be null or a command with the word torchrun"),
        (
            {"tables": POOL["tables"] | {"combination": "frozen"}},
            r"tables\.combination must be one whose .* are sound",
        ),
    ],
)
def test_mistakes_in_what_all_stages_share_are_found_first_and_named(tmp_path, sections, message):
    with refuses(message):
        fingerprint_of(tmp_path, **sections)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("inf"), datetime.date(2026, 1, 1)])
def test_a_value_that_json_has_not_is_refused_in_a_method_that_is_not_in_the_grid_too(
    tmp_path, value
):
    values = tiny(stability={"lam": value}) | POOL
    with refuses("values must be finite numbers, words, lists and mappings"):
        cell_fingerprints(values, "tiny", tmp_path / "data", tmp_path / "out", ROOT)


@pytest.mark.usefixtures("models_here")
def test_the_weights_of_ensembles_read_no_other_settings_of_certification(monkeypatch):
    write_tiny(Path("data"))
    solved = {"rule": "softmax", "weights": "optimal", "scope": "per-image", "target": "predicted"}
    ensembles = {"a": {"members": {"macer": [0, 1]}, "combinations": ["solved"]}}
    values = tiny() | {"combinations": {"solved": solved}, "ensembles": ensembles}
    Path("params.json").write_text(json.dumps(values))
    ensemble.main("tiny", 0.25, Path("models"), Path("ensembles"), Path("params.json"))
    settings = certification_settings(values, "tiny")
    other = replace(
        settings, n=settings.n + 1, alpha=settings.alpha / 2, shortcut=not settings.shortcut
    )
    assert {"n", "alpha", "shortcut", "engine", "stop"} == {*vars(settings)} - {*CERTIFY_IN_WEIGHTS}
    outputs = []
    for out, known in (("weights", settings), ("other", other)):
        monkeypatch.setattr(
            "rs.certification.certify_model.certification_settings", lambda *_, known=known: known
        )
        paths = [Path(name) for name in ("ensembles", "data", out, f"{out}.csv", "params.json")]
        weights.main("tiny", *paths, device="cpu")
        outputs.append(contents(Path(out)))
    assert outputs[0] == outputs[1] != {}
