"""The command tune: settings are tried on validation images, and on nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from rs.data import images
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

OUT = Path("out.csv")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The current folder has a data set, parameters and settings to try."""
    monkeypatch.chdir(tmp_path)
    write_tiny(Path("data"), validation=8)
    write_params(Path("params.yaml"))
    write_settings()


def write_settings(settings=SETTINGS, **changes):
    tuning = {"epochs": 1, "seed": 7, "images": 6, "n0": 10, "n": 40}
    tuning |= {"settings": {"macer": settings}, **changes}
    Path("settings.yaml").write_text(json.dumps(tuning))


def tune(method="macer", *options):
    """Run the command; its exit code."""
    words = f"tiny {method} --sigma 0.25 --data data --device cpu --settings settings.yaml"
    places = "--work work --out out.csv --params params.yaml"
    return exit_code(main, *words.split(), *places.split(), *options)


def cards():
    """The cards of all models, by the value of lam and the normalization of the images."""
    found = {}
    for path in Path("work").rglob("model.json"):
        card = read_json(path)
        found[card["hyperparameters"]["lam"], *card["std"]] = path, card
    return found


def test_every_setting_is_trained_and_certified_on_validation_images():
    assert tune() == 0
    tried = read_csv(OUT)
    assert [tuple(line) for line in tried] == [COLUMNS] * 2
    assert tried[1]["setting"] == "lam 3.0; learning_rate 0.01; epochs 2"
    for number, line in enumerate(tried):
        path, card = cards()[SETTINGS[number]["lam"], 0.25]
        folder = path.parents[1]
        rows = certificate_rows.read_rows(folder / "rows.tsv")
        assert float(line["acr"]) == pytest.approx(acr(rows), abs=5e-5)
        assert rows["idx"].tolist() == list(range(6))
        assert (card["seed"], card["epochs"]) == (7, number + 1)
        own = {"lam": SETTINGS[number]["lam"]}
        assert card["hyperparameters"] == METHOD_PARAMETERS["macer"] | own
        assert card["training"]["learning_rate"] == [TRAINING["learning_rate"], 0.01][number]
        sidecar = read_json(folder / "rows.json")
        assert sidecar["images"] == images.load_images(Path("data"), "validation").fingerprint


def test_what_has_changed_is_trained_again_and_nothing_else():
    """A setting; then the normalization of the images."""
    assert tune() == 0
    first, second = read_csv(OUT)
    write_settings([SETTINGS[0], {"lam": 9.0}])
    assert tune() == 0
    changed = read_csv(OUT)
    assert changed[0] == first
    assert changed[1] != second
    update_json(Path("data/meta.json"), std=[0.5])
    assert tune() == 0
    assert cards().keys() == {(0.5, 0.25), (3.0, 0.25), (9.0, 0.25), (0.5, 0.5), (9.0, 0.5)}


def test_a_model_without_its_log_is_trained_again_on_demand(capfd):
    assert tune() == 0
    before = OUT.read_bytes()
    for log in Path("work").rglob("log"):
        shutil.rmtree(log)
    assert tune() == 2
    assert "give --restart" in capfd.readouterr().err
    assert tune("macer", "--restart") == 0
    assert OUT.read_bytes() == before


def test_a_setting_that_cannot_be_is_refused_before_any_is_trained(capfd):
    write_settings([SETTINGS[0], {"lam": -1.0}])
    assert tune() == 2
    assert "recipes.tiny.macer.lam: " in capfd.readouterr().err
    assert not Path("work").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "settings must list settings of gaussian; it has those of macer"),
        ({"epoch": 1}, "settings.yaml: epoch is not a known key; correct its name or remove it"),
    ],
)
def test_a_file_of_settings_at_fault_is_named(capfd, changes, message):
    write_settings(**changes)
    assert tune("gaussian") == 2
    assert message in capfd.readouterr().err
    assert not OUT.exists()


def test_another_file_is_not_overwritten():
    OUT.write_text("mine\n")
    assert tune() == 2
    assert OUT.read_text() == "mine\n"
