"""Votes on training images, and the command that writes files of targets."""

import torch

from rs.command_line.targets import main as targets_command
from rs.command_line.train import main as train_command
from rs.data.images import load_images
from rs.models.checkpoint import load_model
from rs.training.image_votes import image_targets, read_targets, vote_shares
from tests.support.helpers import (
    METHOD_PARAMETERS,
    TRAINING,
    Linear,
    exit_code,
    tiny_images,
    write_params,
)


def test_shares_are_those_of_the_argmax_of_noisy_copies_whatever_the_mode():
    images = tiny_images()
    network = Linear().train()
    numbers = torch.tensor([3, 1, 3])
    found = vote_shares(network, images, numbers, 400, 0.25, torch.Generator().manual_seed(0))
    brightness = torch.stack([images.pixels(int(number))[0, 0, 0] for number in numbers]).double()
    expected = torch.special.ndtr((brightness - 0.5) / 0.25)
    assert network.training
    assert torch.equal(found.sum(dim=1), torch.ones(3).double())
    assert torch.equal(found * 400, (found * 400).round())
    assert (found[:, 1] - expected).abs().max() < 5 * 0.5 / 400**0.5  # five deviations at most
    assert not torch.equal(found[0], found[2])


def test_the_command_writes_the_votes_of_a_model_and_a_users_network_trains_with_them(
    tiny_project, tmp_path
):
    """A data set without a validation split keeps all its images, because all have targets."""
    settings = {"sigma": 0.7, "epochs": 9, "draws": 40, "seed": 3}
    cat_rs = METHOD_PARAMETERS["cat-rs"] | {"targets": settings}
    training = TRAINING | {"eval_every": 1}
    write_params(tmp_path / "params.yaml", **{"cat-rs": cat_rs, "training": training})
    model, card = load_model(tmp_path / "model")
    images = load_images(tmp_path / "data", "train")
    words = ["--dataset", "tiny", "--data", "data", "--device", "cpu"]
    for draws, more in ((40, []), (7, ["--draws", 7])):
        assert exit_code(targets_command, "model", *words, *more, "--out", "t.safetensors") == 0
        of_model = settings | {"sigma": card.sigma, "draws": draws}
        expected, _ = image_targets(model, images, of_model, torch.device("cpu"))
        assert torch.equal(read_targets(tmp_path / "t.safetensors", images), expected)
    folders = ["--sigma", 0.25, "--out", "own", "--log", "log", "--targets", "t.safetensors"]
    own = ["--network", "tests.support.helpers:smallnet"]
    assert exit_code(train_command, "cat-rs", *words, *folders, *own) == 0
