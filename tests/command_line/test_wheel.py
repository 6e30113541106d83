"""The library as people install it: the files of its wheel, and the command ``rs`` without a checkout."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from rs.certification.certify_model import certification_settings, certify_cell
from rs.models import checkpoint
from tests.support.helpers import CLASSES, ROOT, SHAPE, smallnet, tiny_params, write_params, write_tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip builds and installs the wheel"),
]


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout, built from a copy, which a build writes into."""
    root = tmp_path_factory.mktemp("wheel")
    for name in ("rs", "stages", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, root / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / "source")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", root, root / "source")
    return next(root.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that the wheel is installed in, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_the_wheel_has_the_library_with_its_data_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rs").rglob("*.py")}
    assert names == modules | {"rs/py.typed", "rs/reporting/published.csv"}


@pytest.mark.parametrize("launcher", [None, "torchrun --standalone --nproc-per-node 2"], ids=["alone", "launched"])
def test_an_installed_command_writes_the_bytes_of_a_checkout(installed, tmp_path, monkeypatch, launcher):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RS_WORK", str(tmp_path / "work"))
    model, data, params = tmp_path / "model", write_tiny(tmp_path / "data"), write_params(tmp_path / "params.yaml")
    card = {"architecture": "smallnet", "shape": list(SHAPE), "classes": list(CLASSES), "mean": [0.5], "std": [0.25]}
    card |= {"dataset": "tiny", "method": "gaussian", "hyperparameters": {}, "training": {}, "sigma": 0.25, "seed": 0}
    card |= {"epochs": 0, "device": "cpu", "arithmetic": "native", "versions": {}}
    checkpoint.save(model, smallnet(), checkpoint.Card(**card))
    settings = certification_settings(tiny_params(), "tiny")
    where = {"sigma": None, "device": torch.device("cpu"), "batch": None}
    certify_cell("model", data, settings, **where, out=tmp_path / "checkout.tsv")

    params.write_text(json.dumps({"launcher": launcher, **json.loads(params.read_text())}))
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}

    def command(*words):
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    assert command(sys.executable, "-P", "-c", "import rs; print(rs.__file__)").stdout.startswith(str(installed))
    words = ["model", "--dataset", "tiny", "--data", "data", "--out", "installed.tsv", "--device", "cpu"]
    done = command(installed / "bin" / "rs", "certify", *words)
    assert done.returncode == 0, done.stderr
    assert ("process 1 of 2" in done.stderr) == (launcher is not None)
    for suffix in ("tsv", "json"):
        assert (tmp_path / f"installed.{suffix}").read_bytes() == (tmp_path / f"checkout.{suffix}").read_bytes()
