"""Short trainings before a training: warm starts, and the targets that a method needs."""

import pytest
import torch

from rs.data.images import load_images
from rs.models.checkpoint import load_model
from rs.storage.files import read_json
from rs.training import image_votes, run
from rs.training.recipe import RunOptions, training_recipe
from rs.training.trainer import Trainer
from tests.support.helpers import (
    METHOD_PARAMETERS,
    TRAINING,
    python,
    read_csv,
    tiny_params,
    weights,
    write_params,
)

TARGETS = {"sigma": 0.5, "epochs": 3, "draws": 7, "seed": 4}
WARM_START = {"sigma": 0.001, "epochs": 2}
CAT_RS = METHOD_PARAMETERS["cat-rs"] | {"targets": TARGETS}


def train(tmp_path, folder, name, method="cat-rs", sigma=0.25, seed=1, model=None, **training):
    """Train into the folder ``name``; return the model."""
    model = model or {"architecture": "smallnet"}
    values = tiny_params(**{"cat-rs": CAT_RS, "model": model, "training": TRAINING | training})
    recipe = training_recipe(values, "tiny", method, sigma)
    options = RunOptions(sigma=sigma, seed=seed, device=torch.device("cpu"))
    pair = run.splits(recipe, folder)
    run.train_model(recipe, *pair, options, out=tmp_path / name, log=tmp_path / f"log-{name}")
    return load_model(tmp_path / name)[0]


def test_a_warm_start_is_what_a_training_by_gaussian_of_that_seed_makes(tmp_path, tiny):
    in_the_cell = train(tmp_path, tiny, "warm", "macer", warm_start=WARM_START)
    train(tmp_path, tiny, "start", "gaussian", sigma=0.001)
    start = {"architecture": "smallnet", "weights": str(tmp_path / "start")}
    assert weights(in_the_cell) == weights(train(tmp_path, tiny, "two", "macer", model=start))
    assert weights(in_the_cell) != weights(train(tmp_path, tiny, "cold", "macer"))
    warm_start = read_json(tmp_path / "warm/model.json")["training"]["warm_start"]
    assert warm_start.items() >= WARM_START.items()


def test_targets_are_the_votes_of_a_gaussian_network_of_their_own_noise_level_and_seed(
    tmp_path, tiny, monkeypatch
):
    in_the_cell = train(tmp_path, tiny, "model")
    train(tmp_path, tiny, "gaussian", "gaussian", sigma=0.5, seed=4, epochs=3)
    images = load_images(tiny, "train")
    network, _ = load_model(tmp_path / "gaussian")
    votes, _ = image_votes.image_targets(network, images, TARGETS, torch.device("cpu"), tmp_path)
    assert votes.shape == (len(images), 2)
    assert torch.allclose(votes.sum(dim=1), torch.ones(len(images)))
    for name, targets in (("votes", votes), ("others", 1 - votes)):
        monkeypatch.setattr(run, "make_targets", lambda *_, targets=targets: (targets, 0.0))
        is_same = weights(in_the_cell) == weights(train(tmp_path, tiny, name))
        assert is_same == (name == "votes")


def test_a_stop_in_any_phase_continues_and_ends_with_the_same_bytes(tmp_path, tiny, monkeypatch):
    """Each run is stopped after one epoch, or one block of votes."""
    monkeypatch.setattr(image_votes, "BLOCK", 10)  # three blocks of the 24 images
    unbroken = train(tmp_path, tiny, "unbroken", warm_start=WARM_START)
    steps = []
    stops = []

    def one_at_a_time(function):
        def step(*arguments):
            if len(steps) == len(stops):
                raise KeyboardInterrupt
            steps.append(function.__name__)
            return function(*arguments)

        return step

    monkeypatch.setattr(Trainer, "epoch", one_at_a_time(Trainer.epoch))
    monkeypatch.setattr(image_votes, "vote_shares", one_at_a_time(image_votes.vote_shares))
    epochs = WARM_START["epochs"] + TARGETS["epochs"]
    for number in range(epochs + 3 + TRAINING["epochs"]):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, tiny, "stopped", warm_start=WARM_START)
        stops.append(number)
    stopped = train(tmp_path, tiny, "stopped", warm_start=WARM_START)
    assert steps == ["epoch"] * epochs + ["vote_shares"] * 3 + ["epoch"] * TRAINING["epochs"]
    assert weights(stopped) == weights(unbroken)


def test_the_seconds_before_the_first_epoch_count(tmp_path, tiny):
    train(tmp_path, tiny, "model", warm_start=WARM_START)
    timing = read_csv(tmp_path / "log-model" / "timing.csv")
    seconds = [float(row["seconds"]) for row in timing]
    assert [row["epoch"] for row in timing] == ["0", "1", "2"]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    provenance = read_json(tmp_path / "log-model" / "provenance.json")
    assert provenance["training_seconds"] == seconds[2]


@pytest.mark.slow
def test_two_processes_train_with_the_targets_that_the_first_one_counts(tmp_path, tiny):
    """The first process keeps the votes; both models are one, so its targets have reached both."""
    write_params(
        tmp_path / "params.yaml",
        **{"cat-rs": CAT_RS, "training": TRAINING | {"warm_start": WARM_START}},
    )
    words = ["--dataset", "tiny", "--sigma", "0.25", "--data", str(tiny), "--device", "cpu"]
    words += ["--out", "model", "--log", "log"]
    forked = ["-m", "tests.support.forked", "2", "stages.train", "cat-rs", *words]
    done = python(*forked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "log/provenance.json")["processes"] == 2
