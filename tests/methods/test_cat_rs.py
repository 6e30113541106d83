"""What the parts of CAT-RS are; test_losses.py has its loss."""

import pytest
import torch
from scipy import stats
from torch import nn

from rs import params
from rs.methods import cat_rs
from rs.smoothing.attack import forward
from rs.smoothing.noise import draw
from rs.smoothing.soft import mean_cross_entropy
from tests.support.helpers import method_parameters, soft_targets

Y = torch.arange(6) % 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def method(**changes):
    values = method_parameters("cat-rs", draws=4, steps=2) | changes
    return params.validate(cat_rs.CatRs, values, "cat-rs")


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double().train()


def images():
    return torch.rand(6, 1, 4, 4, generator=generator(1), dtype=torch.float64)


def step(**changes):
    targets = soft_targets(Y, 3).double()
    return method(**changes).loss(network(), images(), Y, sigma=0.5, rng=generator(), epoch=0, targets=targets)


def test_the_number_of_used_draws_is_binomial_and_1_at_least():
    confidence = torch.full((20_000,), 0.5)
    used = cat_rs.used_draws(confidence, 4, generator())
    expected = stats.binom.pmf([0, 1, 2, 3, 4], 4, 0.5) * 20_000
    observed = used.bincount(minlength=5)[1:].tolist()
    assert stats.chisquare(observed, [expected[0] + expected[1], *expected[2:]]).pvalue > 1e-6
    sure = cat_rs.used_draws(torch.tensor([0.0, 1.0]).repeat(1000), 4, generator())
    assert sure.view(-1, 2).unique(dim=0).tolist() == [[1, 4]]


def test_with_all_draws_used_and_lam_0_it_is_the_mean_cross_entropy(monkeypatch):
    monkeypatch.setattr(cat_rs, "used_draws", lambda confidence, draws, rng: torch.full((6,), draws))
    noisy = forward(network(), images(), draw(images(), 4, 0.5, generator()))
    found = step(lam=0.0)
    assert found.loss.item() == pytest.approx(mean_cross_entropy(noisy, Y).item(), rel=1e-12)
    assert found.robustness == 0


@pytest.mark.parametrize(("used", "is_there"), [(3, False), (4, True)])
def test_only_images_whose_draws_are_all_used_have_a_worst_case_term(monkeypatch, used, is_there):
    monkeypatch.setattr(cat_rs, "used_draws", lambda confidence, draws, rng: torch.full((6,), used))
    assert (step().robustness > 0) == is_there


def test_the_attack_keeps_the_mean_of_each_draw_and_moves_it():
    noise = draw(images(), 4, 0.5, generator())
    moved = cat_rs.kl_attack(network(), images(), noise, soft_targets(Y, 3).double(), 3, 0.5)
    torch.testing.assert_close(moved.mean(dim=(2, 3, 4)), noise.mean(dim=(2, 3, 4)))
    assert not (moved == noise).any()
