"""The attacks beside SmoothAdv's projected gradient: DDN, the gradient-free direction, and Jeong's two."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from rs.smoothing import attack
from tests.support.attacks import SHAPE, B, K, M, Ramp, cases, generator, net


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


def test_stein_direction_agrees_with_a_loop_over_draws():
    (x, y, noise), model = problem(), net()
    direction = attack.stein_direction(model, x, y, noise)
    for i in range(B):
        total = np.zeros(SHAPE)
        for d in noise[i]:
            with torch.no_grad():
                total -= special.softmax(model((x[i] + d)[None])[0].numpy())[y[i]] * d.numpy()
        assert direction[i].numpy() == pytest.approx(total / M, rel=1e-12)


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
