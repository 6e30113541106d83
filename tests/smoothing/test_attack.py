import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rs.smoothing import attack
from tests.support.helpers import generator
from tests.support.networks import mlp

B, M, K, SHAPE = 4, 3, 3, (1, 3, 3)
ULP = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


class Ramp(nn.Module):
    """Two classes with logits (w.x, 0): label 1 is lost along +w. Remembers every batch it is
    given.
    """

    def __init__(self, w):
        super().__init__()
        self.w, self.seen = torch.as_tensor(w), []

    def forward(self, x):
        self.seen.append(x.detach().clone())
        score = x.flatten(1) @ self.w.to(x.dtype)
        return torch.stack([score, torch.zeros_like(score)], dim=1)


@st.composite
def cases(draw):
    """A network, images with many pixels on the faces of the box, labels and noise."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    images, draws, channels, side = draw(st.tuples(*[st.integers(1, 4)] * 4))
    rng = generator(draw(st.integers(0, 10**6)))
    shape = (channels, side, side)
    x = torch.rand((images, *shape), generator=rng, dtype=dtype)
    x = x.where(torch.rand(x.shape, generator=rng) > 0.5, x.round())
    noise = 0.5 * torch.randn((images, draws, *shape), generator=rng, dtype=dtype)
    scale = draw(st.sampled_from([0.0, 1.0, 1e3]))
    w = scale * torch.randn(channels * side**2, generator=rng, dtype=dtype)
    return Ramp(w), x, torch.randint(2, (images,), generator=rng), noise


def problem():
    """Images (float64, away from the box), labels and noise."""
    rng = generator()
    x = 0.2 + 0.6 * torch.rand((B, *SHAPE), generator=rng, dtype=torch.float64)
    y = torch.randint(K, (B,), generator=rng)
    return x, y, 0.5 * torch.randn((B, M, *SHAPE), generator=rng, dtype=torch.float64)


@pytest.mark.parametrize(("beta", "draws"), [(1.0, M), (4.0, M), (2.0, 1)])
def test_gradient_is_that_of_minus_the_log_of_the_mean_over_draws(beta, draws):
    x, y, noise = problem()
    model = mlp(9, K).double()
    point = x.clone().requires_grad_()
    probabilities = 0.0
    for draw in range(draws):
        probabilities += (beta * model(point + noise[:, draw])).softmax(dim=1) / draws
    loss = -probabilities[torch.arange(B), y].log().sum()
    (expected,) = torch.autograd.grad(loss, point)
    found = attack.gradient(attack.Tempered(model, beta), x, y, noise[:, :draws])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("run", [attack.pgd, attack.projected_path_attack])
@given(case=cases(), epsilon=st.floats(0.001, 4.0), steps=st.integers(0, 5))
def test_an_attack_stays_in_the_ball_and_exactly_in_the_box(run, case, epsilon, steps):
    model, x, y, noise = case
    x_hat = run(model, x, y, noise, steps, epsilon)
    moved, ulp, d = (x_hat.double() - x.double()).flatten(1).norm(dim=1), ULP[x.dtype], x[0].numel()
    # relative error of a norm of d squares, of the quotient and the product; then half an ulp of x
    # + u <= 1 per pixel
    assert (moved <= epsilon * (1 + (d / 2 + 4) * ulp) + math.sqrt(d) * ulp / 4).all()
    assert x_hat.min() >= 0
    assert x_hat.max() <= 1
    assert x_hat.dtype == x.dtype


@pytest.mark.parametrize("run", [attack.pgd, attack.projected_path_attack])
def test_step_size_is_twice_epsilon_over_the_number_of_steps(run):
    x, _, noise = problem()
    model = Ramp(torch.ones(9, dtype=torch.float64))
    run(model, x, torch.ones(B, dtype=torch.long), noise, 4, 0.1)
    for seen, length in zip(model.seen, (0.0, 0.05, 0.1, 0.1), strict=True):
        moved = (seen.unflatten(0, (B, M)) - noise)[:, 0] - x
        assert moved.flatten(1).norm(dim=1).tolist() == pytest.approx([length] * B, abs=1e-8)


def test_box_comes_before_the_ball_in_pgd_and_after_it_in_the_variant():
    """By hand: x = (.9, .5), direction (.6, .8), epsilon .3, one step of .6: x + u = (1.26, .98).

    Box, u = (.1, .48), then ball: u * .3 / ||u||. Ball, u = (.18, .24), then box: x + u = (1, .74).
    """
    x = torch.tensor([0.9, 0.5], dtype=torch.float64).view(1, 1, 1, 2)
    noise = torch.zeros((1, 2, 1, 1, 2), dtype=torch.float64)
    how = (Ramp([3.0, 4.0]), x, torch.tensor([1]), noise, 1, 0.3)
    short = 0.3 / math.hypot(0.1, 0.48)
    box_then_ball = attack.pgd(*how).flatten().tolist()
    ball_then_box = attack.projected_path_attack(*how).flatten().tolist()
    assert box_then_ball == pytest.approx([0.9 + 0.1 * short, 0.5 + 0.48 * short], rel=1e-12)
    # its unit gradient is g / (||g|| + 1e-8)
    assert ball_then_box == pytest.approx([1.0, 0.74], rel=1e-7)


ATTACKS = {
    "pgd": lambda model, x, y, noise: attack.pgd(model, x, y, noise, 3, 0.5),
    "mixing_path": lambda model, x, y, noise: attack.mixing_path(model, x, y, noise, 3, 0.2)[-1],
    "projected_path_attack": lambda model, x, y, noise: attack.projected_path_attack(
        model, x, y, noise, 3, 0.5
    ),
}
every_attack = pytest.mark.parametrize("run", ATTACKS.values(), ids=ATTACKS.keys())


@every_attack
def test_weights_get_no_gradient_and_the_result_carries_none(run):
    (x, y, noise), model = problem(), mlp(9, K).double()
    with torch.no_grad():
        inside = run(model, x, y, noise)
    x_hat = run(model, x.requires_grad_(), y, noise)
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
    assert x.grad is None
    assert not x_hat.requires_grad
    assert torch.equal(x_hat, inside)


def test_unit_divides_by_the_norm_and_replaces_only_exact_zeros_by_raw_normal_numbers():
    g = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-15, -4e-15]]).view(3, 1, 1, 2)
    unit = attack.unit(g, generator(5)).view(3, 2)
    expected = torch.randn((3, 2), generator=generator(5))
    assert torch.allclose(unit[[0, 2]], torch.tensor([[0.6, 0.8], [0.6, -0.8]]), rtol=1e-6, atol=0)
    assert torch.equal(unit[1], expected[1])


# ---------------------------------------------------- Jeong's two attacks


def test_mixing_path_has_every_iterate_from_the_image_on_and_no_ball():
    x, _, noise = problem()
    w = torch.arange(1.0, 10.0, dtype=torch.float64)
    path = attack.mixing_path(Ramp(w), x, torch.ones(B, dtype=torch.long), noise, 3, 0.05)
    assert len(path) == 4
    step = 0.05 * (w / w.norm()).view(SHAPE)
    for t, point in enumerate(path):
        # 1e-8 beside the norm of a gradient of about 1 shortens each step by 1e-8
        assert torch.allclose(point, x + t * step, rtol=0, atol=1e-8)


def test_with_one_draw_the_gradient_survives_any_confidence_in_a_wrong_class():
    x = torch.full((1, 1, 1, 2), 0.5)
    model = Ramp([3e3, 4e3])
    x_hat = attack.pgd(model, x, torch.tensor([1]), torch.zeros(1, 1, 1, 1, 2), 1, 0.1)
    assert (x_hat - x).flatten().tolist() == pytest.approx([0.06, 0.08], rel=1e-5)
