"""The command tune: settings are tried on validation images, and on nothing else."""

import json

import pytest

from rs.data import images
from rs.runtime.arithmetic import PORTABLE
from rs.statistics.metrics import acr
from rs.storage import certificate_rows
from rs.storage.files import read_json
from stages.tune import COLUMNS, main
from tests.support.helpers import (
    METHOD_PARAMETERS,
    TRAINING,
    exit_code,
    read_csv,
    update_json,
    write_params,
    write_tiny,
)

SETTINGS = [{"lam": 0.5}, {"lam": 3.0, "training": {"learning_rate": 0.01, "epochs": 2}}]

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture
def folder(tmp_path):
    return write_tiny(tmp_path / "data", validation=8)


@pytest.fixture(autouse=True)
def parameters(tmp_path):
    write_params(tmp_path / "params.yaml")
    write_settings(tmp_path)


def write_settings(tmp_path, settings=SETTINGS, **changes):
    tuning = {"epochs": 1, "seed": 7, "images": 6, "n0": 10, "n": 40}
    tuning |= {"settings": {"macer": settings}, **changes}
    (tmp_path / "settings.yaml").write_text(json.dumps(tuning))


def tune(tmp_path, folder, method="macer"):
    """Run the command; its exit code."""
    words = ["tiny", method, "--sigma", 0.25, "--data", folder, "--device", "cpu"]
    for name in ("settings.yaml", "work", "out.csv", "params.yaml"):
        words += [f"--{name.partition('.')[0]}", tmp_path / name]
    return exit_code(main, *words)


def folder_of(tmp_path, number):
    return tmp_path / "work" / "macer" / "0.25" / str(number)


def cards(tmp_path):
    """The model cards of both settings."""
    folders = [folder_of(tmp_path, number) for number in (0, 1)]
    return [read_json(own / "model" / "model.json") for own in folders]


def test_every_setting_is_trained_and_certified_on_validation_images(tmp_path, folder):
    assert tune(tmp_path, folder) == 0
    tried = read_csv(tmp_path / "out.csv")
    assert [tuple(line) for line in tried] == [COLUMNS] * 2
    assert tried[0]["setting"] == "lam 0.5"
    assert tried[1]["setting"] == "lam 3.0; learning_rate 0.01; epochs 2"
    assert [line["epochs"] for line in tried] == ["1", "2"]
    for number, line in enumerate(tried):
        rows = certificate_rows.read_rows(folder_of(tmp_path, number) / "rows.tsv")
        assert float(line["acr"]) == pytest.approx(acr(rows), abs=5e-5)
        assert rows["idx"].tolist() == list(range(6))
        assert rows["label"].tolist() == [0, 1] * 3
        card = cards(tmp_path)[number]
        assert card["seed"] == 7
        assert card["epochs"] == number + 1
        own = {"lam": SETTINGS[number]["lam"]}
        assert card["hyperparameters"] == METHOD_PARAMETERS["macer"] | own
        assert card["training"]["learning_rate"] == [TRAINING["learning_rate"], 0.01][number]
        sidecar = read_json(folder_of(tmp_path, number) / "rows.json")
        assert sidecar["images"] == images.load_images(folder, "validation").fingerprint


def test_what_has_changed_is_trained_again_and_nothing_else(tmp_path, folder):
    """A setting; then the network; then the normalization of the images."""
    assert tune(tmp_path, folder) == 0
    first, second = read_csv(tmp_path / "out.csv")
    write_settings(tmp_path, [SETTINGS[0], {"lam": 9.0}])
    assert tune(tmp_path, folder) == 0
    assert cards(tmp_path)[1]["hyperparameters"]["lam"] == 9.0
    changed = read_csv(tmp_path / "out.csv")
    assert changed[0] == first
    assert changed[1] != second
    write_params(tmp_path / "params.yaml", model={"architecture": "resnet8"})
    assert tune(tmp_path, folder) == 0
    assert [card["architecture"] for card in cards(tmp_path)] == ["resnet8"] * 2
    update_json(folder / "meta.json", std=[0.5])
    assert tune(tmp_path, folder) == 0
    assert [card["std"] for card in cards(tmp_path)] == [[0.5]] * 2


def test_models_of_another_seed_are_neither_used_nor_lost(tmp_path, folder, capfd):
    assert tune(tmp_path, folder) == 0
    model = folder_of(tmp_path, 0) / "model" / "model.json"
    rows = folder_of(tmp_path, 0) / "rows.tsv"
    before = model.read_bytes(), rows.read_bytes()
    write_settings(tmp_path, seed=8)
    assert tune(tmp_path, folder) == 2
    assert "the model macer of tiny, sigma 0.25, seed 8" in capfd.readouterr().err
    assert (model.read_bytes(), rows.read_bytes()) == before


def test_rows_of_other_code_are_made_again(tmp_path, folder, monkeypatch):
    """And nothing else: no setting is trained again."""
    assert tune(tmp_path, folder) == 0
    before = (tmp_path / "out.csv").read_bytes()
    sidecar = folder_of(tmp_path, 0) / "rows.json"
    right = sidecar.read_bytes()
    update_json(sidecar, code="another")
    monkeypatch.setattr("rs.training.run.train_model", None)
    assert tune(tmp_path, folder) == 0
    assert (tmp_path / "out.csv").read_bytes() == before
    assert sidecar.read_bytes() == right


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"training": {"engine": "compiled"}}, "engine = compiled depends on the processor"),
        ({"lam": -1.0}, "recipes.tiny.macer.lam: "),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_any_is_trained(
    tmp_path, folder, capfd, monkeypatch, setting, message
):
    write_params(tmp_path / "params.yaml", arithmetic="portable")
    write_settings(tmp_path, [SETTINGS[0], setting])
    for name, value in PORTABLE.items():
        monkeypatch.setenv(name, value)
    assert tune(tmp_path, folder) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "settings must list settings of gaussian; it has those of macer"),
        ({"epoch": 1}, "settings.yaml: epoch is not a known key; correct its name or remove it"),
    ],
)
def test_a_file_of_settings_at_fault_is_named(tmp_path, folder, capfd, changes, message):
    write_settings(tmp_path, **changes)
    assert tune(tmp_path, folder, "gaussian") == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_another_file_is_not_overwritten(tmp_path, folder):
    (tmp_path / "out.csv").write_text("mine\n")
    assert tune(tmp_path, folder) == 2
    assert (tmp_path / "out.csv").read_text() == "mine\n"
