"""Votes on training images."""

import torch

from rs.training.image_votes import vote_shares
from tests.support.helpers import Linear, generator, tiny_images


def test_shares_are_those_of_the_argmax_of_noisy_copies_whatever_the_mode():
    images = tiny_images()
    network = Linear().train()
    numbers = torch.tensor([3, 1, 3])
    found = vote_shares(network, images, numbers, 400, 0.25, generator())
    brightness = torch.from_numpy(images.images[numbers, 0, 0, 0] / 255)
    expected = torch.special.ndtr((brightness - 0.5) / 0.25)
    assert network.training
    assert torch.equal(found.sum(dim=1), torch.ones(3).double())
    assert (found[:, 1] - expected).abs().max() < 5 * 0.5 / 400**0.5  # five deviations at most
    assert not torch.equal(found[0], found[2])
