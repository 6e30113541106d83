"""Training a denoiser before a frozen classifier: each objective, and what stays the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rs
from rs.methods import DENOISERS, method_class
from rs.models.denoised import DenoiserSize, DnCNN, with_denoiser
from rs.smoothing.noise import training_noise
from tests.support.helpers import generator, refuses
from tests.support.networks import images

SIGMA = 0.25
SIZE = {"depth": 4, "width": 8}
every_objective = pytest.mark.parametrize("name", DENOISERS)


def model():
    """A classifier with a batch norm, frozen, and a small denoiser before it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3))
        return with_denoiser(classifier, 1, DenoiserSize(**SIZE), SIGMA, seed=1).train()


def batch():
    return images(12, (1, 8, 8), 7), torch.arange(12) % 3


def step(name, network, seed=0):
    x, y = batch()
    return method_class(name)(**SIZE).loss(network, x, y, sigma=SIGMA, rng=generator(seed), epoch=0)


def test_a_denoiser_begins_as_the_identity_with_the_published_number_of_parameters():
    published = rs.loss("denoiser-mse", SIGMA).method
    denoise, (x, _) = DnCNN(3, published.depth, published.width), batch()
    assert sum(parameter.numel() for parameter in denoise.parameters()) == 558_400
    x = x.expand(-1, 3, -1, -1)
    assert torch.equal(denoise(x, SIGMA), x)


def test_the_objectives_are_the_noise_and_the_prediction_of_the_clean_image_at_the_start():
    network, (x, y) = model(), batch()
    noise = training_noise(x, 1, SIGMA, generator())[:, 0]
    assert step("denoiser-mse", network).loss.item() == pytest.approx(
        float(noise.square().sum() / 24), rel=1e-6
    )
    with torch.no_grad():
        predicted, logits = network.network(x).argmax(1), network.network(x + noise)
    stability = step("denoiser-stability", network)
    assert stability.loss.item() == pytest.approx(
        float(F.cross_entropy(logits, predicted)), rel=1e-6
    )
    assert stability.accuracy == (logits.argmax(1) == y).float().mean()


@every_objective
def test_a_step_moves_the_denoiser_alone(name):
    network = model()
    before = {key: value.clone() for key, value in network.network.state_dict().items()}
    step(name, network).loss.backward()
    assert all(
        torch.equal(before[key], value) for key, value in network.network.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in network.network.parameters())
    assert all(parameter.grad is not None for parameter in network.denoise.parameters())
    assert network.denoise.training
    assert not network.network.training


def test_a_model_without_a_denoiser_is_refused():
    with refuses(r"the model must contain an rs\.Denoised, .* got Sequential"):
        step("denoiser-mse", nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
