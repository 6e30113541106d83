"""The attacks beside SmoothAdv's projected gradient: DDN, the gradient-free direction, and Jeong's two."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from torch import nn

from rs.smoothing import attack
from tests.support.attacks import SHAPE, ULP, B, K, M, Ramp, cases, generator, net


def problem(seed=0, images=B, sigma=0.3):
    """Images (float64, on the grid of 256 levels), labels and noise."""
    rng = generator(seed)
    x = torch.randint(30, 226, (images, *SHAPE), generator=rng).double() / 255
    y = torch.randint(K, (images,), generator=rng)
    return x, y, sigma * torch.randn((images, M, *SHAPE), generator=rng, dtype=torch.float64)


def slow_votes(model, x, noise):
    with torch.no_grad():
        votes = [int(model((x + d)[None])[0].argmax()) for d in noise]
    return max(range(K), key=votes.count)  # the first of the largest


def slow_gradient(model, x, y, noise):
    point = x.clone().requires_grad_()
    p = sum(torch.softmax(model((point + d)[None])[0], dim=0)[y] for d in noise) / len(noise)
    (-torch.log(p)).backward()
    return point.grad.numpy()


def slow_ddn(model, x, y, noise, steps, epsilon):
    """One image, in NumPy, along the steps of Rony et al. as SmoothAdv's code has them."""
    image = x.numpy()
    u, best, r = np.zeros_like(image), np.zeros_like(image), epsilon
    r_max = best_norm = np.linalg.norm(np.maximum(image, 1 - image))
    for t in range(1, steps + 1):
        here = torch.from_numpy(image + u)
        adversarial = slow_votes(model, here, noise) != y
        if adversarial and np.linalg.norm(u) < best_norm:
            best, best_norm = u.copy(), np.linalg.norm(u)
        g = slow_gradient(model, here, y, noise)
        u = u + (0.01 + 0.495 * (1 + math.cos(math.pi * t / steps))) * g / np.linalg.norm(g)
        r = min(r * (0.95 if adversarial else 1.05), r_max)
        u = r * u / np.linalg.norm(u)
        u = np.clip(np.round((image + u) * 255) / 255, 0, 1) - image
    size = np.linalg.norm(best)
    best = best * min(1.0, epsilon / size) if size > 0 else best
    return image + np.round(best * 255) / 255


@pytest.mark.parametrize(("steps", "epsilon"), [(2, 0.8), (4, 0.8), (7, 0.8), (4, 2.5)])  # 2.5 is beyond the box
def test_ddn_agrees_with_a_slow_loop_over_its_steps(steps, epsilon):
    (x, _, noise), model = problem(images=12), net()
    y = torch.tensor([slow_votes(model, image, draws) for image, draws in zip(x, noise, strict=True)])
    y[0] = (y[0] + 1) % K  # one image is misclassified from the start
    x_hat = attack.ddn(model, x, y, noise, steps, epsilon, rng=generator())
    slow = np.array([slow_ddn(model, x[i], int(y[i]), noise[i], steps, epsilon) for i in range(len(x))])
    moved = np.abs(slow - x.numpy()).max(axis=(1, 2, 3)) > 0
    assert moved.sum() > 3  # the comparison is about images that are fooled on the way
    assert not moved[0]
    assert x_hat.numpy() == pytest.approx(slow, abs=1e-12)


def test_ddn_of_one_step_returns_the_image_because_the_last_iterate_is_never_evaluated():
    x, _, noise = problem()
    model = Ramp(torch.ones(9, dtype=torch.float64), offset=4.6)  # a step of .5 would fool it
    assert torch.equal(attack.ddn(model, x, torch.ones(B, dtype=torch.long), noise, 1, 0.5, rng=generator()), x)


def test_ddn_returns_images_clean_that_are_wrong_from_the_start_or_never_fooled():
    x, _, noise = problem()
    for offset in (-100.0, 100.0):
        model = Ramp(torch.ones(9, dtype=torch.float64), offset=offset)
        assert torch.equal(attack.ddn(model, x, torch.ones(B, dtype=torch.long), noise, 5, 0.5, rng=generator()), x)


def test_ddn_asks_the_majority_of_the_draws_and_not_their_mean():
    """Two draws of three see the label at a score of -.05, one sees the other class at 10: the mean sees that one.

    By the majority it is right at first and fooled by the first step; by the mean it would be wrong at first, and so
    come back clean.
    """
    x, model = torch.full((1, 1, 1, 1), 102 / 255, dtype=torch.float64), Ramp([1.0], offset=102 / 255 + 0.05)
    noise = torch.tensor([0.0, 0.0, 10.05], dtype=torch.float64).view(1, 3, 1, 1, 1)
    x_hat = attack.ddn(model, x, torch.tensor([1]), noise, 2, 0.2, rng=generator())
    assert x_hat.item() == pytest.approx((102 + 51) / 255)  # .2 is 51 levels; the first norm is .21, projected back


def test_ddn_moves_by_whole_grey_levels_and_out_of_the_ball_by_rounding_alone():
    x, _, noise = problem(images=20)
    model = Ramp(torch.ones(9, dtype=torch.float64), offset=4.8)
    x_hat = attack.ddn(model, x, torch.ones(20, dtype=torch.long), noise, 6, 0.3, rng=generator())
    levels = ((x_hat - x) * 255).numpy()
    moved = (x_hat - x).flatten(1).norm(dim=1)
    assert (moved > 0).any()
    assert levels == pytest.approx(np.round(levels), abs=1e-9)
    assert (moved <= 0.3 + 3 * 0.5 / 255 + 1e-12).all()  # each of the 9 pixels moves by half a level at most
    assert x_hat.min() >= 0
    assert x_hat.max() <= 1


@given(cases(), st.floats(0.001, 4.0), st.integers(0, 4))
def test_the_variant_stays_in_the_ball_and_in_the_box_too(case, epsilon, steps):
    model, x, y, noise = case
    x_hat = attack.projected_path_attack(model, x, y, noise, steps, epsilon)
    moved, ulp, d = (x_hat.double() - x.double()).flatten(1).norm(dim=1), ULP[x.dtype], x[0].numel()
    assert (moved <= epsilon * (1 + (d / 2 + 4) * ulp) + math.sqrt(d) * ulp / 4).all()
    assert x_hat.min() >= 0
    assert x_hat.max() <= 1


def test_stein_direction_agrees_with_a_loop_over_draws():
    (x, y, noise), model = problem(), net()
    direction = attack.stein_direction(model, x, y, noise)
    for i in range(B):
        total = np.zeros(SHAPE)
        for d in noise[i]:
            with torch.no_grad():
                total -= special.softmax(model((x[i] + d)[None])[0].numpy())[y[i]] * d.numpy()
        assert direction[i].numpy() == pytest.approx(total / M, rel=1e-12)


class LinearProbability(nn.Module):
    """Two classes with probabilities 1/2 + w.(x - 1/2) and the rest, for inputs near 1/2."""

    def __init__(self, w):
        super().__init__()
        self.w = w

    def forward(self, x):
        p = 0.5 + (x - 0.5).flatten(1) @ self.w
        return torch.stack([p, 1 - p], dim=1).log()


def test_stein_direction_estimates_minus_sigma_squared_times_the_gradient_of_the_probability():
    """With p = 1/2 + w.d, E[-p d_j] = -sigma^2 w_j and Var(p d_j) = sigma^2/4 + sigma^4 (|w|^2 + w_j^2)."""
    sigma, draws, d = 0.5, 100_000, 9
    w = torch.linspace(-0.05, 0.05, d, dtype=torch.float64)  # |w| sigma = .05: p leaves [0, 1] at 10 deviations
    x = torch.full((1, *SHAPE), 0.5, dtype=torch.float64)
    noise = sigma * torch.randn((1, draws, *SHAPE), generator=generator(), dtype=torch.float64)
    estimate = attack.stein_direction(LinearProbability(w), x, torch.tensor([0]), noise).flatten()
    error = (sigma**2 / 4 + sigma**4 * (w @ w + w**2)).div(draws).sqrt()
    z = (estimate + sigma**2 * w) / error
    assert z.abs().max() < stats.norm.isf(1e-6 / (2 * d))
    assert (sigma**2 * w / error).abs().max() > 2 * stats.norm.isf(1e-6 / (2 * d))  # the opposite sign would be seen


def test_mixing_path_has_every_iterate_from_the_image_on_and_no_ball():
    x, _, noise = problem()
    w = torch.arange(1.0, 10.0, dtype=torch.float64)
    path = attack.mixing_path(Ramp(w), x, torch.ones(B, dtype=torch.long), noise, 3, 0.05)
    assert len(path) == 4
    for t, point in enumerate(path):  # 1e-8 beside the norm of a gradient of about 1 shortens each step by 1e-8
        assert torch.allclose(point, x + 0.05 * t * (w / w.norm()).view(SHAPE), rtol=0, atol=1e-8)


@given(cases(), st.floats(0.01, 4.0), st.integers(1, 4))
def test_mixing_path_stays_in_the_box(case, step_size, steps):
    model, x, y, noise = case
    path = attack.mixing_path(model, x, y, noise, steps, step_size)
    assert len(path) == steps + 1
    assert torch.equal(path[0], x)
    assert all(point.min() >= 0 and point.max() <= 1 for point in path)
