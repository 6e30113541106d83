"""``make repro``: the program that runs several cells at once makes what ``dvc repro`` makes."""

import json
import os
import re
import subprocess
import sys

import pytest

from rs import params
from rs.storage.files import read_json
from tests.support.small_project import (
    contents,
    environment,
    opened,
    run,
    small_project,
    write_params,
)

REPRO = [sys.executable, "-m", "stages.repro", "--jobs", "2"]
MADE = ("models", "results", "weights", "reports")
LAST = "Everything is up to date. Open reports/digits/index.html in a browser."


def printed(root):
    """Run the program; the lines that it prints."""
    return run(root, *REPRO).splitlines()


def cells_of(lines):
    """Check that the cells are numbered one after the other; return what is said of each, but for
    the time left.
    """
    found = [re.fullmatch(r"cell (\d+) of (\d+): (.*?)(, (about|less).*)?", line) for line in lines]
    cells = [match for match in found if match]
    assert [int(match[1]) for match in cells] == [*range(1, len(cells) + 1)]
    assert {int(match[2]) for match in cells} <= {len(cells)}
    return [match[3] for match in cells]


@pytest.mark.slow
def test_a_failed_cell_is_shown_the_others_are_kept_and_the_same_command_completes_the_study(
    tmp_path,
):
    root = small_project(tmp_path / "project")
    method = root / "rs" / "methods" / "macer.py"
    text = method.read_text()
    method.write_text(text.replace("def loss(", "def loss(nothing, ", 1))
    failed = subprocess.run(
        REPRO, cwd=root, env=environment(), capture_output=True, text=True, check=False
    )
    assert failed.returncode == 2
    assert "loss()" in failed.stderr
    assert re.fullmatch(
        r"error: the cell train\w*@digits-macer-0\.5-\d failed: .* run the same command again.*",
        failed.stderr.splitlines()[-1],
    )
    method.write_text(text)
    lines = printed(root)
    cells = cells_of(lines)
    assert lines[-1] == LAST
    assert "train@digits-gaussian-0.5-0" not in cells
    assert cells[-1] == "tables@digits"
    with opened(root) as repo:
        assert repo.status().keys() == {"fingerprint_first"}  # DVC finds nothing to do
    assert cells_of(printed(root)) == []
    values = params.read_params(root / "params.yaml")
    values["recipes"]["digits"]["gaussian"] = {"training": {"learning_rate": 0.07}}
    write_params(root, values)
    listed = run(root, *REPRO, "--dry").splitlines()
    changed = listed.index("Cells that have changed: 2")
    assert listed[changed + 1 : changed + 3] == ["  tables@digits", "  train@digits-gaussian-0.5-0"]
    assert "  certify@digits-gaussian-0.5-0" in listed[changed + 3 :]
    with opened(root) as repo:
        assert "train@digits-gaussian-0.5-0" in repo.status()  # it has not run


@pytest.mark.trust_only
def test_a_study_comes_back_from_the_cache_after_a_change_is_undone(tmp_path):
    root = small_project(tmp_path / "project")
    printed(root)
    made, lock = contents(root, *MADE), (root / "dvc.lock").read_bytes()
    values = params.read_params(root / "params.yaml")
    values["recipes"]["digits"]["gaussian"] = {"training": {"learning_rate": 0.07}}
    write_params(root, values)
    changed = cells_of(printed(root))
    assert changed[0] == "train@digits-gaussian-0.5-0"
    assert "certify@digits-gaussian-0.5-0" in changed
    assert "weights@digits-0.5 did not change" in changed  # no ensemble has a Gaussian member
    assert contents(root, *MADE) != made

    del values["recipes"]["digits"]["gaussian"]
    write_params(root, values)
    assert "train@digits-gaussian-0.5-0 was restored from the cache of DVC" in cells_of(
        printed(root)
    )
    assert contents(root, *MADE) == made
    assert (root / "dvc.lock").read_bytes() == lock


def test_a_wrong_parameter_is_refused_before_dvc_starts(tmp_path):
    root = small_project(tmp_path / "project")
    values = params.read_params(root / "params.yaml")
    write_params(root, values | {"member_seeds": [0]})
    refused = subprocess.run(
        REPRO, cwd=root, env=environment(), capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: params.yaml: ")


def test_a_folder_that_another_dvc_writes_is_named_in_the_last_line(tmp_path):
    root = small_project(tmp_path / "project")
    locks = {"write": {f"{root}/data/digits": {"pid": os.getpid(), "cmd": "dvc repro"}}}
    (root / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(locks))
    refused = subprocess.run(
        [*REPRO, "--dry"], cwd=root, env=environment(), capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert re.match("error: .*data/digits' is busy", refused.stderr.splitlines()[-1])


@pytest.mark.trust_only
def test_cells_with_a_launcher_run_in_the_processes_that_it_starts(tmp_path):
    root = small_project(tmp_path / "project")
    values = params.read_params(root / "params.yaml")
    values |= {"launcher": "torchrun --standalone --nproc-per-node 2"}
    values |= {"methods": ["gaussian"], "members": [], "member_seeds": [], "ensembles": None}
    write_params(root, values)
    assert printed(root)[-1] == LAST
    provenance = root / "logs/digits/0.5/gaussian/0/provenance.json"
    assert read_json(provenance)["processes"] == 2
