"""``rs train`` for a network and pictures of a user's own: options, lines, labels, weights."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rs
from rs.command_line.certify import main as certify
from rs.command_line.train import main as train
from rs.storage.files import read_json
from tests.support.helpers import (
    CLASSES,
    arrays,
    ended,
    exit_code,
    read_csv,
    refusal,
    refuses,
    write_params,
    write_photos,
    write_tiny,
)
from tests.support.own_networks import trained, words

pytestmark = pytest.mark.usefixtures("own_project")


def card():
    return read_json(Path("model/model.json"))


def test_options_replace_the_settings_of_the_recipe():
    changes = ["--optimizer", "adamw", "--lr", 0.002, "--weight-decay", 0.05]
    trained(*changes, "--batch", 16, "--micro-batch", 5)
    expected = {"optimizer": "adamw", "learning_rate": 0.002, "weight_decay": 0.05, "batch": 16}
    assert expected.items() <= card()["training"].items()
    assert card()["training"]["micro_batch"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (words("--optimizer", "adamw"), "give --lr"),
        (words(images="absent"), "absent must be a folder that can be read"),
    ],
)
def test_a_mistake_is_refused_before_the_network_is_built(capfd, arguments, message):
    assert message in refusal(capfd, train, *arguments)
    assert not Path("built").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (words(network="thousand"), "--classes FILE"),
        (words("--classes", "classes.txt", images="unlabeled"), "must have images with labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(capfd, arguments, message):
    write_photos(Path("unlabeled"), arrays(24, 2)[0])
    Path("classes.txt").write_text("\n".join(CLASSES))
    code, _, err = ended(capfd, train, *arguments)
    assert code == 2
    assert message in err


def acrs():
    return [row["acr"] for row in read_csv(Path("model-log/history.csv"))]


def test_no_image_is_held_out_unless_the_acr_is_wanted(capfd):
    _, _, err = ended(capfd, train, *words("--epochs", 2))
    assert "2 epochs on 24 images" in err
    assert "no quick ACR" in err
    command = "rs certify model --network own_networks:network --images UNSEEN_IMAGES"
    assert err.splitlines()[-2:] == [f"  {command} \\", "      --out rows.tsv"]
    assert acrs() == ["", ""]
    _, _, err = ended(capfd, train, *words("--epochs", 2, "--eval-every", 2, "--restart"))
    assert "quick ACR on 2 images every 2 epochs" in err
    assert acrs()[0] == ""
    assert float(acrs()[1]) >= 0


def test_the_pictures_of_validation_are_those_of_the_acr(capfd):
    write_photos(Path("others"), *arrays(10, 1))
    _, _, err = ended(capfd, train, *words("--validation", "others"))
    assert "1 epoch on 24 images" in err
    assert "quick ACR on 10 images every epoch and" in err
    assert "ACR 0." in err


def test_a_network_of_more_classes_trains_on_a_folder_of_a_few():
    names = [f"class {number}" for number in range(998)]
    Path("classes.txt").write_text("\n".join([names[0], *CLASSES, *names[1:]]))
    classes = ["--classes", "classes.txt"]
    trained(*classes, "--eval-every", 1, network="thousand")
    assert card()["classes"][:4] == ["class 0", *CLASSES, "class 1"]
    named = ["--network", "own_networks:thousand", "--images", "photos", "--out", "rows.tsv"]
    assert exit_code(certify, "model", *named, *classes, "--n0", 10, "--n", 20) == 0
    assert {row["label"] for row in read_csv(Path("rows.tsv"), "\t")} == {"1", "2"}


@pytest.mark.parametrize("method", ["denoiser-mse", "denoiser-stability"])
def test_a_denoiser_needs_no_labels_and_starts_from_a_model_folder(method):
    trained()
    write_photos(Path("unlabeled"), arrays(24, 2)[0])
    Path("classes.txt").write_text("\n".join(CLASSES))
    Path("mine.yaml").write_text(
        f"recipes:\n  mine:\n    base: finetune\n    {method}: {{depth: 2, width: 2}}\n"
    )
    recipe = ["--params", "mine.yaml", "--dataset", "mine", "--classes", "classes.txt"]
    named = {"images": "unlabeled", "method": method, "out": "denoised"}
    trained(*recipe, "--weights", "model", **named)
    network = "own_networks:network"
    denoised = rs.load("denoised", network=network).module
    classifier = rs.load("model", network=network).module
    expected = classifier.network.state_dict()
    found = denoised.network.network.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert read_csv(Path("denoised-log/history.csv"))[0]["accuracy"] == ""


def test_python_keeps_a_model_unless_it_is_told_to_replace_it():
    network = importlib.import_module("own_networks").network
    settings = {"sigma": 0.25, "method": "gaussian", "out": "mine"}
    rs.train(network, *arrays(24, 0), epochs=1, **settings)
    with refuses(r"finished one with .*restart=True"):
        rs.train(network, *arrays(24, 0), epochs=2, **settings)
    rs.train(network, *arrays(24, 0), epochs=2, restart=True, **settings)
    assert read_json(Path("mine/model.json"))["epochs"] == 2


def test_a_training_whose_dvc_was_killed_ends_at_its_next_checkpoint(work, monkeypatch, capfd):
    write_tiny(Path("data"))
    write_params(Path("params.yaml"))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    monkeypatch.setattr("os.getppid", lambda: dead.pid)
    monkeypatch.setenv("DVC_ROOT", ".")
    monkeypatch.setenv("RS_STARTER", "")  # which pytest restores
    monkeypatch.delenv("RS_STARTER")
    stage = "gaussian --dataset tiny --sigma 0.25 --data data --out model --device cpu"
    code, _, err = ended(capfd, train, *stage.split())
    assert code == 2
    assert f"error: process {dead.pid}, which started this stage" in err
    assert any(work.glob("*/checkpoint.pt"))
    assert not Path("model").exists()
