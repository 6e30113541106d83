"""Attacks on certificates: the boundary where it is known, false certificates, rows that resume."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from rs.certification import attack_certificates
from rs.certification.attack_certificates import MARGIN, AttackSettings, Target, attack_image
from rs.certification.load import load
from rs.command_line.attack import main as attack
from rs.command_line.certify import main as certify
from rs.command_line.exchange import merge_rows as merge
from rs.command_line.show import compare_files as compare
from rs.command_line.show import report_files as report
from rs.command_line.show import show_files as show
from rs.ensemble.base import Ensemble
from rs.ensemble.rules import HardVote
from rs.errors import InputWarning
from rs.reporting.attacks import compare_attacks, summarize_attacks
from rs.smoothing.attack import objective
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.gradients import LogProbabilities, vote_gradient
from rs.smoothing.noise import certification_noise
from rs.storage import attack_rows, files
from rs.storage.attack_rows import ATTEMPTS
from rs.storage.files import read_json
from tests.support.helpers import (
    ended,
    exit_code,
    generator,
    refuses,
    update_json,
    write_params,
    write_photos,
)

SIGMA = 0.25
SURE = 1e-9
"""Failure probability of an upper bound here: a found radius below the boundary is a fault."""

LINEAR = "tests.support.helpers:Linear"  # class 1 where the first pixel exceeds 0.5


class HalfSpace(nn.Module):
    """Class 1 where w x > t, |w| = 1, else class 0: the boundary is |w x - t| away."""

    def __init__(self, distance=0.0):
        super().__init__()
        w = torch.arange(1.0, 17.0)
        self.register_buffer("w", w / w.norm())
        self.threshold = float(0.5 * self.w.sum()) - distance

    def forward(self, x):
        lead = x.flatten(1) @ self.w - self.threshold
        return torch.stack([-lead, lead], dim=1)


def target(distance, noise, **settings):
    base = HalfSpace(distance)
    smoothed = SmoothedClassifier(base, 2, SIGMA, noise=noise)
    x = torch.full((1, 4, 4), 128 / 255)
    distance += float((128 / 255 - 0.5) * base.w.sum())
    how = AttackSettings(alpha=SURE, **settings)
    return Target(smoothed, base, x, 1, 0, how, 2), distance


@pytest.mark.parametrize("noise", ["gaussian", "grid"])
@pytest.mark.parametrize("claimed", [0.5, 1.0, 1.3])
def test_the_known_boundary_is_found_and_never_less(noise, claimed):
    """Votes are of another class beyond the boundary alone, whatever radius was certified.

    It is found before the third of the points that are tested beyond it.
    """
    attacked, distance = target(0.4, noise)
    found = attack_image(attacked, claimed * distance)
    deviation = SIGMA * math.sqrt(math.pi / 2 / attacked.settings.n)
    assert distance < found.distance < distance + 1.6 * MARGIN * deviation


def test_votes_alone_find_the_normal_of_the_boundary():
    """The mean of the signs times the noise has 2 phi(z) along the normal, at z = distance / sigma.

    The other 15 axes have at most the noise of 2,000 samples each, of a chi-squared sum.
    """
    base = HalfSpace(0.1)
    smoothed = SmoothedClassifier(base, 2, SIGMA, noise="gaussian")
    x = torch.full((1, 4, 4), 0.5)
    copies, votes = smoothed.samples(x, 2_000, seed=0, index=0)
    slope = vote_gradient(copies, torch.tensor(votes), x, 0, 1).flatten()
    along = 2 * stats.norm.pdf(0.1 / SIGMA) - stats.norm.isf(SURE) / math.sqrt(2_000)
    across = math.sqrt(stats.chi2.isf(SURE, 15) / 2_000)
    assert -slope @ base.w / slope.norm() > along / math.hypot(along, across)


@pytest.mark.parametrize(("share", "is_confirmed"), [(1, False), (ATTEMPTS, True)])
def test_a_point_is_confirmed_at_its_share_of_alpha_only(monkeypatch, share, is_confirmed):
    """The fewest votes that PREDICT takes at alpha are too few at a third of it."""
    attacked, _ = target(0.4, "gaussian")
    n = attacked.settings.n
    votes = int(stats.binom.isf(SURE / share / 2, n, 0.5)) + 1
    counts = np.array([votes, n - votes])
    monkeypatch.setattr(attacked.smoothed, "votes", lambda *_, **__: counts)
    found = attacked.confirm(attacked.smoothed.base.w.view(1, 4, 4), 0.4, "votes")
    assert np.isnan(found.distance) == (not is_confirmed)
    assert found.counts == (tuple(counts) if is_confirmed else ())


# --- gradients


def test_loss_and_gradient_are_those_of_smoothadv_on_the_keyed_noise():
    base = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    smoothed = SmoothedClassifier(base, 3, SIGMA)
    x = torch.rand(1, 4, 4, generator=generator())
    loss, gradient = smoothed.loss_and_gradient(x, 2, 7, seed=5)
    key = LogProbabilities(base, SIGMA, 7, 5).key
    noise = certification_noise(range(7), x.shape, SIGMA, *key, device="cpu")
    point = x.clone().requires_grad_()
    expected = objective(base(point + noise)[None], torch.tensor([2]))
    torch.testing.assert_close(torch.tensor([loss]), expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), point)[0])
    assert not torch.equal(smoothed.loss_and_gradient(x, 2, 7, seed=6)[1], gradient)
    for label in (2.0, torch.tensor(2)):
        assert smoothed.loss_and_gradient(x, label, 7, seed=5)[0] == loss
    values = smoothed.as_module(7, seed=5)(torch.stack([x, x]))[:, 2]
    torch.testing.assert_close(-values.detach(), torch.tensor([loss, loss]))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_the_same_in_modes_without_gradients(mode):
    base = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    x = torch.rand(1, 4, 4, generator=generator())
    _, expected = SmoothedClassifier(base, 3, SIGMA).loss_and_gradient(x, 2, 7)
    with mode():
        made_here = x * 1.0
        _, gradient = SmoothedClassifier(base, 3, SIGMA).loss_and_gradient(made_here, 2, 7)
    assert torch.equal(gradient, expected)
    _, gradient = SmoothedClassifier(base, 3, SIGMA).loss_and_gradient(made_here, 2, 7)
    assert torch.equal(gradient, expected)


class Unused(nn.Linear):
    """Its logits carry the gradient of its weights, but none of its input."""

    def forward(self, x):
        return super().forward(x.detach().flatten(1))


def without_torch(x):
    return torch.from_numpy(x.numpy()).flatten(1)


@pytest.mark.parametrize("base", [lambda x: x.detach().flatten(1), Unused(16, 16), without_torch])
def test_a_classifier_without_a_gradient_is_refused(base):
    smoothed = SmoothedClassifier(base, 16, SIGMA)
    with refuses("differentiable"):
        smoothed.loss_and_gradient(torch.zeros(1, 4, 4), 0, 3)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0)])
def test_attack_libraries_must_begin_within_the_bounds(bounds):
    """Normalized images, or pixels of 0 to 255, would be attacked with too little noise."""
    smoothed = SmoothedClassifier(nn.Flatten(), 4, SIGMA, bounds=bounds)
    x = torch.rand(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    for wrong in (x * 255, (x * 255).byte(), 2 * x - 1.5):
        with refuses("images must hold .*floating-point"):
            smoothed.as_module(3)(wrong)
    module = smoothed.as_module(3)
    inside = module(x)
    assert torch.equal(module(x), inside)
    assert module(x * 255).isfinite().all()  # a later point of an attack


def test_attack_libraries_get_a_fixed_function_that_takes_float64():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 3)).train()
    module = SmoothedClassifier(network, 3, SIGMA).as_module(5)
    x = torch.rand(2, 1, 2, 2, generator=generator(), dtype=torch.float64)
    assert not module.training
    assert torch.equal(module(x), module(x.float()))
    assert network.training


def test_probabilities_to_attack_give_a_warning():
    smoothed = SmoothedClassifier(nn.Sequential(nn.Flatten(), nn.Softmax(dim=1)), 4, SIGMA)
    with pytest.warns(InputWarning, match="leave out the softmax"):
        smoothed.as_module(3)(torch.rand(1, 1, 2, 2))


# --- the command


@pytest.fixture
def certified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_params(Path("params.yaml"))
    pixels = np.full((6, 4, 4, 1), 128, np.uint8)
    pixels[:, 0, 0] = np.array([200, 180, 220, 40, 60, 160])[:, None]
    write_photos(Path("photos"), pixels, np.array([1, 1, 1, 0, 0, 1]))
    words = [LINEAR, "--images", "photos", "--sigma", "0.25", "--device", "cpu", "--out"]
    assert exit_code(certify, *words, "rows.tsv") == 0
    return ["rows.tsv", "--model", LINEAR, "--images", "photos", "--device", "cpu", "--out"]


def test_the_command_finds_the_boundary_of_each_image(certified, capfd):
    """Linear has its boundary at the first pixel .5: |p - .5| from an image with pixel p."""
    code, _, err = ended(capfd, attack, *certified, "attacks.tsv")
    assert (code, "FALSE" in err) == (0, False)
    rows = attack_rows.read_attacks(Path("attacks.tsv"))
    about = summarize_attacks(Path("attacks.tsv"))
    pixels = np.array([40, 60, 200, 180, 220, 160]) / 255  # in the order of the classes
    assert (rows["found"] >= abs(pixels[rows["idx"]] - 0.5)).all()
    code, out, _ = ended(capfd, show, "attacks.tsv")
    assert (code, f"median {about['median']:.2f}" in out) == (0, True)
    code, out, _ = ended(capfd, compare, "attacks.tsv", "attacks.tsv")
    assert (code, out.strip().endswith("tie")) == (0, True)
    assert exit_code(report, "rows.tsv", "attacks.tsv", "--out", "page.html") == 0
    assert "rows, attacked" in Path("page.html").read_text()


def test_shares_and_an_interrupted_attack_give_the_same_rows(certified, capfd, monkeypatch):
    assert exit_code(attack, *certified, "whole.tsv") == 0
    for share in (1, 2):
        assert exit_code(attack, *certified, f"{share}.tsv", "--share", f"{share}/2") == 0
    assert exit_code(merge, "1.tsv", "2.tsv", "--out", "merged.tsv") == 0

    def stop_at_the_third(one, radius):
        if one.index == 2:
            raise KeyboardInterrupt
        return attack_image(one, radius)

    with monkeypatch.context() as patched:
        patched.setattr(attack_certificates, "attack_image", stop_at_the_third)
        assert exit_code(attack, *certified, "again.tsv") == 130
    code, _, err = ended(capfd, attack, *certified, "again.tsv")
    assert (code, "continuing after 2" in err) == (0, True)
    for name in ("merged", "again"):
        for suffix in (".tsv", ".json"):
            assert Path(name + suffix).read_bytes() == Path("whole" + suffix).read_bytes()


def test_an_attack_inside_a_radius_is_in_capitals(certified, capfd, monkeypatch):
    """A radius that reaches beyond the boundary is found to be false."""
    read = attack_certificates._certified
    monkeypatch.setattr(
        attack_certificates, "_certified", lambda rows: read(rows).assign(radius=0.9)
    )
    code, _, err = ended(capfd, attack, *certified, "attacks.tsv")
    assert (code, err.count("FALSE CERTIFICATE")) == (0, 6)
    assert len(summarize_attacks(Path("attacks.tsv"))["false_certificates"]) == 6


@pytest.mark.parametrize("key", ["images", "classifier"])
def test_rows_of_another_model_or_of_other_images_are_refused(certified, capfd, key):
    update_json(Path("rows.json"), **{key: "0" * 64})
    code, _, err = ended(capfd, attack, *certified, "attacks.tsv")
    assert (code, f"but {key} is" in err) == (2, True)


def test_an_attack_draws_the_noise_of_the_rows(certified):
    for noise in ("grid", "gaussian"):
        update_json(Path("rows.json"), noise=noise)
        assert exit_code(attack, *certified, f"{noise}.tsv", "--limit", 1) == 0
    assert Path("grid.tsv").read_bytes() != Path("gaussian.tsv").read_bytes()


def test_attacks_state_the_precision_that_the_rows_certify(certified):
    """A folded network has weights in bfloat16, and runs without autocast."""
    images = certified[3:-1]
    as_run = ["--sigma", "0.25", "--precision", "bfloat16", "--engine", "folded"]
    assert exit_code(certify, LINEAR, *images, *as_run, "--out", "rounded.tsv") == 0
    assert exit_code(attack, "rounded.tsv", *certified[1:], "attacks.tsv", "--limit", 1) == 0
    assert read_json(Path("attacks.json"))["precision"] == "bfloat16"


def row(**changes):
    values = {
        "idx": 0,
        "predict": 1,
        "radius": 0.3,
        "found": 0.4,
        "attack": "votes",
        "samples": 100,
        "n": 1_000,
        "alpha": 1e-3,
        "seed": 0,
        "classes": 3,
        "counts": [600, 400, 0],
    }
    return values | changes


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"counts": [540, 460, 0]}, "confirm"),  # not significant: 2.5 standard deviations
        ({"counts": [400, 600, 0]}, "confirm"),  # for the certified class
        ({"counts": [600, 300, 0]}, "confirm"),  # not n votes
        ({"counts": [360, 0, 0, 640]}, "confirm"),  # of three classes
        ({"found": float("nan")}, "attack"),
    ],
)
def test_votes_that_do_not_confirm_a_row_are_refused(tmp_path, changes, rule):
    path = tmp_path / "attacks.tsv"
    path.write_text(attack_rows.attack_rows_text([row()]))
    assert len(attack_rows.read_attacks(path)) == 1
    path.write_text(attack_rows.attack_rows_text([row(**changes)]))
    with refuses(rule):
        attack_rows.read_attacks(path)


def test_gaps_are_compared_in_pairs(tmp_path):
    """Differences 0.4 / 0.3 - 0.5 / 0.3 = -1/3 of both images have no spread."""
    for name, found in (("a", 0.4), ("b", 0.5)):
        rows = [row(idx=index, found=found) for index in (0, 1)]
        (tmp_path / f"{name}.tsv").write_text(attack_rows.attack_rows_text(rows))
    found = compare_attacks(tmp_path / "a.tsv", tmp_path / "b.tsv")
    assert found["difference"] == pytest.approx(-1 / 3)
    assert not found["tie"]
    for name in ("a", "b"):
        files.write_json(tmp_path / f"{name}.json", {"images": name})
    with refuses("must be attacks on the same images"):
        compare_attacks(tmp_path / "a.tsv", tmp_path / "b.tsv")


def test_the_gradient_of_an_ensemble_is_of_its_members():
    members = [nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) for _ in range(2)]
    ensemble = Ensemble(members, HardVote())
    _, gradient = load(ensemble).smooth(SIGMA).loss_and_gradient(torch.zeros(1, 4, 4), 0, 5)
    assert gradient.abs().max() > 0
