"""The example of a verifier of VERONA, in VERONA's own search for the largest epsilon."""

import importlib.util
import warnings
from types import SimpleNamespace

import pytest
import torch

from tests.support.helpers import ROOT, Linear

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it misses
    ada_verona = pytest.importorskip("ada_verona", reason="no ada-verona here: see the example")


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("verona_example", ROOT / "examples/verona.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def context(tmp_path, level, label):
    wrapped = ada_verona.TorchModelWrapper(Linear(), (1, 1, 2, 2))
    network = SimpleNamespace(load_pytorch_model=lambda: wrapped, name="linear", path=tmp_path)
    point = ada_verona.DataPoint(f"{level}", label, torch.full((1, 2, 2), level))
    one_to_any = ada_verona.One2AnyPropertyGenerator()
    return ada_verona.VerificationContext(
        network, point, tmp_path / f"{level}", one_to_any, save_epsilon_results=False
    )


def test_the_largest_epsilon_is_the_largest_within_the_radius(tmp_path, example):
    """The boundary is at distance 0.4, up to which smoothing certifies, except at random."""
    verifier = example.SmoothingModule(sigma=0.25, alpha=1e-9)
    bright = context(tmp_path, 0.9, 1)
    radius = verifier.certificate(bright).radius
    assert 0.3 < radius <= 0.4
    epsilons = [0.05, 0.1, 0.2, radius, 0.41, 1.0]
    search = ada_verona.BinarySearchEpsilonValueEstimator(epsilons, verifier)
    found = search.compute_epsilon_value(bright)
    assert found.epsilon == radius
    again = example.SmoothingModule(sigma=0.25, alpha=1e-9)
    assert again.certificate(bright) == verifier.certificate(bright)  # the one that was kept


@pytest.mark.parametrize(("level", "label", "result"), [(0.1, 1, "SAT"), (0.5, 1, "TIMEOUT")])
def test_no_robustness_is_claimed_without_a_certificate(tmp_path, example, level, label, result):
    outcome = example.SmoothingModule(sigma=0.25).verify(context(tmp_path, level, label), 0.01)
    assert outcome.result == result
