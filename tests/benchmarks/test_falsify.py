"""Attacks on certificates of trained networks, and on weights that are chosen by the image."""

from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import falsify
from rs.certification.attack_certificates import AttackSettings, Target, attack_image
from rs.certification.quantize import Calibration, quantized_members
from rs.data import images as data
from rs.ensemble import spec as ensemble_spec
from rs.ensemble.base import Cascade, Ensemble, SoftmaxAverage
from rs.ensemble.declare import read_weights
from rs.methods import METHODS
from rs.smoothing.classifier import SmoothedClassifier
from tests.support import tiny_pool
from tests.support.helpers import exit_code, read_csv, tiny_images, trainer, write_tiny

pytestmark = pytest.mark.trust_only

SHAPE = (1, 4, 4)
CPU = torch.device("cpu")
SURE = 1e-6
"""Failure probability of the attacked certificates: a flip is not explained by chance."""


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
    path = f"ensembles/{slug}.json"
    attacked = falsify.per_image(path, test, tiny_pool.SETTINGS, CPU)
    assert attacked.spec == ensemble_spec.read(Path(path))
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
            solved = partial(attacked.solved, y=y, indices=[index])
            w = solved(x)
            if w.min() < 0.01 or w.std() == 0:
                continue  # there is no slope at a corner, or where nothing can be solved
            inside += 1
            assert torch.autograd.gradcheck(solved, x, eps=1e-6, rtol=1e-3, atol=1e-6)
        assert inside


def test_the_command_counts_attacks_at_both_distances_and_prints_a_table(pool, capfd):
    with chdir(pool):
        words = f"ensembles/{PER_IMAGE[0]}.json --data data --out counts.csv --images 2"
        options = "--params ensembles.yaml --recipe tiny"
        assert exit_code(falsify.main, *words.split(), *options.split()) == 0
        assert [row["distance"] for row in read_csv(Path("counts.csv"))] == ["0.9", "0.99"]
    assert f"| {PER_IMAGE[0]} | 0.25 | 2 |" in capfd.readouterr().out


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
    source = Calibration([], write_tiny(tmp_path_factory.mktemp("tiny")), 0.25)
    made = quantized_members([*trained.values()], source, SHAPE)
    return dict(zip(trained, made, strict=True))


ENSEMBLES = {
    "average": SoftmaxAverage(),
    "cascade": Cascade([0.5, 0.5]),
}


def of_name(name, networks):
    """The network of a method, or an ensemble of three."""
    members = [networks[method] for method in ("advmacer", "macer", "smoothadv")]
    return Ensemble(members, ENSEMBLES[name]) if name in ENSEMBLES else networks[name]


@pytest.mark.parametrize(
    ("noise", "precision"),
    [
        ("gaussian", "float32"),
        ("grid", "float32"),
        ("gaussian", "bfloat16"),
        ("gaussian", "int8"),
    ],
)
@pytest.mark.parametrize("name", [*METHODS, *ENSEMBLES])
def test_no_attack_reaches_another_class_inside_the_radius(
    trained, in_int8, name, noise, precision
):
    """Certificates and verdicts are false with probability 1e-6, so it holds on every machine."""
    module = of_name(name, trained)
    certified = module
    if precision == "int8":
        certified = of_name(name, in_int8)
        precision = "float32"
    smoothed = SmoothedClassifier(certified, 2, 0.25, noise=noise, precision=precision)
    images = tiny_images(10, 1)
    how = AttackSettings(samples=20, restarts=1, n=5_000, alpha=SURE)
    attacked = 0
    for index in range(10):
        x = images.pixels(index)
        made = smoothed.certify(x, 100, 1_000, SURE, index=index)
        if made.radius > falsify.SMALL:
            attacked += 1
            target = Target(smoothed, module, x, made.predict, index, how, 2)
            assert not attack_image(target, made.radius).distance < made.radius
    assert attacked
