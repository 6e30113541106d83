"""Training and certifying a cell: ``rs.training.run`` and ``rs.certification.certify_model``."""

import shutil
from dataclasses import replace

import pytest
import torch

from rs.command_line.fingerprints import _network_files
from rs.data import images
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.runtime.streams import Stream, derived_seed
from rs.storage.files import read_json, sha256
from rs.training.recipe import RunOptions, training_recipe
from rs.training.run import splits, train_model
from tests.support.cells import train_tiny
from tests.support.helpers import TRAINING, read_csv, refuses, tiny_params, write_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a training's model and log, and the folder of its unfinished work."""
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RS_WORK", str(root / "work"))
        train_tiny(write_tiny(root / "tiny"), root / "out")
    return root


def test_the_card_says_how_the_model_came_to_be(trained):
    card, meta = checkpoint.read_card(trained / "out" / "model"), images.read_meta(trained / "tiny")
    assert (card.dataset, card.method, card.sigma, card.seed) == ("tiny", "advmacer", 0.25, 1)
    for name in ("mean", "std", "shape", "classes"):
        assert tuple(getattr(card, name)) == getattr(meta, name)
    assert card.hyperparameters["epsilon"] == 0.1  # the value at this sigma
    assert (card.epochs, card.training["epochs"], card.training["milestones"]) == (6, 6, [3])


def test_history_and_timing_have_a_row_for_every_epoch_and_provenance_names_the_model(trained):
    log = trained / "out" / "log"
    history, timing = (read_csv(log / name) for name in ("history.csv", "timing.csv"))
    assert [row["epoch"] for row in history] == [row["epoch"] for row in timing] == list("123456")
    provenance = read_json(log / "provenance.json")
    model, _ = checkpoint.load_model(trained / "out" / "model")
    assert provenance["classifier"] == model_fingerprint(model)
    assert provenance["model"].endswith("of tiny, sigma 0.25, seed 1")
    assert float(timing[-1]["seconds"]) == provenance["training_seconds"] > 0


def train_still(root, data, **changes):
    """Train with seed 7 and without a step: 1e-30 leaves float32 weights where they were."""
    values = tiny_params(training=TRAINING | {"learning_rate": 1e-30})
    recipe = replace(training_recipe(values, "tiny", "gaussian", 0.25), **changes)
    options = RunOptions(sigma=0.25, seed=7, device=torch.device("cpu"))
    train_model(recipe, *splits(recipe, data), options, out=root / "model", log=root / "log")


def test_a_training_starts_from_the_weights_of_its_own_seed_and_needs_no_git(
    tmp_path, tiny, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    train_still(tmp_path, tiny)
    trained, card = checkpoint.load_model(tmp_path / "model")
    start = card.build(derived_seed(7, Stream.INITIAL))
    assert torch.equal(trained.network.fc.weight, start.network.fc.weight)
    assert not torch.equal(card.build(0).network.fc.weight, start.network.fc.weight)
    assert read_json(tmp_path / "log" / "provenance.json")["git_commit"] is None


def test_a_training_continues_from_a_model_and_its_card_and_fingerprint_say_of_which(
    tmp_path, tiny, trained
):
    """``{seed}`` in the name of the model is that of the training."""
    start = shutil.copytree(trained / "out" / "model", tmp_path / "start-7")
    weights = str(tmp_path / "start-{seed}")
    train_still(tmp_path, tiny, weights=weights)
    model, card = checkpoint.load_model(tmp_path / "model")
    first, _ = checkpoint.load_model(start)
    assert torch.equal(model.network.fc.weight, first.network.fc.weight)
    file = start / "model.safetensors"
    assert card.training["start"] == f"sha256 {sha256(file)}"
    assert _network_files(None, weights, [7]) == {str(file): sha256(file)}
    with refuses(r"start-8 must be a file, but there is none"):
        _network_files(None, weights, [7, 8])
