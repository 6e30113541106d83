"""Attacks on certificates (``benchmarks.falsify``): strong where the truth is known, and in vain inside the radius."""

import math
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from benchmarks import falsify
from benchmarks.common import evenly
from benchmarks.falsify import Certified, Fixed, PerImage, attempts_on, judge, on_grid_within, surrogate_of
from rs.certification.quantize import QuantizedNetwork, quantized_members
from rs.data import images as data
from rs.ensemble import spec as ensemble_spec
from rs.ensemble.base import Cascade, Ensemble, Polytope, SoftmaxAverage
from rs.ensemble.declare import read_weights
from rs.methods import METHODS
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import Certificate
from tests.support import tiny_pool
from tests.support.helpers import ROOT, Constant, tiny_images, trainer, write_tiny

pytestmark = pytest.mark.trust_only

SIGMA, SHAPE = 0.5, (1, 4, 4)
CPU = torch.device("cpu")
SURE = 1e-6
"""Failure probability of the certificates that are attacked: a false one is then no explanation of a flip."""


class HalfSpace(nn.Module):
    """Class 1 where w x > t, |w| = 1, and class 0 elsewhere; the distance to the boundary is |w x - t|."""

    def __init__(self, threshold):
        super().__init__()
        w = torch.arange(1.0, 17.0)
        self.register_buffer("w", w / w.norm())
        self.threshold = threshold

    def forward(self, x):
        margin = x.flatten(1) @ self.w - self.threshold
        return torch.stack([-margin, margin], dim=1)


def at_distance(distance):
    """A half-space and an image of class 1 in it, as far from its boundary."""
    x = torch.full(SHAPE, 0.5)
    base = HalfSpace(0.0)
    base.threshold = float(x.flatten() @ base.w) - distance
    return Fixed(SmoothedClassifier(base, 2, SIGMA), base), x


def claimed(radius):
    """A certificate of class 1 with this radius, whatever is true."""
    return Certificate(1, radius, 0.9, 100, 100, 0.001, SIGMA, np.array([0, 100]), np.array([5, 95]))


def test_each_attack_goes_straight_to_the_boundary():
    """Of all points within epsilon the worst is the one along -w; .9 leaves room for directions that are drawn."""
    attacked, x = at_distance(1.0)
    points = falsify.Points(x[None], torch.tensor([1]), torch.tensor([0.8]).reshape(1, 1, 1, 1), [0])
    found = list(falsify.attacks(attacked, points, torch.Generator().manual_seed(0)))
    assert len(found) == 3
    for u in found:
        assert u.norm().item() <= 0.8 * (1 + 1e-6)
        assert -(u.flatten() @ attacked.smoothed.base.w).item() > 0.9 * 0.8


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
def test_a_certificate_that_reaches_beyond_the_boundary_is_found_and_a_true_one_is_not(noise):
    """With R = 1.3 times the distance d the class has Phi(-.29 d / sigma) = .28 at .99 R, and Phi(-.17 d / sigma) = .37
    at .9 R; with R = d it has Phi(.02) = .508 there at least, and .58.
    """
    attacked, x = at_distance(1.0)
    if noise == "grid":
        x = (x * 255).round() / 255
        attacked = Fixed(SmoothedClassifier(attacked.smoothed.base, 2, SIGMA, noise=noise), attacked.surrogate)
    false, true = ([Certified(0, x, claimed(radius))] for radius in (1.3, 1.0))
    verdicts = {one.distance: one.verdict for one in falsify.falsify(attacked, false, 0)}
    assert {distance: verdict[1:] for distance, verdict in verdicts.items()} == dict.fromkeys(
        (0.9, 0.99, 2.5), (True, True, True)
    )
    inside = [one.verdict for one in falsify.falsify(attacked, true, 0) if one.distance < 1]
    assert [verdict[1:] for verdict in inside] == [(False, False, False)] * 2


class Thirds(nn.Module):
    """Each of three classes for a third of N(0, sigma^2) on the first pixel."""

    def forward(self, x):
        z = x[:, 0, 0, 0] / SIGMA
        edge = 0.4307273  # Phi^-1(2/3)
        return torch.stack([(z < -edge).float(), (z.abs() <= edge).float(), (z > edge).float()], dim=1)


class Fifths(nn.Module):
    """Classes 0, 1 and 2 for 1/5, 2/5 and 2/5 of N(0, sigma^2) on the first pixel."""

    def forward(self, x):
        z = x[:, 0, 0, 0] / SIGMA
        low, high = -0.8416212, 0.2533471  # Phi^-1(1/5), Phi^-1(3/5)
        return torch.stack([(z < low).float(), ((z >= low) & (z <= high)).float(), (z > high).float()], dim=1)


@pytest.mark.parametrize(
    ("base", "y", "expected"),
    [
        (Constant(0), 0, (False, False, False)),
        (Constant(1), 0, (True, True, True)),
        (Thirds(), 0, (True, False, False)),
        (Fifths(), 0, (True, True, False)),
    ],
    ids=["sure", "another", "thirds", "outvoted below one half"],
)
def test_a_class_can_fall_below_one_half_without_another_above(base, y, expected):
    smoothed = SmoothedClassifier(base, sigma=SIGMA)
    assert judge(smoothed, torch.zeros(SHAPE), y, 1, (0, 6, 0, 1), 2_000)[1:] == expected


@given(arrays.arrays(np.float32, (1, 3, 3), elements=st.floats(-1, 1, width=32)), st.floats(0, 3))
def test_a_point_on_the_grid_is_within_the_radius(u, epsilon):
    levels = on_grid_within(torch.from_numpy(u), epsilon)
    assert levels.double().norm() <= epsilon
    assert torch.equal((levels * 255).round() / 255, levels)


# --- Weights that are solved for each image


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The tiny pool with its weights, by n0 = 100 draws of seed 0 as in the attack."""
    root = tiny_pool.make_pool(tmp_path_factory.mktemp("pool"))
    with chdir(root):
        tiny_pool.solve(certification=replace(tiny_pool.CERTIFICATION, n0=falsify.N0, seed=0))
    return root


def per_image(slug):
    test, spec = data.load_images(Path("data"), "test"), ensemble_spec.read(Path("ensembles", f"{slug}.json"))
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
    """Weights of the attack are those of the pipeline, and their derivative is that of differences; in float64."""
    with chdir(pool):
        attacked, test = per_image(slug)
        for member in attacked.members:
            member.double()
        inside = 0
        for index in range(len(test)):
            x, y = test.pixels(index).double()[None], torch.tensor([int(test.labels[index])])
            direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(index), dtype=x.dtype)
            x.requires_grad_()
            w = attacked.solved(x, y, [index])
            if w.min() < 0.01 or w.std() == 0:  # at a corner, or equal because nothing can be solved: no slope
                continue
            inside += 1
            slope = (torch.autograd.grad(w[0, 0], x)[0] * direction).sum().item()
            with torch.no_grad():
                ahead, behind = (attacked.solved(x + t * direction, y, [index])[0, 0].item() for t in (1e-6, -1e-6))
            assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-3, abs=1e-6)
        assert inside


# --- Ensembles whose members run in int8


@pytest.mark.slow
@pytest.mark.parametrize("slug", [f"ensembles/{tiny_pool.ALL}.average", f"weights/{tiny_pool.ALL}.optimal"])
def test_members_in_int8_are_attacked_by_the_gradients_of_those_in_float32_and_hold(pool, monkeypatch, slug):
    monkeypatch.setattr(falsify, "ALPHA", SURE)
    with chdir(pool):
        test, voting = data.load_images(Path("data"), "test"), ensemble_spec.read(Path(f"{slug}.json")).voting
        group = falsify.Group(f"{slug}.json", "gaussian", "int8", data=Path("data"))
        attacked, _ = group.attacked(test, tiny_pool.SETTINGS, CPU)
        assert in_int8_of(attacked.smoothed.base) == len(voting) > 0
        assert in_int8_of(attacked.surrogate) == 0
        attempts = attempts_on(attacked, test, 3, CPU)
    inside = [one.verdict for one in attempts if one.distance < 1]
    assert inside
    assert not [verdict for verdict in inside if any(verdict[1:])]


def in_int8_of(module):
    """How many networks in int8 there are in a module."""
    return sum(isinstance(one, QuantizedNetwork) for one in module.modules())


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
    """With certificates that are false with probability 1e-6, and verdicts too, this holds on every machine."""
    monkeypatch.setattr(falsify, "ALPHA", SURE)
    module, runs = (of_name(name, networks) for networks in (trained, in_int8 if precision == "int8" else trained))
    undecided, autocast = getattr(module, "undecided", False), "float32" if precision == "int8" else precision
    smoothed = SmoothedClassifier(runs, 2, 0.25, noise=noise, precision=autocast, undecided=undecided)
    attempts = attempts_on(Fixed(smoothed, surrogate_of(module)), tiny_images(10, 1), 10, CPU)
    inside = [one.verdict for one in attempts if one.distance < 1]
    record_property("tried", len(inside))
    assert inside
    assert not [verdict for verdict in inside if any(verdict[1:])]
    assert all(math.isfinite(verdict.share) for verdict in inside)


# --- The table of the page


def counts(classifier, scope, distance, attacked, below, **changes):
    fixed = {"sigma": 0.25, "noise": "grid", "precision": "float32", "boxed": False, "flipped": 0, "outvoted_anew": 0}
    return fixed | {
        "classifier": classifier,
        "scope": scope,
        "distance": distance,
        "attacked": attacked,
        "below_half": below,
        "outvoted": below,
        "least_share": 0.5 + distance / 100,
        **changes,
    }


def test_the_tables_add_counts_up_and_bound_their_rates():
    """Of n = 59 a rate of 5 % and more would show with probability 95 %: 0.95^59 = .0485."""
    sound = [
        counts("macer-0", "model", distance, attacked, below)
        for attacked in (20, 39)
        for distance, below in ((0.9, 0), (0.99, 0), (2.5, attacked))
    ]
    image = [counts("a.per-image", "per-image", distance, 10, below) for distance, below in ((0.9, 0), (0.99, 1))]
    lines = falsify.summary(pd.DataFrame(sound + image))
    at_most, at_least = 1 - 0.05 ** (1 / 59), 0.05 ** (1 / 59)
    expected = f"| 59 | 0 | 0 | {at_most:.2%} | 0.510 | 59 | {at_least:.1%} |"
    assert [line for line in lines if expected in line] == [
        f"| {name} {expected}" for name in ("macer", "grid, float32", "all")
    ]
    low, high = 1 - 0.975 ** (1 / 10), 0.4450
    assert lines[-1] == f"| a.per-image | 0.25 | 10 | 1 | {low:.1%} to {high:.1%} | 1 | 0 | 0 |"


def test_a_group_without_a_certificate_has_no_rate_and_stops_no_table(tmp_path):
    """Its cells are empty in the file, which then reads as text where a measurement is continued."""
    none = [
        counts(name, scope, distance, 0, 0, least_share=None)
        for name, scope in (("gaussian-0", "model"), ("b.per-image", "per-image"))
        for distance in (0.9, 0.99, 2.5)
    ]
    some = [counts("macer-0", "model", distance, 20, below) for distance, below in ((0.9, 0), (0.99, 0), (2.5, 20))]
    pd.DataFrame(some + none).to_csv(tmp_path / "out.csv", index=False)
    read = pd.read_csv(tmp_path / "out.csv", keep_default_na=False).to_dict("records")
    for rows in (some + none, read, none):
        lines = falsify.summary(pd.DataFrame(rows))
        assert [line.split(" | ")[1] for line in lines if line.startswith("| macer")] == ["20"] * (rows is not none)
        assert not [line for line in lines if "gaussian-0" in line or "b.per-image" in line]


@pytest.mark.parametrize(("count", "size", "expected"), [(3, 10, [0, 3, 7]), (4, 4, [0, 1, 2, 3]), (8, 3, [0, 1, 2])])
def test_images_are_evenly_spread_and_none_counts_twice(count, size, expected):
    assert evenly(count, size) == expected


def test_the_page_has_the_tables_of_the_counts():
    page = (ROOT / "benchmarks" / "results" / "falsification.md").read_text(encoding="utf-8")
    for line in falsify.summary(pd.read_csv(ROOT / "docs" / "falsification" / "digits.csv")):
        assert line in page
