"""Training and certifying a cell: ``rs.training.run`` and ``rs.certification.certify_model``."""

import csv
import json
import signal
from dataclasses import replace

import pytest
import torch

from rs import params
from rs.certification.certify_model import certification_settings
from rs.data import images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.storage import certificate_rows
from rs.training.recipe import training_recipe
from rs.training.run import train_model
from rs.training.settings import HISTORY, TIMING, RunOptions
from rs.training.trainer import initial_seed
from tests.support.cells import certify_tiny, train_tiny
from tests.support.folders import contents, reproducible
from tests.support.helpers import CERTIFY, ROOT, TRAINING, python, smallnet, tiny_params, write_tiny

pytestmark = pytest.mark.usefixtures("work")
CPU = torch.device("cpu")


@pytest.fixture
def model(tmp_path, tiny):
    train_tiny(tiny, tmp_path / "a")
    return tmp_path / "a" / "model"


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_training_leaves_a_model_and_its_log_and_no_unfinished_work(tmp_path, model, work):
    assert sorted(contents(tmp_path / "a")) == [
        "log/history.csv",
        "log/provenance.json",
        "log/timing.csv",
        "model/model.json",
        "model/model.safetensors",
    ]
    assert list(work.iterdir()) == []


def test_the_card_says_how_the_model_came_to_be(model, tiny):
    card, meta = checkpoint.read_card(model), images.read_meta(tiny)
    assert (card.architecture, card.dataset, card.method, card.sigma, card.seed) == (
        "smallnet",
        "tiny",
        "advmacer",
        0.25,
        1,
    )
    assert (tuple(card.mean), tuple(card.std), tuple(card.shape), tuple(card.classes)) == (
        meta.mean,
        meta.std,
        meta.shape,
        meta.classes,
    )
    assert card.hyperparameters["epsilon"] == 0.1  # the value at this sigma
    assert (card.epochs, card.training["epochs"], card.training["milestones"]) == (6, 6, [3])


def test_history_and_timing_have_their_columns_and_a_row_for_every_epoch(tmp_path, model):
    history, timing = (table(tmp_path / "a" / "log" / f"{name}.csv") for name in ("history", "timing"))
    assert (tuple(history[0]), tuple(timing[0])) == (HISTORY, TIMING)
    assert [row["epoch"] for row in history] == [row["epoch"] for row in timing] == list("123456")
    assert [row["epoch"] for row in history if row["acr"]] == ["2", "4", "6"]
    assert [int(row["updates"]) for row in history] == [6, 12, 18, 24, 30, 36]  # 3 batches of 2 steps


def test_the_seconds_are_those_of_the_last_line_of_the_timing(tmp_path, model):
    log = tmp_path / "a" / "log"
    provenance = json.loads((log / "provenance.json").read_text())
    assert set(provenance) == {"model", "git_commit", "training_seconds", "device", "processes"}
    assert provenance["model"].endswith("of tiny, sigma 0.25, seed 1")
    assert float(table(log / "timing.csv")[-1]["seconds"]) == provenance["training_seconds"] > 0


def test_training_twice_makes_the_same_bytes_and_other_seeds_do_not(tmp_path, tiny, model):
    train_tiny(tiny, tmp_path / "b")
    train_tiny(tiny, tmp_path / "c", seed=2)
    assert reproducible(tmp_path / "b") == reproducible(tmp_path / "a")
    assert contents(tmp_path / "c")["model/model.safetensors"] != contents(model)["model.safetensors"]


def test_a_training_starts_from_the_weights_of_its_own_seed(tmp_path, tiny):
    """A learning rate of 1e-30 leaves float32 weights where they were."""
    still = tiny_params(training={**TRAINING, "learning_rate": 1e-30})
    for seed in (0, 7):
        recipe, out = training_recipe(still, "tiny", "gaussian", 0.25), tmp_path / str(seed)
        train_model(recipe, tiny, RunOptions(sigma=0.25, seed=seed, device=CPU), out=out, log=tmp_path / f"log-{seed}")
        trained, card = checkpoint.load_model(out)
        assert torch.equal(trained.network.fc.weight, card.build(initial_seed(seed)).network.fc.weight)


@pytest.mark.slow
def test_a_killed_training_continues_to_the_bytes_of_an_unbroken_one(tmp_path, tiny, model, work):
    """Killed in epoch 4 of 6, with checkpoints after 2 and 4: the rerun starts with epoch 3."""
    script = "import pathlib, tests.support.cells as t; {}; t.train_tiny(pathlib.Path({!r}), pathlib.Path({!r}))"
    again = tmp_path / "again"
    killed = python("-c", script.format("t.die_at(20)", str(tiny), str(again)))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert contents(again) == {}
    assert [path.name for path in work.rglob("checkpoint.pt")] == ["checkpoint.pt"]
    resumed = python("-c", script.format("t.die_at(25)", str(tiny), str(again)))  # 24 steps are left
    assert resumed.returncode == 0, resumed.stderr
    assert reproducible(again) == reproducible(tmp_path / "a")
    assert list(work.iterdir()) == []


def test_unfinished_work_of_one_recipe_is_not_continued_by_another(tmp_path, tiny, monkeypatch):
    from rs.training.trainer import Trainer

    step = Trainer._step

    def interrupted(self, *arguments):
        if self.progress.updates == 20:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(tiny, tmp_path / "b")
    monkeypatch.setattr(Trainer, "_step", step)
    other = write_tiny(tmp_path / "other", train=22)
    for number, change in enumerate(({"seed": 5}, {"sigma": 0.5}, {"method": "macer"}, {"folder": other})):
        arguments = {"folder": tiny, "out": tmp_path / str(number), **change}
        train_tiny(**arguments)
        assert len(table(tmp_path / str(number) / "log" / "history.csv")) == 6
        fresh = tmp_path / f"{number} fresh"
        monkeypatch.setenv("RS_WORK", str(tmp_path / f"{number} work"))
        train_tiny(**{**arguments, "out": fresh})
        monkeypatch.setenv("RS_WORK", str(tmp_path / "work"))
        assert reproducible(fresh) == reproducible(tmp_path / str(number))


def test_rows_and_sidecar_record_the_choices(tmp_path, tiny, model):
    certify_tiny(model, tiny, tmp_path / "rows.tsv", n0=20, n=40, alpha=0.05, subset={"range": [2, 8]})
    made = certificate_rows.read_rows(tmp_path / "rows.tsv")
    assert made["idx"].tolist() == [2, 3, 4, 5, 6, 7]
    assert made["label"].tolist() == [0, 1, 0, 1, 0, 1]
    assert [set(made[name]) for name in ("n0", "n", "alpha", "sigma")] == [{20}, {40}, {0.05}, {0.25}]
    sidecar = json.loads((tmp_path / "rows.json").read_text())
    expected = {**CERTIFY, "n0": 20, "n": 40, "alpha": 0.05, "subset": "range-2-8", "sigma": 0.25, "model": str(model)}
    assert {key: sidecar[key] for key in expected} == expected
    assert sidecar["classifier"] == model_fingerprint(checkpoint.load_model(model)[0])
    assert sidecar["images"] == images.load_images(tiny, "test").fingerprint
    assert (sidecar["dataset"], sidecar["device"]) == ("tiny", "cpu")


def test_a_noise_level_of_ones_own_takes_the_place_of_the_models(tmp_path, tiny, model):
    certify_tiny(model, tiny, tmp_path / "rows.tsv", sigma=0.75)
    assert set(certificate_rows.read_rows(tmp_path / "rows.tsv")["sigma"]) == {0.75}


def test_a_subset_has_the_rows_of_the_whole(tmp_path, tiny, model):
    for name, subset in (("all", "all"), ("some", {"stride": 3})):
        certify_tiny(model, tiny, tmp_path / f"{name}.tsv", subset=subset)
    whole, some = ((tmp_path / f"{name}.tsv").read_text().splitlines() for name in ("all", "some"))
    assert some == [whole[0], whole[1], whole[4], whole[7], whole[10]]


def test_rows_of_a_model_trained_anew_do_not_take_the_place_of_the_old(tmp_path, tiny, model):
    out = tmp_path / "rows.tsv"
    certify_tiny(model, tiny, out)
    before = out.read_bytes()
    trained, card = checkpoint.load_model(model)
    with torch.no_grad():
        trained.network.fc.bias[0] += 1
    checkpoint.save(model, trained, card)
    with pytest.raises(InputError, match="it is of another model"):
        certify_tiny(model, tiny, out)
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["right", "left"]}, "must be a classifier of tiny"),
        ({"shape": [1, 4, 3]}, r"shape \[1, 4, 4\]\), but it is one of tiny \(2 classes, shape \[1, 4, 3\]\)"),
        ({"shape": [1, 5, 4]}, r"network\.fc\.weight: expected \(2, 128\), got \(2, 64\)"),
    ],
)
def test_a_model_of_other_images_is_refused(tmp_path, tiny, model, change, message):
    trained, card = checkpoint.load_model(model)
    checkpoint.save(tmp_path / "other", trained, replace(card, **change))
    with pytest.raises(InputError, match=message):
        certify_tiny(tmp_path / "other", tiny, tmp_path / "rows.tsv")


OWN = """
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    nn.init.constant_(model[1].weight, 0.1)
    nn.init.zeros_(model[1].bias)
    return model

def three_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Name of a module of the user's own in the current folder, different in every test."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_model_of_the_users_own_is_certified(tmp_path, tiny, own):
    certify_tiny(f"{own}:make", tiny, tmp_path / "rows.tsv", sigma=0.5)
    assert json.loads((tmp_path / "rows.json").read_text())["model"] == f"{own}:make"
    assert certificate_rows.read_rows(tmp_path / "rows.tsv")["n"].tolist() == [50] * 10


def test_rows_of_a_model_whose_code_has_changed_do_not_take_the_place_of_the_old(tmp_path, tiny, own):
    certify_tiny(f"{own}:make", tiny, tmp_path / "rows.tsv", sigma=0.5)
    with (tmp_path / f"{own}.py").open("a") as file:
        file.write("# another version of it\n")
    with pytest.raises(InputError, match="it is of a model whose code was another"):
        certify_tiny(f"{own}:make", tiny, tmp_path / "rows.tsv", sigma=0.5)


def test_a_model_of_the_users_own_needs_a_noise_level(tmp_path, tiny, own):
    with pytest.raises(InputError, match="on the command line give --sigma"):
        certify_tiny(f"{own}:make", tiny, tmp_path / "rows.tsv")


def test_a_training_needs_no_git(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    train_tiny(tiny, tmp_path / "a")
    assert json.loads((tmp_path / "a" / "log" / "provenance.json").read_text())["git_commit"] is None


def test_a_model_of_another_number_of_classes_is_refused(tmp_path, tiny, own):
    with pytest.raises(InputError, match="must give 2 logits an image, one for each class, got 3;"):
        certify_tiny(f"{own}:three_classes", tiny, tmp_path / "rows.tsv", sigma=0.5)


def test_chosen_settings_take_the_place_of_the_recipes_unless_they_are_none():
    made = certification_settings(tiny_params(), "tiny", {"n": 7, "n0": None, "subset": {"first": 3}})
    assert (made.n, made.n0, made.subset) == (7, CERTIFY["n0"], {"first": 3})


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"n": 0}, "--n: .*got 0"),
        ({"alpha": 1.5}, r"--alpha: .*got 1\.5"),
        ({"draws": 5}, "--draws is not a known key"),
    ],
)
def test_chosen_settings_are_checked_as_the_recipes_are(chosen, message):
    with pytest.raises(InputError, match=message):
        certification_settings(tiny_params(), "tiny", chosen)


def test_the_default_data_set_has_certification_settings():
    assert certification_settings(params.read_params(ROOT / "params.yaml"), "digits").n0 == 100  # paper


def test_the_fingerprint_of_a_loaded_classifier_is_that_of_the_same_network_built_by_hand(model):
    loaded, _ = checkpoint.load_model(model)
    twin = smallnet()
    twin.load_state_dict(loaded.state_dict())
    twin.normalize.mean.copy_(loaded.normalize.mean)
    assert model_fingerprint(twin) == model_fingerprint(loaded)
