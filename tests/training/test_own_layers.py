"""Networks that torch does not copy as they are.

Layers of weight normalization and pruning compute their weights before each pass, and the
parameters of a copied TorchScript module are results of a gradient.
"""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import rs
from rs.models.backend import copy_network
from rs.models.fingerprint import model_fingerprint
from rs.training.attack_backend import frozen
from tests.support.helpers import SHAPE, arrays
from tests.support.networks import images


def layers(first):
    return nn.Sequential(
        first, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * SHAPE[1] * SHAPE[2], 2)
    )


def convolution():
    torch.manual_seed(0)
    return nn.Conv2d(1, 4, 3, padding=1)


def weight_normalized():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return layers(nn.utils.weight_norm(convolution()))


def parametrized():
    return layers(nn.utils.parametrizations.weight_norm(convolution()))


def pruned():
    network = layers(convolution())
    prune.l1_unstructured(network[0], "weight", 0.5)
    return network


def scripted():
    with pytest.warns(FutureWarning, match="torch.jit.script"):
        return torch.jit.script(layers(convolution()))


MAKERS = [weight_normalized, parametrized, pruned]


@pytest.mark.parametrize("make", [*MAKERS, scripted])
@pytest.mark.parametrize("method", ["gaussian", "smoothadv"])
def test_they_train_and_load_as_they_were(make, method, tmp_path):
    pixels, labels = arrays(24, 0)
    robust = rs.train(
        make, pixels, labels, sigma=0.25, method=method, epochs=1, out=tmp_path / "model"
    )
    loaded = rs.load(tmp_path / "model", network=make)
    x = images(3, SHAPE)
    assert model_fingerprint(loaded.module) == model_fingerprint(robust.module)
    assert torch.equal(loaded.module(x), robust.module(x))
    start = make().eval()
    assert not torch.allclose(robust.module(x), start(x))


@pytest.mark.parametrize("make", MAKERS)
def test_the_network_of_attacks_follows_the_weights(make):
    network = make().double()
    attacked = frozen(network, SHAPE)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    x = images(3, SHAPE).double()
    torch.testing.assert_close(attacked(x), copy_network(network).eval()(x))


def test_the_fingerprint_does_not_depend_on_the_weights_of_the_last_pass():
    network = pruned()
    before = model_fingerprint(network)
    with torch.no_grad():
        network[0].weight_orig.mul_(2.0)
    changed = model_fingerprint(network)
    network(images(2, SHAPE))
    network.eval()
    assert changed != before
    network[1].reset_running_stats()
    assert model_fingerprint(network) == changed
