"""The commands train and certify, as a person runs them."""

import itertools
from pathlib import Path

import pytest

from rs.data import images
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.storage import certificate_rows
from rs.storage.files import read_json
from stages.certify import main as certify
from stages.train import main as train
from tests.support.helpers import exit_code, refusal

pytestmark = pytest.mark.usefixtures("tiny_project")


def test_what_the_command_line_chooses_is_in_rows_and_sidecar():
    options = {
        "--subset": "{stride: 4}",
        "--n0": 20,
        "--n": 30,
        "--alpha": 0.05,
        "--sigma": 0.5,
        "--batch": 100,
    }
    words = "model --dataset tiny --data data --out rows.tsv --device cpu"
    assert exit_code(certify, *words.split(), *itertools.chain(*options.items())) == 0
    made = certificate_rows.read_rows(Path("rows.tsv"))
    sidecar = read_json(Path("rows.json"))
    assert made["idx"].tolist() == [0, 4, 8]
    for name in ("n0", "n", "alpha", "sigma"):
        assert set(made[name]) == {options[f"--{name}"]} == {sidecar[name]}
    assert sidecar["subset"] == "stride-4"
    assert sidecar["model"] == "model"
    assert sidecar["classifier"] == model_fingerprint(checkpoint.load_model(Path("model"))[0])
    assert sidecar["images"] == images.load_images(Path("data"), "test").fingerprint
    assert (sidecar["dataset"], sidecar["device"]) == ("tiny", "cpu")
    assert "batch" not in sidecar  # it does not change the rows


def test_the_environment_chooses_the_device(monkeypatch, capfd):
    monkeypatch.setenv("RS_DEVICE", "abacus")
    words = "gaussian --dataset tiny --data data --sigma 0.25 --out new --log log"
    assert "got 'abacus'" in refusal(capfd, train, *words.split())
