"""The commands train and certify, as a person runs them."""

import pytest

from rs.data import images
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.storage import certificate_rows
from rs.storage.files import read_json
from stages.certify import main as certify
from stages.train import main as train
from tests.support.helpers import exit_code, refusal, write_params

pytestmark = pytest.mark.usefixtures("work")


def train_words(tmp_path, tiny, method="gaussian", **options):
    chosen = {"dataset": "tiny", "sigma": 0.25, "seed": 0, "data": tiny, "out": tmp_path / "model"}
    chosen |= {
        "log": tmp_path / "log",
        "params": tmp_path / "params.yaml",
        "device": "cpu",
        **options,
    }
    return [method, *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def certify_words(tmp_path, tiny, model=None, **options):
    chosen = {"dataset": "tiny", "data": tiny, "out": tmp_path / "rows.tsv"}
    chosen |= {"params": tmp_path / "params.yaml", "device": "cpu", **options}
    return [
        model or tmp_path / "model",
        *(word for name, value in chosen.items() for word in (f"--{name}", value)),
    ]


@pytest.fixture(autouse=True)
def settings(tmp_path):
    return write_params(tmp_path / "params.yaml")


@pytest.fixture
def trained(tmp_path, tiny, capfd):
    assert exit_code(train, *train_words(tmp_path, tiny)) == 0
    capfd.readouterr()
    return tmp_path / "model"


def test_what_the_command_line_chooses_is_in_rows_and_sidecar(tmp_path, tiny, trained):
    options = {
        "subset": "{stride: 4}",
        "n0": 20,
        "n": 30,
        "alpha": 0.05,
        "sigma": 0.5,
        "batch": 100,
    }
    assert exit_code(certify, *certify_words(tmp_path, tiny, **options)) == 0
    made, sidecar = (
        certificate_rows.read_rows(tmp_path / "rows.tsv"),
        read_json(tmp_path / "rows.json"),
    )
    assert made["idx"].tolist() == [0, 4, 8]
    for name in ("n0", "n", "alpha", "sigma"):
        assert set(made[name]) == {options[name]} == {sidecar[name]}
    assert sidecar["subset"] == "stride-4"
    assert sidecar["model"] == str(trained)
    assert sidecar["classifier"] == model_fingerprint(checkpoint.load_model(trained)[0])
    assert sidecar["images"] == images.load_images(tiny, "test").fingerprint
    assert (sidecar["dataset"], sidecar["device"]) == ("tiny", "cpu")
    assert "batch" not in sidecar  # it does not change the rows


def test_the_environment_chooses_the_device(tmp_path, tiny, monkeypatch, capfd):
    monkeypatch.setenv("RS_DEVICE", "abacus")
    words = [str(word) for word in train_words(tmp_path, tiny)]
    at = words.index("--device")
    assert "got 'abacus'" in refusal(capfd, train, *words[:at], *words[at + 2 :])
