"""The pipeline as a whole: dvc.yaml, params.yaml and the code agree, and a change reaches what it
must.
"""

import re
import shutil
from typing import Any

import pytest
from ruamel.yaml import YAML

from rs import params
from rs.methods import METHODS
from rs.storage.files import read_json
from tests.support.small_project import (
    ROOT,
    make_cells,
    opened,
    small_project,
    write_params,
)

COMPUTE = {"train", "certify", "weights", "certify_ensembles"}
"""Stages whose outputs are made with torch, and so differ between its series."""

PARAMS = params.read_params(ROOT / "params.yaml")
STAGES: dict[str, Any] = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_the_code_it_runs(name):
    """Through the fingerprint of its command's module, which covers every import."""
    stage = STAGES[name]
    module = re.search(r"python -m stages\.(\w+)", stage["cmd"]).group(1)
    if module == "fingerprint":
        assert stage["always_changed"]
        assert "deps" not in stage
    else:
        assert f"fingerprints/code/{module}.json" in stage["deps"]
    if module == "train":
        assert "fingerprints/code/methods/${item.method}.json" in stage["deps"]
    assert ("fingerprints/code/rules.json" in stage.get("deps", [])) == (
        module == "certify_ensembles"
    )
    if module == "prepare":
        assert "fingerprints/raw/${item.dataset}.json" in stage["deps"]
    if module in COMPUTE | {"ensemble", "tables"}:
        name = "train/${item.method}-${item.sigma}" if module == "train" else module
        assert f"fingerprints/parameters/${{item.dataset}}/{name}.json" in stage["deps"]
    assert ("fingerprints/versions.json" in stage.get("deps", [])) == (module in COMPUTE)


@pytest.mark.parametrize("name", STAGES)
def test_every_path_of_a_command_is_a_dependency_or_an_output_or_of_wall_times(name):
    stage = STAGES[name]
    outs = [out if isinstance(out, str) else next(iter(out)) for out in stage["outs"]]
    options = "data|out|log|logs|results|times|models|ensembles|weights|seconds"
    named = re.findall(rf"(?:--(?:{options})|stages\.certify) (\S+)", stage["cmd"])
    assert named
    assert {path for path in named if not path.startswith("logs/")} <= {
        *stage.get("deps", []),
        *outs,
    }


@pytest.mark.parametrize("dataset", PARAMS["recipes"])
def test_every_recipe_is_complete_and_in_range(dataset):
    from rs.certification.certify_model import certification_settings
    from rs.data.sources import settings
    from rs.training.recipe import training_recipe

    sigmas = (0.25, 0.5) if dataset in ("digits", "svhn") else (0.25, 0.5, 1.0)
    if dataset != "finetune":  # which follows the data of the user
        settings(PARAMS["datasets"][dataset], f"datasets.{dataset}")
    certification_settings(PARAMS, dataset)
    for method in METHODS:
        for sigma in sigmas:
            assert training_recipe(PARAMS, dataset, method, sigma).name == method


# ------------------------------------------------------------------------------------------------
# dvc repro, small


POOL = [f"{stage}@digits-0.5" for stage in ("ensemble", "weights", "certify_ensembles")]
"""The cells of all ensembles at a noise level, in their order."""

CERTIFY = {f"certify@digits-{method}-0.5-0" for method in ("gaussian", "macer")}

CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "draws train and solve nothing again": (
        {"recipes": {"digits": {"certify": {"n": 30}}}},
        {*CERTIFY, POOL[-1]},
    ),
    "a method trains no other again": (
        {"recipes": {"digits": {"gaussian": {"training": {"learning_rate": 0.07}}}}},
        {"train@digits-gaussian-0.5-0"},
    ),
    "another ensemble trains and certifies no model again": (
        {
            "ensembles": {
                "mixed": {"members": {"gaussian": [0], "macer": [1]}, "combinations": ["average"]}
            }
        },
        {POOL[0]},
    ),
    "no ensembles": ({"ensembles": None}, {POOL[0]}),
    "a method that needs targets": (
        {"methods": ["gaussian", "macer", "cat-rs"]},
        {"train@digits-cat-rs-0.5-0", "certify@digits-cat-rs-0.5-0", POOL[0]},
    ),
}
"""Changes of the parameters, and the cells that depend on them besides the tables."""


def merged(values, changes):
    """Nested mappings, merged."""
    both = {
        key: merged(values[key], changes[key])
        for key in values.keys() & changes
        if isinstance(changes[key], dict)
    }
    return {**values, **changes, **both}


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """The small project after the commands of all cells, which DVC has noted; tests that change it
    take a copy.
    """
    root = small_project(tmp_path_factory.mktemp("studied") / "project")
    made = make_cells(root, *STAGES)
    assert {name.partition("@")[0] for name in made} >= COMPUTE
    with opened(root) as repo:
        repo.commit(force=True)
    return root


def to_rerun(root):
    """Return the cells that DVC says will run, after the stage that writes what they depend on."""
    make_cells(root, "fingerprint_first")
    with opened(root) as repo:
        return {*repo.status()} - {"fingerprint_first"}


@pytest.mark.slow
def test_the_status_after_an_edit_says_what_will_rerun(studied, tmp_path):
    """Of cells that depend on a changed file; DVC runs those after them where their inputs come out
    otherwise.
    """
    root = shutil.copytree(studied, tmp_path / "copy", symlinks=True)
    metrics = read_json(root / "reports" / "digits" / "metrics.json")
    assert set(metrics["acr"]) == {"gaussian", "macer", "macer x2"}
    assert to_rerun(root) == set()
    before = params.read_params(root / "params.yaml")
    for name, (changes, expected) in CHANGES.items():
        write_params(root, merged(before, changes))
        assert to_rerun(root) == expected | {"tables@digits"}, name
    write_params(root, before)
    module = root / "rs" / "methods" / "gaussian.py"
    text = module.read_text()
    module.write_text(text + "\n\nUNUSED = 1\n")
    assert to_rerun(root) == {"train@digits-gaussian-0.5-0"}
    module.write_text(text)
    assert to_rerun(root) == set()
    rules = root / "rs" / "ensemble" / "rules.py"
    rules.write_text(rules.read_text() + "\n\nUNUSED = 1\n")
    assert to_rerun(root) == {POOL[-1]}
