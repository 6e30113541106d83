"""The loss of a router against a slow form, and its targets."""

import math

import pytest
import torch
from torch import nn

from rs import params
from rs.errors import InputError
from rs.methods.router import Router
from rs.smoothing.noise import draw
from rs.training.image_votes import router_targets
from tests.support.helpers import generator, method_parameters

RADII = torch.tensor([[0.6, 0.0, 0.2], [0.0, 0.0, 0.0], [0.1, 0.9, 0.4], [0.5, 0.1, 0.1]], dtype=torch.float64)


def step(network, images, **changes):
    method = params.validate(Router, method_parameters("router") | changes, "router")
    labels = torch.zeros(len(images), dtype=torch.int64)
    return method.loss(network, images, labels, sigma=1.0, rng=generator(3), epoch=0, targets=router_targets(RADII))


def test_the_loss_is_that_of_a_slow_form():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
        images = torch.rand(4, 1, 2, 2, dtype=torch.float64)
    result = step(network, images, draws=3, lam=7.0, eta=0.25, temperature=0.5)
    noise = draw(images, 3, 1.0, generator(3))
    classification = consistency = right = 0.0
    for i, w in ((0, 3 / 2), (2, 3), (3, 3 / 2)):  # 1 / q: two of three images have their best radius at level 0
        exponentials = [math.exp(r / 0.5) for r in RADII[i].tolist()]
        target = [value / sum(exponentials) for value in exponentials]
        softmaxes = [network(images[i : i + 1] + noise[i, k : k + 1]).softmax(-1)[0].tolist() for k in range(3)]
        mean = [sum(column) / 3 for column in zip(*softmaxes, strict=True)]
        for p in softmaxes:
            classification += w * -sum(t * math.log(value) for t, value in zip(target, p, strict=True)) / 3
            divergence = sum(a * math.log(a / value) for a, value in zip(mean, p, strict=True))
            consistency += w * max(RADII[i].tolist()) * 7.0 * divergence / 3
            right += (p.index(max(p)) == int(RADII[i].argmax())) / 3
        consistency += w * max(RADII[i].tolist()) * 0.25 * -sum(a * math.log(a) for a in mean)
    expected = [classification / 3, consistency / 3, right / 3]
    values = [value.item() for value in (result.cross_entropy, result.robustness, result.accuracy)]
    assert values == pytest.approx(expected, rel=1e-6)
    assert result.loss.item() == pytest.approx(sum(expected[:2]), rel=1e-6)


def test_images_without_a_radius_change_nothing():
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    images = torch.rand(4, 1, 2, 2, dtype=torch.float64)
    others = images.clone()
    others[1] = 0.0
    assert step(network, images).loss == step(network, others).loss


def test_weights_balance_the_levels_and_some_image_must_have_a_radius():
    targets = router_targets(RADII)
    assert targets[:, :-1].tolist() == RADII.tolist()
    assert targets[:, -1].tolist() == pytest.approx([1.5, 0.0, 3.0, 1.5])
    with pytest.raises(InputError, match="some image must have a radius"):
        router_targets(torch.zeros(3, 2))
