"""The command tune: settings are tried on validation images, and on nothing else."""

import json

import pytest

from rs.data import images
from rs.runtime.arithmetic import PORTABLE
from rs.statistics.metrics import acr
from rs.storage import certificate_rows
from stages.tune import COLUMNS, main
from tests.support.helpers import (
    METHOD_PARAMETERS,
    TRAINING,
    exit_code,
    read_csv,
    write_params,
    write_tiny,
)

SETTINGS = [{"lam": 0.5}, {"lam": 3.0, "training": {"learning_rate": 0.01}}]
TUNING = {"epochs": 1, "seed": 7, "images": 6, "n0": 10, "n": 40, "settings": {"macer": SETTINGS}}

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture
def folder(tmp_path):
    return write_tiny(tmp_path / "data", validation=8)


@pytest.fixture(autouse=True)
def parameters(tmp_path):
    return write_params(tmp_path / "params.yaml", tuning=TUNING)


def tune(tmp_path, folder, method="macer", out="tried.csv", work="work"):
    """Run the command; its exit code."""
    options = {"sigma": 0.25, "data": folder, "work": tmp_path / work, "out": tmp_path / out}
    options |= {"params": tmp_path / "params.yaml", "device": "cpu"}
    words = [
        "tiny",
        method,
        *(str(word) for name, value in options.items() for word in (f"--{name}", value)),
    ]
    return exit_code(main, *words)


def test_every_setting_is_trained_and_certified_on_validation_images(tmp_path, folder):
    assert tune(tmp_path, folder) == 0
    tried = read_csv(tmp_path / "tried.csv")
    assert [tuple(line) for line in tried] == [COLUMNS] * 2
    assert [line["setting"] for line in tried] == ["lam 0.5", "lam 3.0; learning_rate 0.01"]
    for number, line in enumerate(tried):
        own = tmp_path / "work" / "macer" / "0.25" / str(number)
        rows = certificate_rows.read_rows(own / "rows.tsv")
        assert float(line["acr"]) == pytest.approx(acr(rows), abs=5e-5)
        assert rows["idx"].tolist() == list(range(6))
        assert rows["label"].tolist() == [0, 1] * 3
        card = json.loads((own / "model" / "model.json").read_text())
        assert (card["seed"], card["epochs"]) == (7, 1)
        assert card["hyperparameters"] == METHOD_PARAMETERS["macer"] | {
            "lam": SETTINGS[number]["lam"]
        }
        assert card["training"]["learning_rate"] == [TRAINING["learning_rate"], 0.01][number]
        sidecar = json.loads((own / "rows.json").read_text())
        assert sidecar["images"] == images.load_images(folder, "validation").fingerprint


def test_what_was_tried_is_not_tried_again(tmp_path, folder, monkeypatch):
    assert tune(tmp_path, folder) == 0
    before = (tmp_path / "tried.csv").read_bytes()
    monkeypatch.setattr("rs.training.run.train_model", None)
    assert tune(tmp_path, folder) == 0
    assert (tmp_path / "tried.csv").read_bytes() == before


def test_what_has_changed_is_trained_again_and_nothing_else(tmp_path, folder):
    """A setting; then the network; then the normalisation of the images."""

    def cards():
        paths = [
            tmp_path / "work" / "macer" / "0.25" / number / "model" / "model.json"
            for number in "01"
        ]
        return [json.loads(path.read_text()) for path in paths]

    assert tune(tmp_path, folder) == 0
    first, second = read_csv(tmp_path / "tried.csv")
    tuning = {**TUNING, "settings": {"macer": [SETTINGS[0], {"lam": 9.0}]}}
    write_params(tmp_path / "params.yaml", tuning=tuning)
    assert tune(tmp_path, folder) == 0
    assert cards()[1]["hyperparameters"]["lam"] == 9.0
    assert read_csv(tmp_path / "tried.csv")[0] == first
    assert read_csv(tmp_path / "tried.csv")[1] != second
    write_params(tmp_path / "params.yaml", tuning=tuning, model={"architecture": "resnet8"})
    assert tune(tmp_path, folder) == 0
    assert [card["architecture"] for card in cards()] == ["resnet8"] * 2
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"std": [0.5]}))
    assert tune(tmp_path, folder) == 0
    assert [card["std"] for card in cards()] == [[0.5]] * 2


def test_models_of_another_seed_are_not_taken_for_those_of_this_one_nor_lost(
    tmp_path, folder, capfd
):
    assert tune(tmp_path, folder) == 0
    model = tmp_path / "work" / "macer" / "0.25" / "0"
    before = (model / "model" / "model.json").read_bytes(), (model / "rows.tsv").read_bytes()
    write_params(tmp_path / "params.yaml", tuning={**TUNING, "seed": 8})
    assert tune(tmp_path, folder) == 2
    assert "the model macer of tiny, sigma 0.25, seed 8" in capfd.readouterr().err
    assert before == (
        (model / "model" / "model.json").read_bytes(),
        (model / "rows.tsv").read_bytes(),
    )


def test_rows_of_other_code_are_made_again(tmp_path, folder):
    assert tune(tmp_path, folder) == 0
    before = (tmp_path / "tried.csv").read_bytes()
    sidecar = tmp_path / "work" / "macer" / "0.25" / "0" / "rows.json"
    right = sidecar.read_bytes()
    sidecar.write_text(json.dumps(json.loads(right) | {"code": "another"}))
    assert tune(tmp_path, folder) == 0
    assert (tmp_path / "tried.csv").read_bytes() == before
    assert sidecar.read_bytes() == right


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"training": {"engine": "compiled"}},
            "macer.training.engine = compiled depends on the processor",
        ),
        ({"lam": -1.0}, "recipes.tiny.macer.lam: "),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_any_is_trained(
    tmp_path, folder, capfd, monkeypatch, setting, message
):
    tuning = {**TUNING, "settings": {"macer": [SETTINGS[0], setting]}}
    write_params(tmp_path / "params.yaml", tuning=tuning, arithmetic="portable")
    for name, value in PORTABLE.items():
        monkeypatch.setenv(name, value)
    assert tune(tmp_path, folder) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_method_without_settings_is_refused(tmp_path, folder, capfd):
    said = "recipes.tiny.tuning.settings must list settings of gaussian; it has those of macer"
    assert tune(tmp_path, folder, "gaussian") == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "tried.csv").exists()


def test_another_file_is_not_overwritten(tmp_path, folder, capfd):
    (tmp_path / "tried.csv").write_text("mine\n")
    assert tune(tmp_path, folder) == 2
    assert (tmp_path / "tried.csv").read_text() == "mine\n"
