import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rs.smoothing import attack
from tests.support.helpers import generator
from tests.support.networks import mlp

BATCH = 4
DRAWS = 3
CLASSES = 3
SHAPE = (1, 3, 3)
ONES = torch.ones(BATCH, dtype=torch.long)


class Ramp(nn.Module):
    """Two classes with the logits (w.x, 0), so that attacks on label 1 move along +w.

    ``seen`` holds every batch that the network was given.
    """

    def __init__(self, w):
        super().__init__()
        self.w = torch.as_tensor(w)
        self.seen = []

    def forward(self, x):
        self.seen.append(x.detach().clone())
        score = x.flatten(1) @ self.w.to(x.dtype)
        return torch.stack([score, torch.zeros_like(score)], dim=1)


@st.composite
def cases(draw):
    """A network, images with about half of their pixels on the faces of the box, labels and
    noise.
    """
    small = st.integers(1, 4)
    images = draw(small)
    draws = draw(small)
    channels = draw(small)
    side = draw(small)
    shape = (channels, side, side)
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    rng = generator(draw(st.integers(0, 10**6)))

    x = torch.rand((images, *shape), generator=rng, dtype=dtype)
    is_inside = torch.rand(x.shape, generator=rng) > 0.5
    x = x.where(is_inside, x.round())
    noise = 0.5 * torch.randn((images, draws, *shape), generator=rng, dtype=dtype)
    scale = draw(st.sampled_from([0.0, 1.0, 1e3]))
    w = scale * torch.randn(channels * side**2, generator=rng, dtype=dtype)
    labels = torch.randint(2, (images,), generator=rng)
    return Ramp(w), x, labels, noise


def problem():
    """Images (float64, away from the faces of the box), labels and noise."""
    rng = generator()
    x = 0.2 + 0.6 * torch.rand((BATCH, *SHAPE), generator=rng, dtype=torch.float64)
    labels = torch.randint(CLASSES, (BATCH,), generator=rng)
    noise = 0.5 * torch.randn((BATCH, DRAWS, *SHAPE), generator=rng, dtype=torch.float64)
    return x, labels, noise


@pytest.mark.parametrize(("beta", "draws"), [(1.0, DRAWS), (4.0, DRAWS), (2.0, 1)])
def test_gradient_is_of_the_negative_log_of_the_mean_probability_over_draws(beta, draws):
    x, labels, noise = problem()
    model = mlp(9, CLASSES).double()
    point = x.clone().requires_grad_()
    probabilities = 0.0
    for draw in range(draws):
        logits = model(point + noise[:, draw])
        probabilities += (beta * logits).softmax(dim=1) / draws
    loss = -probabilities[torch.arange(BATCH), labels].log().sum()
    (expected,) = torch.autograd.grad(loss, point)

    tempered = attack.Tempered(model, beta)
    gradient = attack.gradient(tempered, x, labels, noise[:, :draws])

    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("run", [attack.pgd, attack.projected_path_attack])
@given(case=cases(), epsilon=st.floats(0.001, 4.0), steps=st.integers(0, 5))
def test_an_attack_stays_in_the_ball_and_exactly_in_the_box(run, case, epsilon, steps):
    model, x, labels, noise = case

    x_hat = run(model, x, labels, noise, steps, epsilon)

    distance = (x_hat.double() - x.double()).flatten(1).norm(dim=1)
    precision = torch.finfo(x.dtype).eps
    pixels = x[0].numel()
    # The norm of so many squares, the quotient and the product are rounded ...
    scale = 1 + (pixels / 2 + 4) * precision
    # ... and then each pixel of the sum x + u <= 1, by half a unit in the last place.
    error_of_sum = math.sqrt(pixels) * precision / 4
    assert (distance <= epsilon * scale + error_of_sum).all()
    assert x_hat.min() >= 0
    assert x_hat.max() <= 1
    assert x_hat.dtype == x.dtype


@pytest.mark.parametrize("run", [attack.pgd, attack.projected_path_attack])
def test_step_size_is_twice_epsilon_over_the_number_of_steps(run):
    x, _, noise = problem()
    model = Ramp(torch.ones(9, dtype=torch.float64))
    run(model, x, ONES, noise, 4, 0.1)
    for seen, distance in zip(model.seen, (0.0, 0.05, 0.1, 0.1), strict=True):
        points = seen.unflatten(0, (BATCH, DRAWS)) - noise
        distances = (points[:, 0] - x).flatten(1).norm(dim=1)
        assert distances.tolist() == pytest.approx([distance] * BATCH, abs=1e-8)


def test_box_comes_before_the_ball_in_pgd_and_after_it_in_the_variant():
    """By hand: x = (.9, .5), direction (.6, .8), epsilon .3, one step of .6: x + u = (1.26, .98).

    Box, u = (.1, .48), then ball: u * .3 / ||u||. Ball, u = (.18, .24), then box: x + u = (1, .74).
    """
    x = torch.tensor([0.9, 0.5], dtype=torch.float64).view(1, 1, 1, 2)
    noise = torch.zeros((1, 2, 1, 1, 2), dtype=torch.float64)
    arguments = (Ramp([3.0, 4.0]), x, torch.tensor([1]), noise, 1, 0.3)

    box_then_ball = attack.pgd(*arguments).flatten().tolist()
    ball_then_box = attack.projected_path_attack(*arguments).flatten().tolist()

    shrinkage = 0.3 / math.hypot(0.1, 0.48)
    assert box_then_ball == pytest.approx(
        [0.9 + 0.1 * shrinkage, 0.5 + 0.48 * shrinkage], rel=1e-12
    )
    # The unit gradient of the variant is g / (||g|| + 1e-8).
    assert ball_then_box == pytest.approx([1.0, 0.74], rel=1e-7)


def end_of_mixing_path(*arguments):
    return attack.mixing_path(*arguments)[-1]


@pytest.mark.parametrize(
    ("run", "size"),
    [(attack.pgd, 0.5), (end_of_mixing_path, 0.2), (attack.projected_path_attack, 0.5)],
)
def test_weights_get_no_gradient_and_the_result_carries_none(run, size):
    x, labels, noise = problem()
    model = mlp(9, CLASSES).double()

    with torch.no_grad():
        expected = run(model, x, labels, noise, 3, size)
    x_hat = run(model, x.requires_grad_(), labels, noise, 3, size)

    for weight in model.parameters():
        assert weight.grad is None
        assert weight.requires_grad
    assert x.grad is None
    assert not x_hat.requires_grad
    assert torch.equal(x_hat, expected)


def test_unit_divides_by_the_norm_and_replaces_only_exact_zeros_by_raw_normal_numbers():
    g = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-15, -4e-15]]).view(3, 1, 1, 2)
    unit = attack.unit(g, generator(5)).view(3, 2)
    directions = torch.tensor([[0.6, 0.8], [0.6, -0.8]])
    normal_numbers = torch.randn((3, 2), generator=generator(5))
    assert torch.allclose(unit[[0, 2]], directions, rtol=1e-6, atol=0)
    assert torch.equal(unit[1], normal_numbers[1])


# ---------------------------------------------------- Jeong's two attacks


def test_mixing_path_has_every_iterate_from_the_image_on_and_no_ball():
    x, _, noise = problem()
    w = torch.arange(1.0, 10.0, dtype=torch.float64)
    path = attack.mixing_path(Ramp(w), x, ONES, noise, 3, 0.05)
    step = 0.05 * (w / w.norm()).view(SHAPE)
    assert len(path) == 4
    for number, point in enumerate(path):
        # Adding 1e-8 to the norm of a gradient of about 1 shortens each step by 1e-8.
        assert torch.allclose(point, x + number * step, rtol=0, atol=1e-8)


def test_with_one_draw_the_gradient_survives_any_confidence_in_a_wrong_class():
    x = torch.full((1, 1, 1, 2), 0.5)
    noise = torch.zeros(1, 1, 1, 1, 2)
    x_hat = attack.pgd(Ramp([3e3, 4e3]), x, torch.tensor([1]), noise, 1, 0.1)
    assert (x_hat - x).flatten().tolist() == pytest.approx([0.06, 0.08], rel=1e-5)
