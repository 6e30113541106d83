"""The pipeline as a whole: dvc.yaml, params.yaml and the code agree, and a change reaches what it must."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rs import params
from rs.methods import METHODS
from tests.support.small_project import ROOT, run, small_project, write_params

COMPUTE = {"train", "certify", "weights", "certify_ensembles"}
"""Stages whose outputs are made with torch, and so differ between its series."""

PARAMS = params.read_params(ROOT / "params.yaml")
STAGES: dict[str, Any] = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_the_code_it_runs(name: str) -> None:
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
    if module == "prepare":
        assert "fingerprints/raw/${item.dataset}.json" in stage["deps"]
    if module in COMPUTE | {"ensemble", "tables"}:
        name = "train/${item.method}-${item.sigma}" if module == "train" else module
        assert f"fingerprints/parameters/${{item.dataset}}/{name}.json" in stage["deps"]
    assert ("fingerprints/versions.json" in stage.get("deps", [])) == (module in COMPUTE)


def test_the_makefile_knows_every_stage() -> None:
    cells = re.search(r"^CELLS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert ["fingerprint_first", "prepare", *cells, "tables"] == list(STAGES)


@pytest.mark.parametrize("name", STAGES)
def test_every_path_of_a_command_is_a_dependency_or_an_output(name: str) -> None:
    stage = STAGES[name]
    outs = [out if isinstance(out, str) else next(iter(out)) for out in stage["outs"]]
    named = re.findall(
        r"(?:--(?:data|out|log|logs|results|times|models|ensembles|weights|seconds)|stages\.certify) (\S+)",
        stage["cmd"],
    )
    assert named
    assert set(named) <= {*stage.get("deps", []), *outs}


def test_the_fingerprints_that_stages_depend_on_are_the_ones_that_are_written(tmp_path: Path) -> None:
    from stages.fingerprint import main

    main("digits", tmp_path / "data", tmp_path / "fingerprints", ROOT / "params.yaml", ROOT)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")}
    deps = {dep for stage in STAGES.values() for dep in stage.get("deps", []) if dep.startswith("fingerprints/")}
    items = [
        {"dataset": "digits", "method": method, "sigma": sigma}
        for method in PARAMS["methods"]
        for sigma in PARAMS["sigmas"]
    ]
    filled = {
        re.sub(r"\$\{item\.(\w+)\}", lambda name, item=item: str(item[name[1]]), dep) for item in items for dep in deps
    }
    assert filled <= written


@pytest.mark.parametrize("dataset", PARAMS["recipes"])
def test_every_recipe_is_complete_and_in_range(dataset: str) -> None:
    from rs.certification.certify_model import certification_settings
    from rs.data.sources import settings
    from rs.training.recipe import training_recipe

    sigmas = (0.25, 0.5) if dataset in ("digits", "svhn") else (0.25, 0.5, 1.0)
    settings(PARAMS["datasets"][dataset], f"datasets.{dataset}")
    certification_settings(PARAMS, dataset)
    for method in METHODS:
        for sigma in sigmas:
            assert training_recipe(PARAMS, dataset, method, sigma).name == method


def test_the_grid_names_methods_that_exist() -> None:
    assert set(PARAMS["methods"]) <= set(METHODS)
    assert set(PARAMS["members"]) <= set(METHODS)
    assert not set(PARAMS["seeds"]) & set(PARAMS["member_seeds"])


PURE = (
    "rs",
    "rs.statistics.radius",
    "rs.statistics.metrics",
    "rs.storage.certificate_rows",
    "rs.reporting.tables.method_tables",
    "rs.reporting.figures",
    "rs.params",
    "rs.runtime.code_fingerprint",
    "rs.storage.files",
    "rs.data.sources",
)


def test_the_pure_modules_do_not_import_torch() -> None:
    """None of them: what one has imported stays imported."""
    script = f"import sys, {', '.join(PURE)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---------------------------------------------------------------------------------------------- dvc repro, small

POOL = [f"{stage}@digits-0.5" for stage in ("ensemble", "weights", "certify_ensembles")]
"""The cells of all ensembles at a noise level, in their order."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project whose study is two methods, one epoch and ten images; run once."""
    root = small_project(tmp_path_factory.mktemp("project") / "copy")
    repro(root)
    return root


def repro(root: Path) -> set[str]:
    """Run ``dvc repro``; the cells that ran beside ``fingerprint``, which always does."""
    ran = re.findall(r"Running stage '([^']+)'", run(root, "dvc", "repro"))
    assert "fingerprint_first" in ran
    return {*ran} - {"fingerprint_first"}


@pytest.mark.slow
def test_a_second_run_does_nothing(small: Path) -> None:
    assert repro(small) == set()
    cells = [name for name in STAGES if name != "fingerprint_first"]
    run(small, "dvc", "status", "--quiet", *cells)  # as the Makefile asks


@pytest.mark.slow
def test_the_study_has_a_row_for_every_method(small: Path) -> None:
    metrics = json.loads((small / "reports" / "digits" / "metrics.json").read_text())
    assert set(metrics) == {"gaussian", "macer", "macer x2"}


@pytest.mark.slow
def test_a_hyperparameter_of_one_method_reaches_that_method_alone(small: Path) -> None:
    before = params.read_params(small / "params.yaml")
    after = params.read_params(small / "params.yaml")
    after["recipes"]["digits"]["macer"]["lam"] = 3.0
    write_params(small, after)
    ran = repro(small)
    cells = {f"{stage}@digits-macer-0.5-0" for stage in ("train", "certify")}
    assert ran == cells | {"train_members@digits-macer-0.5-1", *POOL, "tables@digits"}
    write_params(small, before)
    assert repro(small) <= {"tables@digits"}  # the rest is in the run cache


@pytest.mark.slow
def test_a_value_of_another_noise_level_or_one_that_moves_into_the_defaults_reaches_the_tables_alone(
    small: Path,
) -> None:
    before, after = (params.read_params(small / "params.yaml") for _ in range(2))
    recipe, defaults = after["recipes"]["digits"], after["defaults"]
    defaults["macer"]["lam"] = {0.5: recipe["macer"].pop("lam"), 0.25: 7.0}
    defaults["stability"]["lam"] = 3.0  # which is not trained here
    write_params(small, after)
    assert repro(small) == {"tables@digits"}
    write_params(small, before)
    repro(small)


@pytest.mark.slow
def test_a_number_of_draws_certifies_again_and_solves_no_weights_again(small: Path) -> None:
    before, after = (params.read_params(small / "params.yaml") for _ in range(2))
    after["recipes"]["digits"]["certify"]["n"] = 30
    write_params(small, after)
    cells = {f"certify@digits-{method}-0.5-0" for method in ("gaussian", "macer")}
    assert repro(small) == cells | {POOL[-1], "tables@digits"}
    write_params(small, before)
    repro(small)


@pytest.mark.slow
def test_a_method_in_no_ensemble_certifies_no_ensemble_again(small: Path) -> None:
    before, after = (params.read_params(small / "params.yaml") for _ in range(2))
    after["recipes"]["digits"]["gaussian"] = {"training": {"learning_rate": 0.1}}
    write_params(small, after)
    cells = {f"{stage}@digits-gaussian-0.5-0" for stage in ("train", "certify")}
    assert repro(small) == cells | {POOL[0], "tables@digits"}
    write_params(small, before)
    repro(small)


@pytest.mark.slow
def test_adding_an_ensemble_trains_nothing(small: Path) -> None:
    before, after = (params.read_params(small / "params.yaml") for _ in range(2))
    after["ensembles"].append({"members": {"gaussian": [0], "macer": [1]}, "combinations": ["average"]})
    write_params(small, after)
    assert repro(small) == {*POOL, "tables@digits"}
    metrics = json.loads((small / "reports" / "digits" / "metrics.json").read_text())
    assert "gaussian 0 + macer 1" in metrics
    write_params(small, before)
    repro(small)


@pytest.mark.slow
def test_a_study_without_ensembles_has_its_tables(small: Path) -> None:
    before, after = (params.read_params(small / "params.yaml") for _ in range(2))
    after |= {"ensembles": [], "members": []}
    write_params(small, after)
    assert repro(small) == {*POOL, "tables@digits"}
    metrics = json.loads((small / "reports" / "digits" / "metrics.json").read_text())
    assert set(metrics) == {"gaussian", "macer"}
    write_params(small, before)
    repro(small)


@pytest.mark.slow
def test_a_docstring_trains_nothing_and_code_trains_its_method(small: Path) -> None:
    module = small / "rs" / "methods" / "gaussian.py"
    text = module.read_text()
    module.write_text(text.replace('"""Cross-entropy of one noisy copy', '"""The cross-entropy of one noisy copy'))
    assert module.read_text() != text
    assert repro(small) == set()
    module.write_text(text + "\n\nUNUSED = 1\n")
    ran = repro(small)
    # The weights come out the same, so nothing after the training runs but the tables, which read its seconds.
    assert ran == {"train@digits-gaussian-0.5-0", "tables@digits"}
    module.write_text(text)
