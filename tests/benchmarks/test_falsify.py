"""Attacks on certificates (``benchmarks.falsify``): strong where the truth is known, and in vain
inside the radius.
"""

import math
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
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
from tests.support.helpers import ROOT, tiny_images, trainer, write_tiny

pytestmark = pytest.mark.trust_only

SIGMA, SHAPE = 0.5, (1, 4, 4)
CPU = torch.device("cpu")
SURE = 1e-6
"""Failure probability of the certificates that are attacked: a false one is then no explanation of
a flip.
"""


class HalfSpace(nn.Module):
    """Class 1 where w x > t, |w| = 1, and class 0 elsewhere; the distance to the boundary is |w x -
    t|.
    """

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
    """With R = 1.3 times the distance d the class has Phi(-.29 d / sigma) = .28 at .99 R, and
    Phi(-.17 d / sigma) = .37 at .9 R; with R = d it has Phi(.02) = .508 there at least, and .58.
    """
    x, base = torch.full(SHAPE, 0.5), HalfSpace(0.0)
    base.threshold = float(x.flatten() @ base.w) - 1.0  # the distance of x, which is of class 1
    attacked = Fixed(SmoothedClassifier(base, 2, SIGMA, noise=noise), base)
    if noise == "grid":
        x = (x * 255).round() / 255
    votes = np.array([0, 100]), np.array([5, 95])
    claims = (Certificate(1, radius, 0.9, 100, 100, 0.001, SIGMA, *votes) for radius in (1.3, 1.0))
    false, true = ([Certified(0, x, claim)] for claim in claims)
    verdicts = {one.distance: one.verdict[1:] for one in falsify.falsify(attacked, false, 0)}
    assert verdicts == dict.fromkeys((0.9, 0.99, 2.5), (True, True, True))
    inside = [one.verdict[1:] for one in falsify.falsify(attacked, true, 0) if one.distance < 1]
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
    test, spec = (
        data.load_images(Path("data"), "test"),
        ensemble_spec.read(Path("ensembles", f"{slug}.json")),
    )
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
    """Weights of the attack are those of the pipeline, and their derivative is that of differences;
    in float64.
    """
    with chdir(pool):
        attacked, test = per_image(slug)
        for member in attacked.members:
            member.double()
        inside = 0
        for index in range(len(test)):
            x, y = test.pixels(index).double()[None], torch.tensor([int(test.labels[index])])
            direction = torch.randn(
                x.shape, generator=torch.Generator().manual_seed(index), dtype=x.dtype
            )
            x.requires_grad_()
            w = attacked.solved(x, y, [index])
            if (
                w.min() < 0.01 or w.std() == 0
            ):  # at a corner, or equal because nothing can be solved: no slope
                continue
            inside += 1
            slope = (torch.autograd.grad(w[0, 0], x)[0] * direction).sum().item()
            with torch.no_grad():
                ahead, behind = (
                    attacked.solved(x + t * direction, y, [index])[0, 0].item()
                    for t in (1e-6, -1e-6)
                )
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


@pytest.mark.trust_only("false certificates, by attack")
@pytest.mark.parametrize(("noise", "precision"), falsify.SETTINGS)
@pytest.mark.parametrize("name", [*METHODS, *ENSEMBLES])
def test_no_attack_reaches_another_class_inside_the_radius(
    trained, in_int8, monkeypatch, record_property, name, noise, precision
):
    """With certificates that are false with probability 1e-6, and verdicts too, this holds on every
    machine.
    """
    monkeypatch.setattr(falsify, "ALPHA", SURE)
    module, runs = (
        of_name(name, networks)
        for networks in (trained, in_int8 if precision == "int8" else trained)
    )
    undecided, autocast = (
        getattr(module, "undecided", False),
        "float32" if precision == "int8" else precision,
    )
    smoothed = SmoothedClassifier(
        runs, 2, 0.25, noise=noise, precision=autocast, undecided=undecided
    )
    attempts = attempts_on(Fixed(smoothed, surrogate_of(module)), tiny_images(10, 1), 10, CPU)
    inside = [one.verdict for one in attempts if one.distance < 1]
    record_property("tried", len(inside))
    assert inside
    assert not [verdict for verdict in inside if any(verdict[1:])]
    assert all(math.isfinite(verdict.share) for verdict in inside)


def test_the_page_has_the_tables_of_the_counts():
    page = (ROOT / "benchmarks" / "results" / "falsification.md").read_text(encoding="utf-8")
    for line in falsify.summary(pd.read_csv(ROOT / "docs" / "falsification" / "digits.csv")):
        assert line in page
