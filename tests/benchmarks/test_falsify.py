"""Attacks on certificates find a known boundary, and nothing inside the certified radius."""

import math
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import falsify
from benchmarks.falsify import Certified, Fixed, PerImage, attempts_on, surrogate_of
from rs.certification.quantize import quantized_members
from rs.data import images as data
from rs.ensemble import spec as ensemble_spec
from rs.ensemble.base import Cascade, Ensemble, Polytope, SoftmaxAverage
from rs.ensemble.declare import read_weights
from rs.methods import METHODS
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import Certificate
from tests.support import tiny_pool
from tests.support.helpers import tiny_images, trainer, write_tiny

pytestmark = pytest.mark.trust_only

SIGMA, SHAPE = 0.5, (1, 4, 4)
CPU = torch.device("cpu")
SURE = 1e-6
"""Failure probability of the attacked certificates: a flip is not explained by chance."""


class HalfSpace(nn.Module):
    """Class 1 where w x > t, |w| = 1, else class 0: the boundary is |w x - t| away."""

    def __init__(self, threshold):
        super().__init__()
        w = torch.arange(1.0, 17.0)
        self.register_buffer("w", w / w.norm())
        self.threshold = threshold

    def forward(self, x):
        margin = x.flatten(1) @ self.w - self.threshold
        return torch.stack([-margin, margin], dim=1)


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
def test_a_certificate_that_reaches_beyond_the_boundary_is_found_and_a_true_one_is_not(noise):
    """Shares of the class follow from the distance d to the boundary.

    With R = 1.3 d they are Phi(-.29 d / sigma) = .28 at .99 R, and Phi(-.17 d / sigma) = .37 at
    .9 R; with R = d they are at least Phi(.02) = .508 and .58.
    """
    x, base = torch.full(SHAPE, 0.5), HalfSpace(0.0)
    base.threshold = float(x.flatten() @ base.w) - 1.0  # the distance of x, which is of class 1
    attacked = Fixed(SmoothedClassifier(base, 2, SIGMA, noise=noise), base)
    if noise == "grid":
        x = (x * 255).round() / 255
    votes = np.array([0, 100]), np.array([5, 95])

    def attempts(radius):
        claim = Certificate(1, radius, 0.9, 100, 100, 0.001, SIGMA, *votes)
        return falsify.falsify(attacked, [Certified(0, x, claim)], 0)

    found = {one.distance: one.verdict[1:] for one in attempts(1.3)}
    assert found == dict.fromkeys((0.9, 0.99, 2.5), (True, True, True))
    inside = [one.verdict[1:] for one in attempts(1.0) if one.distance < 1]
    assert inside == [(False, False, False)] * 2


# --- Weights that are solved for each image


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The tiny pool with its weights, by n0 = 100 draws of seed 0 as in the attack."""
    root = tiny_pool.make_pool(tmp_path_factory.mktemp("pool"))
    with chdir(root):
        tiny_pool.solve(certification=replace(tiny_pool.CERTIFICATION, n0=falsify.N0, seed=0))
    return root


def per_image(slug):
    test = data.load_images(Path("data"), "test")
    spec = ensemble_spec.read(Path("ensembles", f"{slug}.json"))
    group = falsify.Group(f"ensembles/{slug}.json", "gaussian", "float32")
    attacked, scope = group.attacked(test, tiny_pool.SETTINGS, CPU)
    assert isinstance(attacked, PerImage)
    assert (scope, attacked.spec) == ("per-image", spec)
    return attacked, test


PER_IMAGE = [f"{tiny_pool.PAIR}.label", f"{tiny_pool.PAIR}.printed", f"{tiny_pool.ALL}.per-image"]


@pytest.mark.parametrize("slug", PER_IMAGE)
def test_weights_at_the_clean_image_are_those_of_the_stage(pool, slug):
    with chdir(pool):
        attacked, test = per_image(slug)
        stored = read_weights(Path("weights", f"{slug}.tsv"), len(attacked.members))
        for index, weights in stored.items():
            assert attacked.weights(test.pixels(index), index) == pytest.approx(weights, abs=1e-6)


@pytest.mark.parametrize("slug", PER_IMAGE)
def test_the_gradient_goes_through_the_weights(pool, slug):
    """The derivative of the weights is that of finite differences, in float64."""
    with chdir(pool):
        attacked, test = per_image(slug)
        for member in attacked.members:
            member.double()
        inside = 0
        for index in range(len(test)):
            x = test.pixels(index).double()[None].requires_grad_()
            y = torch.tensor([int(test.labels[index])])
            rng = torch.Generator().manual_seed(index)
            direction = torch.randn(x.shape, generator=rng, dtype=x.dtype)
            w = attacked.solved(x, y, [index])
            if w.min() < 0.01 or w.std() == 0:
                continue  # there is no slope at a corner, or where nothing can be solved
            inside += 1
            slope = (torch.autograd.grad(w[0, 0], x)[0] * direction).sum().item()
            with torch.no_grad():
                ahead = attacked.solved(x + 1e-6 * direction, y, [index])[0, 0].item()
                behind = attacked.solved(x - 1e-6 * direction, y, [index])[0, 0].item()
            assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-3, abs=1e-6)
        assert inside


# --- Trained networks, in `make trust`


@pytest.fixture(scope="module")
def trained():
    """A network of each method, trained on the tiny images."""
    made = {method: trainer(method, epochs=6, milestones=[], sigma=0.25) for method in METHODS}
    for one in made.values():
        one.run()
    return {method: one.model.eval() for method, one in made.items()}


@pytest.fixture(scope="module")
def in_int8(trained, tmp_path_factory):
    """The same networks in int8."""
    calibration = write_tiny(tmp_path_factory.mktemp("tiny"))
    made = quantized_members([*trained.values()], [], calibration, 0.25, SHAPE)
    return dict(zip(trained, made, strict=True))


ENSEMBLES = {
    "average": SoftmaxAverage(),
    "cascade": Cascade([0.5, 0.5]),
    "set": Polytope([[0.2, 0.2, 0.6], [0.2, 0.6, 0.2], [0.6, 0.2, 0.2]]),
}


def of_name(name, networks):
    """The network of a method, or an ensemble of three."""
    members = [networks[method] for method in ("advmacer", "macer", "smoothadv")]
    return Ensemble(members, ENSEMBLES[name]) if name in ENSEMBLES else networks[name]


@pytest.mark.parametrize(("noise", "precision"), falsify.SETTINGS)
@pytest.mark.parametrize("name", [*METHODS, *ENSEMBLES])
def test_no_attack_reaches_another_class_inside_the_radius(
    trained, in_int8, monkeypatch, name, noise, precision
):
    """Certificates and verdicts are false with probability 1e-6, so it holds on every machine."""
    monkeypatch.setattr(falsify, "ALPHA", SURE)
    module = of_name(name, trained)
    certified = module
    if precision == "int8":
        certified = of_name(name, in_int8)
        precision = "float32"
    undecided = getattr(module, "undecided", False)
    smoothed = SmoothedClassifier(
        certified, 2, 0.25, noise=noise, precision=precision, undecided=undecided
    )
    attacked = Fixed(smoothed, surrogate_of(module))
    attempts = attempts_on(attacked, tiny_images(10, 1), 10, CPU)
    inside = [one.verdict for one in attempts if one.distance < 1]
    assert inside
    assert not [verdict for verdict in inside if any(verdict[1:])]
    assert all(math.isfinite(verdict.share) for verdict in inside)
