"""Votes on training images, and files of the targets that are made of them."""

from dataclasses import replace

import pytest
import torch

from rs.command_line.targets import main as targets_command
from rs.data.images import load_images
from rs.errors import InputError
from rs.training.image_votes import TargetSettings, read_targets, vote_shares, write_targets
from rs.training.recipe import RunOptions, training_recipe
from rs.training.run import train_model
from tests.support.helpers import Linear, exit_code, refuses, tiny_images, tiny_params, write_params

OPTIONS = RunOptions(sigma=0.25, seed=0, device=torch.device("cpu"))
CAT_RS = {"draws": 2, "steps": 1, "epsilon": 0.2, "lam": 0.5, "confidence": "votes"}


def test_shares_are_those_of_the_argmax_of_noisy_copies_whatever_the_mode():
    images, network = tiny_images(), Linear().train()
    numbers = torch.tensor([3, 1, 3])
    found = vote_shares(network, images, numbers, 400, 0.25, torch.Generator().manual_seed(0))
    brightness = torch.stack([images.pixels(int(number))[0, 0, 0] for number in numbers]).double()
    expected = torch.special.ndtr((brightness - 0.5) / 0.25)
    assert network.training
    assert torch.equal(found.sum(dim=1), torch.ones(3).double())
    assert torch.equal(found * 400, (found * 400).round())
    assert (found[:, 1] - expected).abs().max() < 5 * 0.5 / 400**0.5  # five deviations at most
    assert not torch.equal(found[0], found[2])


def train(tmp_path, folder, method, **changes):
    recipe = training_recipe(tiny_params(**{"cat-rs": CAT_RS}), "tiny", method, 0.25)
    options = replace(OPTIONS, **changes)
    train_model(recipe, folder, options, out=tmp_path / method, log=tmp_path / f"log-{method}")


def test_targets_are_made_from_a_model_and_trained_on(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, path = load_images(tiny, "train"), tmp_path / "targets.safetensors"
    train(tmp_path, tiny, "gaussian")
    for _ in range(2):  # the second replaces the first
        write_targets(
            tmp_path / "gaussian", images, TargetSettings(draws=7, seed=0), OPTIONS.device, path
        )
    targets = read_targets(path, images)
    assert targets.shape == (len(images), 2)
    assert torch.allclose(targets.sum(dim=1), torch.ones(len(images)))
    train(tmp_path, tiny, "cat-rs", targets=path)
    assert '"targets": "sha256 ' in (tmp_path / "cat-rs" / "model.json").read_text()
    with pytest.raises(
        InputError, match="--targets is for methods that need targets, which gaussian does not"
    ):
        train(tmp_path, tiny, "gaussian", targets=path)
    with pytest.raises(
        InputError,
        match=r"cat-rs must have targets of its images; make a file of them by `rs targets",
    ):
        train(tmp_path, tiny, "cat-rs")
    with pytest.raises(
        InputError, match="must hold the targets of the images of this training, but it has others"
    ):
        read_targets(path, tiny_images(10, 1))
    path.write_text("nothing")
    for other in (path, tmp_path / "none"):
        with refuses(r"must be a file of targets, but it is none; make it by `rs targets MODEL`"):
            read_targets(other, images)


def test_the_command_writes_the_shares_of_as_many_draws_as_it_is_given(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(tmp_path, tiny, "gaussian")
    write_params(tmp_path / "params.yaml", targets={"draws": 40, "seed": 3})
    words = [
        "gaussian",
        "--dataset",
        "tiny",
        "--data",
        tiny,
        "--params",
        "params.yaml",
        "--device",
        "cpu",
    ]
    images = load_images(tiny, "train")
    for draws, more in ((40, []), (7, ["--draws", 7])):
        assert exit_code(targets_command, *words, *more, "--out", "targets.safetensors") == 0
        shares = read_targets(tmp_path / "targets.safetensors", images)
        settings = TargetSettings(draws=draws, seed=3)
        write_targets(
            tmp_path / "gaussian", images, settings, OPTIONS.device, tmp_path / "again.safetensors"
        )
        assert torch.equal(shares, read_targets(tmp_path / "again.safetensors", images))
        assert torch.allclose(shares * draws, (shares * draws).round(), atol=1e-4)


def test_a_model_of_other_images_makes_no_targets(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(tmp_path, tiny, "gaussian")
    images = load_images(tiny, "train")
    others = replace(images, meta=replace(images.meta, classes=("one", "two")))
    with refuses("must classify the images of"):
        write_targets(
            tmp_path / "gaussian",
            others,
            TargetSettings(draws=7, seed=0),
            OPTIONS.device,
            tmp_path / "none.safetensors",
        )
