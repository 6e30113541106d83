"""Denoisers before a classifier: the closed form of a Gaussian mixture, published time steps, and
certificates.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import rs
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.models.denoised import Denoised, DiffusionDenoiser, DnCNN
from tests.support.helpers import generator, refuses

CENTERS = torch.tensor(
    [[0.2, 0.8, 0.5, 0.3], [0.7, 0.1, 0.6, 0.9], [0.4, 0.4, 0.1, 0.6]], dtype=torch.float64
)
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
SPREAD = 0.05
"""A Gaussian mixture of images (1, 2, 2) in pixels of [0, 1]."""


def linear_schedule(steps=1000):
    return torch.cumprod(1 - torch.linspace(0.0001, 0.02, steps, dtype=torch.float64), 0)


def posterior_mean(x, sigma):
    """Return E[image | image + N(0, sigma^2) = x] of the mixture, (N, 1, 2, 2)."""
    noisy = x.flatten(1)
    total = SPREAD**2 + sigma**2
    log_shares = WEIGHTS.log() - ((noisy[:, None] - CENTERS) ** 2).sum(-1) / (2 * total)
    means = CENTERS + SPREAD**2 / total * (noisy[:, None] - CENTERS)
    return (log_shares.softmax(-1)[..., None] * means).sum(1).view_as(x)


class MixtureNetwork(nn.Module):
    """The exact predictor of noise of the mixture: (u_t - sqrt(a) E[u | u_t]) / sqrt(1 - a), and a
    variance.
    """

    def __init__(self, alphas):
        super().__init__()
        self.alphas = alphas

    def forward(self, u, steps):
        alpha = self.alphas[int(steps[0])]
        noisy = (u / alpha.sqrt() + 1) / 2
        clean = 2 * posterior_mean(noisy, ((1 - alpha) / alpha).sqrt() / 2) - 1
        noise = (u - alpha.sqrt() * clean) / (1 - alpha).sqrt()
        return torch.cat([noise, torch.full_like(noise, 1e9)], dim=1)


@pytest.mark.parametrize("sigma", [0.1, 0.25, 0.5, 1.0])
def test_one_step_is_the_posterior_mean_where_the_noise_is_predicted_exactly(sigma):
    alphas = linear_schedule()
    denoise = DiffusionDenoiser(MixtureNetwork(alphas), alphas)
    x = CENTERS[torch.arange(30) % 3].view(-1, 1, 2, 2)
    x = x + sigma * torch.randn(x.shape, generator=generator(), dtype=torch.float64)
    exact = posterior_mean(x, denoise.levels[denoise.step(sigma)])
    assert (denoise(x, sigma) - exact.clamp(0, 1)).abs().max() < 1e-10
    assert denoise(x + 9, sigma).max() <= 1
    assert (exact - x).abs().max() > 0.05  # it does denoise


@pytest.mark.parametrize(
    ("sigma", "step", "signal", "level"),
    # of the authors' code for ImageNet
    [(0.25, 145, 0.893294, 0.251581), (1.0, 396, 0.447127, 1.000241)],
)
def test_steps_are_those_of_the_published_table(sigma, step, signal, level):
    denoise = DiffusionDenoiser(nn.Identity(), linear_schedule())
    assert denoise.step(sigma) == step
    assert math.sqrt(denoise.alphas[step]) == pytest.approx(signal, abs=5e-7)
    assert denoise.levels[step] == pytest.approx(level, abs=5e-7)


@given(st.floats(1e-6, 70))
def test_a_step_has_at_least_the_noise_and_the_one_before_has_less(sigma):
    denoise = DiffusionDenoiser(nn.Identity(), linear_schedule())
    step = denoise.step(sigma)
    assert denoise.levels[step] >= sigma
    assert step == 1 or denoise.levels[step - 1] < sigma


class TinyNetwork(nn.Module):
    """A network with the interface of a ``UNet2DModel``."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, u, steps):
        return SimpleNamespace(sample=self.conv(u) + steps[:, None, None, None] / 1000)


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


def test_a_denoised_classifier_is_certified_like_any_other():
    network = classifier()
    base = Denoised(network, DiffusionDenoiser(TinyNetwork(), linear_schedule(100)), 0.25)
    smoothed = rs.SmoothedClassifier(base, 4, 0.25)
    certificate = smoothed.certify(torch.full((3, 8, 8), 0.5), n0=20, n=200, alpha=0.01)
    assert certificate.counts.sum() == 200
    x = torch.rand(5, 3, 8, 8)
    minus = Denoised(network, lambda images, sigma: images - sigma, 0.5)
    assert torch.equal(minus(x), network(x - 0.5))


@pytest.mark.parametrize("engine", ["plain", "folded"])
def test_a_denoiser_for_other_noise_is_refused(engine):
    denoised = Denoised(classifier(), DnCNN(3, 2, 4), 0.25)
    pool = Ensemble([nn.Sequential(denoised), classifier()], SoftmaxAverage())
    base = rs.load(pool.eval()).for_images([*"abcd"], (3, 8, 8))
    with refuses(r"sigma 0\.5, .* sigma 0\.25"):
        base.smooth(0.5, engine=engine)
    assert base.smooth(0.25, engine=engine).sigma == 0.25


def test_what_cannot_be_denoised_is_refused():
    with refuses("sigma must be a positive number, got 0"):
        Denoised(classifier(), lambda x, sigma: x, 0)
    with refuses(r"sigma must be at most 0\.\d+, the noise of the last step, got 2"):
        DiffusionDenoiser(nn.Identity(), linear_schedule(10)).step(2)
    for alphas in ([], [0.9], [0.5, 0.9], [1.5, 0.5], [0.5, 0.0]):
        with refuses("alphas_cumprod must hold"):
            DiffusionDenoiser(nn.Identity(), alphas)
