"""The results in git are those that this machine makes: portable arithmetic, from raw data to rows."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tarfile
from importlib import metadata

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from rs.methods import METHODS
from rs.runtime.arithmetic import PORTABLE
from rs.statistics.metrics import acr
from rs.storage import certificate_rows
from tests.support.helpers import ROOT, needs_x86

LOCK = YAML(typ="safe", pure=True).load((ROOT / "dvc.lock").read_text())["stages"]
COMPUTING = ("numpy", "scikit-learn", "scipy", "torch")
"""Packages whose version is part of a result, beside the machine's C library."""


def pinned(name):
    return re.search(rf"^{name}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]


def stage(folder, *words):
    """Run a stage of the project in an empty folder, as a command of its own."""
    environment = {key: value for key, value in os.environ.items() if key not in PORTABLE}
    environment |= {"PYTHONPATH": str(ROOT), "RS_WORK": str(folder / "work")}
    command = [sys.executable, "-m", *words, "--params", str(ROOT / "params.yaml")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def recorded(stage_name, path):
    return next(out["md5"] for out in LOCK[stage_name]["outs"] if out["path"] == path)


def md5(path):
    """What DVC calls a file, or a folder: the sum of the list of its files' sums."""
    if path.is_file():
        return hashlib.md5(path.read_bytes()).hexdigest()
    names = sorted(one for one in path.rglob("*") if one.is_file())
    listed = [{"md5": md5(one), "relpath": one.relative_to(path).as_posix()} for one in names]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def readme_rows(columns):
    """Cells of the lines of the README's table of so many columns, below its head."""
    lines = (ROOT / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if len(row) == columns and re.search(r"\d", row[-1]) and "σ" not in row[-1]]


def committed(name, dataset="digits", **where):
    """The row of a committed CSV in which columns have these values."""
    frame = pd.read_csv(ROOT / "reports" / dataset / f"{name}.csv")
    (row,) = (row for _, row in frame.iterrows() if all(row[key] == value for key, value in where.items()))
    return row


def shown(row, prefix):
    """A difference of a row with its errors, over images and, if known, over trainings too, and whether it is a tie."""
    gain, images, both = (row[f"{prefix}{part}"] for part in ("difference", "error_images", "error"))
    text = (
        f"{gain:+.4f} ± {images:.4f}" + f" [{both:.4f}]" * (not math.isnan(both)) + " tie" * bool(row[f"{prefix}tie"])
    )
    return re.sub(r"^[+-](0\.0*)(?= )", r"\1", text)


def test_the_methods_of_the_readme_are_those_of_the_committed_report():
    rows = readme_rows(3)
    assert len(rows) == 7
    for method, *cells in rows:
        for sigma, cell in zip((0.25, 0.5), cells, strict=True):
            row = committed("main", method=method, sigma=sigma)
            seeds = f" [{row['standard_error_with_seeds']:.3f}]" if row["seeds"] > 1 else ""
            assert cell == f"{row['acr']:.3f} ± {row['standard_error']:.3f}{seeds} ({row['clean_accuracy']:.1%})"


def test_the_ensembles_of_the_readme_are_those_of_the_committed_report():
    rows = [row for row in readme_rows(8) if row[1] != "average"]
    assert len(rows) == 9
    for ensemble, combination, *cells in rows:
        for sigma, (members, mean, difference) in zip((0.25, 0.5), (cells[:3], cells[3:]), strict=True):
            row = committed(f"ensembles-{sigma}", ensemble=ensemble, combination=combination)
            evaluated = committed(f"times/weighting-{sigma}", ensemble=ensemble, combination=combination)
            assert members == f"{evaluated['members_per_draw']:.2f}"
            assert mean == f"{row['acr']:.3f}"
            assert difference == shown(row, "reference_")


def test_the_methods_of_the_readme_on_cifar10_are_those_of_the_committed_report():
    rows = readme_rows(5)
    assert len(rows) == 7
    for method, mean, gain, published, accuracy in rows:
        row = committed("main", "cifar10-cpu", method=method, sigma=0.25)
        seeds = f" [{row['standard_error_with_seeds']:.3f}]" if row["seeds"] > 1 else ""
        assert mean == f"{row['acr']:.3f} ± {row['standard_error']:.3f}{seeds}"
        assert accuracy == f"{row['clean_accuracy']:.1%}"
        assert published == ("–" if math.isnan(row["paper_acr"]) else f"{row['paper_acr']:.3f}")
        if method != "gaussian":
            assert gain == shown(committed("differences", "cifar10-cpu", method=method, reference="gaussian"), "")


def test_the_ensembles_of_the_readme_on_cifar10_are_those_of_the_committed_report():
    rows = readme_rows(6)
    assert len(rows) == 16
    for ensemble, combination, members, mean, to_average, to_members in rows:
        row = committed("ensembles-0.25", "cifar10-cpu", ensemble=ensemble, combination=combination)
        evaluated = committed("times/weighting-0.25", "cifar10-cpu", ensemble=ensemble, combination=combination)
        assert (members, mean) == (f"{evaluated['members_per_draw']:.2f}", f"{row['acr']:.3f}")
        assert to_members == shown(row, "members_")
        if combination != "average":
            assert to_average == shown(row, "reference_")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The rows of the committed study on CIFAR-10, unpacked."""
    folder = tmp_path_factory.mktemp("cifar10-cpu")
    with tarfile.open(ROOT / "reports" / "rows" / "cifar10-cpu" / "0.25.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_the_acrs_on_cifar10_are_those_of_the_committed_rows(archive):
    for method in METHODS:
        row = committed("main", "cifar10-cpu", method=method, sigma=0.25)
        paths = [archive / "results/cifar10-cpu/0.25" / f"{method}-0.tsv"]
        paths += [paths[0].parent / "pool" / f"{method}-{seed}.tsv" for seed in range(1, row["seeds"])]
        found = [acr(certificate_rows.read(path)) for path in paths]
        assert np.mean(found) == pytest.approx(row["acr"], rel=1e-12)


@needs_x86
@pytest.mark.slow
@pytest.mark.skipif(
    any(metadata.version(name).split("+")[0] != pinned(name) for name in COMPUTING),
    reason="other versions than those of constraints.txt compute otherwise",
)
def test_a_model_and_its_rows_made_here_are_those_of_the_committed_run(tmp_path):
    model, rows = "models/digits/0.25/gaussian/0", "results/digits/0.25/gaussian-0.tsv"
    data = ["--dataset", "digits", "--data", "data/digits"]
    stage(tmp_path, "stages.prepare", "digits", "--out", "data/digits")
    assert md5(tmp_path / "data" / "digits") == recorded("prepare@digits", "data/digits")
    stage(tmp_path, "stages.train", "gaussian", *data, "--sigma", "0.25", "--seed", "0", "--out", model, "--log", "log")
    assert md5(tmp_path / model) == recorded("train@digits-gaussian-0.25-0", model)
    stage(tmp_path, "stages.certify", model, *data, "--out", rows)
    assert md5(tmp_path / rows) == recorded("certify@digits-gaussian-0.25-0", rows)
