"""The losses of inputs that are no images: other ranges, other axes, one logit."""

import pytest
import torch

from rs.methods import METHODS
from rs.methods.base import NeedsTargets
from rs.methods.loss import loss
from tests.support.helpers import generator, refuses, soft_targets
from tests.support.networks import Scaled, mlp

IMAGES, NUMBERS, K, SIGMA = 6, 24, 3, 0.25
X = torch.rand(IMAGES, NUMBERS, generator=generator(1))
Y = torch.arange(IMAGES) % K
SMALL = {
    "smoothadv": {"epsilon": 0.5, "steps": 3},
    "advmacer": {"epsilon": 0.5, "steps": 3, "draws": 4},
    "consistency": {"epsilon": 0.5, "steps": 3},
    "smoothmix": {"step_size": 0.5, "steps": 3},
}
LATE = 1000  # epochs after all warm-ups


def value(method, network, x, y=Y, *, sigma=SIGMA, **settings):
    extra = {}
    if isinstance(loss(method, sigma).method, NeedsTargets):
        extra["targets"] = soft_targets(y, K)
    objective = loss(method, sigma, **settings)
    return objective(network, x, y, epoch=LATE, rng=generator(2), **extra).loss


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(24,), (4, 6), (1, 24), (1, 2, 3, 4)], ids=str)
def test_a_loss_of_numbers_does_not_depend_on_their_axes(method, shape):
    expected = value(method, mlp(NUMBERS, K), X.view(IMAGES, 1, 4, 6))
    assert torch.equal(value(method, mlp(NUMBERS, K), X.view(IMAGES, *shape)), expected)


@pytest.mark.parametrize("method", SMALL)
def test_a_loss_within_0_and_2_is_that_of_half_the_inputs(method):
    settings = SMALL[method]
    doubled = {name: 2 * settings[name] for name in ("epsilon", "step_size") if name in settings}
    if method == "advmacer":
        settings = settings | {"lam": 6.0}
        doubled["lam"] = 3.0  # sigma is a factor of its term
    half = value(method, Scaled(mlp(NUMBERS, K)), X, **settings)
    whole = value(
        method, mlp(NUMBERS, K), 2 * X, sigma=2 * SIGMA, bounds=(0, 2), **(settings | doubled)
    )
    torch.testing.assert_close(whole, half)
    unbounded = value(
        method, mlp(NUMBERS, K), 2 * X, sigma=2 * SIGMA, bounds=None, **(settings | doubled)
    )
    assert unbounded > whole  # the attack goes further


@pytest.mark.parametrize("method", METHODS)
def test_inputs_beyond_0_and_1_need_bounds(method):
    x = 2 * X - 1
    with refuses(r"pixels in \[0, 1\], .* give bounds=, such as \(-1, 1\)"):
        value(method, mlp(NUMBERS, K), x)
    assert value(method, mlp(NUMBERS, K), x, bounds=(-1, 1)).isfinite()
    assert value(method, mlp(NUMBERS, K), 100 * x, bounds=None).isfinite()
    with refuses(r"inputs without noise must hold .* within \[-1, 1\]"):
        value(method, mlp(NUMBERS, K), 1.5 * x, bounds=(-1, 1))
