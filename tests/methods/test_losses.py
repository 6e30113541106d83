"""What each method computes: its loss and gradient against a slow form, one image and one draw at a
time, in float64.

A slow form is a function of ``f`` (one image -> logits), of the ``frozen`` model that attacks see,
of images, labels, stream and epoch. Gradients are compared with its finite differences, in which
only ``f`` moves: points that an attack found are constants.
"""

import copy
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rs import params
from rs.methods import method_class
from rs.methods.base import NeedsTargets
from rs.smoothing import attack
from tests.support.helpers import generator
from tests.support.networks import mlp

B = 6
K = 3
SHAPE = (1, 3, 3)
SIGMA = 0.4
quantile = NormalDist().inv_cdf


def normal(rng, draws):
    return SIGMA * torch.randn((B, draws, *SHAPE), generator=rng, dtype=torch.float64)


def logits_of(f, image, noise):
    """Logits (M, K) of an image with each of its draws."""
    return np.array([f(image + draw) for draw in noise])


def softmax(logits):
    return special.softmax(logits, axis=-1)


def probabilities_of(f, image, noise):
    return softmax(logits_of(f, image, noise))


def cross_entropy(logits, label):
    return -special.log_softmax(logits, axis=-1)[..., label]


def over_images(term):
    return np.mean([term(i) for i in range(B)])


def over_draws(f, points, noise, y):
    """Mean over images and draws of the cross-entropy: the log inside the mean."""
    return over_images(lambda i: cross_entropy(logits_of(f, points[i], noise[i]), y[i]).mean())


def moved_noise(noise, move):
    """The noise after ``move(i, draw)`` of each draw of each image i."""
    moved = noise.clone()
    for i, j in product(range(B), range(noise.shape[1])):
        moved[i, j] = move(i, noise[i, j])
    return moved


def ramp(value, epoch, warmup):
    return min(value, (epoch + 1) * value / warmup)


def slow_gaussian(f, frozen, x, y, rng, epoch):
    return over_draws(f, x, normal(rng, 1), y)


def slow_stability(f, frozen, x, y, rng, epoch, lam):
    noise = normal(rng, 1)

    def term(i):
        clean = f(x[i])
        soft = -(softmax(clean) * special.log_softmax(f(x[i] + noise[i, 0]))).sum()
        return cross_entropy(clean, y[i]) + lam * soft

    return over_images(term)


def slow_smoothadv(f, frozen, x, y, rng, epoch, draws, steps, epsilon, warmup):
    noise = normal(rng, draws)
    epsilon = ramp(epsilon, epoch, warmup)
    x_hat = attack.pgd(frozen, x, y, noise, steps, epsilon)
    return over_draws(f, x_hat, noise, y)


def log_of_mean(logits, label):
    """Cross-entropy of the mean softmax of draws, with MACER's guard: the log outside the mean."""
    return -np.log(softmax(logits).mean(axis=0)[label] + 1e-10)


def mean_of_logs(logits, label):
    return cross_entropy(logits, label).mean()


CROSS_ENTROPIES = {"log-of-mean": log_of_mean, "mean-of-logs": mean_of_logs}


def slow_objective(
    f, x, noise, y, lam, gamma, beta, cross_entropy="log-of-mean", beta_cross_entropy=1.0
):
    def term(i):
        logits = logits_of(f, x[i], noise[i])
        q = softmax(beta * logits).mean(axis=0)
        second, first = np.argsort(q)[-2:]
        xi = quantile(q[first]) - quantile(q[second])
        lack = gamma - xi if first == y[i] and xi <= gamma else 0.0
        loss = CROSS_ENTROPIES[cross_entropy](beta_cross_entropy * logits, y[i])
        return loss + lam * SIGMA / 2 * lack

    return over_images(term)


def slow_macer(f, frozen, x, y, rng, epoch, draws, lam, defer, **objective):
    return slow_objective(f, x, normal(rng, draws), y, lam if epoch >= defer else 0.0, **objective)


def slow_advmacer(
    f,
    frozen,
    x,
    y,
    rng,
    epoch,
    draws,
    attack_draws,
    steps,
    steps_warmup,
    epsilon,
    warmup,
    beta_attack,
    fresh_draws,
    lam,
    defer,
    **objective,
):
    noise = normal(rng, draws)
    epsilon = ramp(epsilon, epoch, warmup)
    attacked = noise[:, : min(attack_draws, draws)]
    first_epochs = [k * steps_warmup / (steps + 1) for k in range(1, steps + 1)]
    steps = sum(epoch >= first for first in first_epochs)
    tempered = attack.Tempered(frozen, beta_attack)
    x_hat = attack.pgd(tempered, x, y, attacked, steps, epsilon, rng=rng)
    if fresh_draws:
        noise = normal(rng, draws)
    return slow_objective(f, x_hat, noise, y, lam if epoch >= defer else 0.0, **objective)


def slow_consistency(f, frozen, x, y, rng, epoch, draws, lam, eta, steps, epsilon, warmup):
    noise = normal(rng, draws)
    x_hat = attack.projected_path_attack(frozen, x, y, noise, steps, ramp(epsilon, epoch, warmup))

    def term(i):
        p = probabilities_of(f, x_hat[i], noise[i])
        mean = p.mean(axis=0)
        divergences = special.rel_entr(mean, p).sum(axis=1)
        return lam * divergences.mean() + eta * stats.entropy(mean)

    return over_draws(f, x_hat, noise, y) + over_images(term)


def slow_smoothmix(
    f, frozen, x, y, rng, epoch, draws, steps, step_size, eta, one_step, mix_limit, warmup
):
    noise = normal(rng, draws)
    ready = ramp(1.0, epoch, warmup)
    share = torch.rand(B, generator=rng, dtype=torch.float64) * mix_limit  # one for all draws
    path = attack.mixing_path(frozen, x, y, noise, steps, step_size)
    near = x
    if one_step:
        u = path[1] - x
        shrinkage = (ready * step_size / u.flatten(1).norm(dim=1)).clamp_max(1)
        near = (x + u * shrinkage.view(B, 1, 1, 1)).clamp(0, 1)

    def term(i):
        mean = probabilities_of(f, near[i], noise[i]).mean(axis=0)
        if mean.argmax() != y[i]:
            return 0.0
        part = share[i].item()
        mixed = (1 - part) * near[i] + part * path[-1][i]
        target = (1 - part) * mean + part / K
        p = probabilities_of(f, mixed, noise[i])
        return special.rel_entr(target, p).sum(axis=1).mean()

    return over_draws(f, near, noise, y) + eta * ready * over_images(term)


def slow_cat_rs(f, frozen, x, y, rng, epoch, draws, steps, epsilon, lam, confidence):
    noise = normal(rng, draws)
    uniform = torch.rand((B, draws), generator=rng).double()

    def move(i, draw):
        return slow_kl_attack(frozen, x[i], draw, TARGETS[i], steps, epsilon, draws)

    moved = moved_noise(noise, move)

    def term(i):
        logits = logits_of(f, x[i], noise[i])
        share = TARGETS[i, y[i]].item()
        if confidence == "votes":
            share = np.mean(logits.argmax(axis=1) == y[i].item())
        used = max(1, (uniform[i] < share).sum().item())
        losses = np.sort(cross_entropy(logits, y[i]))
        low = losses[:used].sum() / draws
        if used < draws:
            return low
        p = probabilities_of(f, x[i], moved[i])
        worst = special.rel_entr(TARGETS[i].numpy(), p).sum(axis=1).max()
        return low + lam * worst

    return over_images(term)


def slow_kl_attack(frozen, image, start, target, steps, epsilon, draws):
    """One draw of the attack of CAT-RS."""
    d = start
    for _ in range(steps):
        point = d.clone().requires_grad_()
        with torch.enable_grad():
            logits = frozen((image + point)[None])[0]
            entropy = -torch.special.xlogy(target, target).sum()
            divergence = -target @ logits.log_softmax(0) - entropy
            (g,) = torch.autograd.grad(divergence / draws, point)
        change = d + 2 * epsilon / steps * g / (g.norm() + 1e-8) - start
        d = start + change * min(1.0, epsilon / change.norm().item())
        scale = (start.square().mean() / d.square().mean()).sqrt()
        d = start.mean() + (d - d.mean()) * scale
    return d


def slow_hard_drop(f, frozen, x, y, rng, epoch, draws, steps, step_size, defer, **sampling):
    noise = normal(rng, draws)

    def move(i, draw):
        return slow_sphere_attack(frozen, x[i], draw, y[i], steps, step_size, draws)

    if epoch >= defer:
        noise = moved_noise(noise, move)
    return over_draws(f, x, noise, y)


def slow_sphere_attack(frozen, image, start, label, steps, step_size, draws):
    """One draw of the attack of Sun et al."""
    d = start
    for _ in range(steps):
        point = d.clone().requires_grad_()
        with torch.enable_grad():
            logits = frozen((image + point)[None])[0]
            if logits.argmax() != label:
                return d
            (g,) = torch.autograd.grad(-logits.log_softmax(0)[label] / draws, point)
        d = d + step_size * g / (g.norm() + 1e-8)
        d = d / (d.norm() + 1e-8) * start.norm()
    return d


HINGE = {"draws": 4, "lam": 3.0, "gamma": 8.0, "beta": 16.0, "defer": 0}
SMOOTHADV = {"draws": 3, "steps": 2, "epsilon": 0.4, "warmup": 10}
CONSISTENCY = {"draws": 3, "lam": 10.0, "eta": 0.5, "steps": 0, "epsilon": 0.4, "warmup": 10}
SMOOTHMIX = {"draws": 3, "steps": 4, "step_size": 0.2, "eta": 5.0, "warmup": 10}
SMOOTHMIX |= {"one_step": False, "mix_limit": 0.5}
ADVMACER = HINGE | {
    "attack_draws": 8,
    "steps": 2,
    "steps_warmup": 0,
    "epsilon": 0.4,
    "warmup": 10,
    "beta_cross_entropy": 1.0,
    "beta_attack": 1.0,
}
ADVMACER |= {"fresh_draws": False, "cross_entropy": "log-of-mean"}
MEAN_OF_LOGS = ADVMACER | {"cross_entropy": "mean-of-logs"}
HOTTER = MEAN_OF_LOGS | {"beta_cross_entropy": 4.0}
CAT_RS = {"draws": 3, "steps": 3, "epsilon": 0.5, "lam": 2.0, "confidence": "votes"}
HARD_DROP = {
    "draws": 3,
    "steps": 3,
    "step_size": 0.3,
    "defer": 2,
    "threshold": 0.5,
    "discard_draws": 5,
    "every": 1,
}
TARGETS = (
    torch.tensor(
        [[0, 3, 7], [10, 0, 0], [1, 8, 1], [0, 0, 10], [6, 4, 0], [2, 3, 5]], dtype=torch.float64
    )
    / 10
)
"""Of the images, for the methods that need them; some are exactly 0 or 1."""

CASES = {
    "gaussian": (slow_gaussian, {}, 0),
    "stability": (slow_stability, {"lam": 2.0}, 0),
    "smoothadv": (slow_smoothadv, SMOOTHADV, 20),
    "smoothadv in its warm-up": (slow_smoothadv, SMOOTHADV, 3),
    "macer": (slow_macer, HINGE, 0),
    "macer before the end of its deferral": (slow_macer, HINGE | {"defer": 5}, 4),
    "macer after the end of its deferral": (slow_macer, HINGE | {"defer": 5}, 5),
    "consistency": (slow_consistency, CONSISTENCY, 0),
    "consistency at an adversarial point": (slow_consistency, CONSISTENCY | {"steps": 3}, 20),
    "consistency in its warm-up": (slow_consistency, CONSISTENCY | {"steps": 3}, 3),
    "smoothmix": (slow_smoothmix, SMOOTHMIX, 20),
    "smoothmix up to the other side": (slow_smoothmix, SMOOTHMIX | {"mix_limit": 1.0}, 20),
    "smoothmix with one step": (slow_smoothmix, SMOOTHMIX | {"one_step": True}, 20),
    "smoothmix with one step in its warm-up": (slow_smoothmix, SMOOTHMIX | {"one_step": True}, 3),
    "advmacer": (slow_advmacer, ADVMACER, 20),
    "advmacer in its warm-up": (slow_advmacer, ADVMACER, 3),
    "advmacer attacked by two of its draws": (slow_advmacer, ADVMACER | {"attack_draws": 2}, 20),
    "advmacer before its attack": (slow_advmacer, ADVMACER | {"steps_warmup": 9}, 2),
    "advmacer with its first step": (slow_advmacer, ADVMACER | {"steps_warmup": 9}, 3),
    "advmacer with fresh draws": (slow_advmacer, ADVMACER | {"fresh_draws": True}, 20),
    "advmacer of one temperature": (
        slow_advmacer,
        ADVMACER | {"beta_cross_entropy": 4.0, "beta_attack": 4.0},
        20,
    ),
    "advmacer with the mean of logs at another temperature": (slow_advmacer, HOTTER, 20),
    "advmacer before the end of its deferral": (slow_advmacer, ADVMACER | {"defer": 21}, 20),
    "cat-rs": (slow_cat_rs, CAT_RS, 0),
    "cat-rs of one step": (slow_cat_rs, CAT_RS | {"steps": 1}, 0),
    "cat-rs by the confidence of the targets": (slow_cat_rs, CAT_RS | {"confidence": "targets"}, 0),
    "hard-drop": (slow_hard_drop, HARD_DROP, 2),
    "hard-drop before the end of its deferral": (slow_hard_drop, HARD_DROP, 1),
}
EXTRA = {
    "advmacer": {"chunked": True},
    "cat-rs": {"targets": {"sigma": 0.25, "epochs": 1, "draws": 5, "seed": 0}},
}  # not in the slow forms


@pytest.fixture
def model():
    network = mlp(9, K, hidden=4, seed=2).double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2.0)
    return network.train()


@pytest.fixture
def images(model):
    """Images, and labels of which the model gives all but two."""
    x = 0.1 + 0.8 * torch.rand((B, *SHAPE), generator=generator(1), dtype=torch.float64)
    with torch.no_grad():
        y = model(x).argmax(dim=1)
    y[-2:] = (y[-2:] + 1) % K
    return x, y


def slow_of(case, weights, model, images):
    """The slow form of a case as a function of the weights of ``f`` alone."""
    slow, values, epoch = CASES[case]
    moving = copy.deepcopy(model)
    vector_to_parameters(weights, moving.parameters())

    def f(image):
        return moving(image[None])[0].numpy()

    with torch.no_grad():
        return slow(f, model, *images, generator(), epoch, **values)


def step_of(case, model, images):
    """What the method of a case computes."""
    _, values, epoch = CASES[case]
    name = case.split()[0]
    method = params.validate(method_class(name), values | EXTRA.get(name, {}), name)
    targets = {"targets": TARGETS} if isinstance(method, NeedsTargets) else {}
    return method.loss(model, *images, sigma=SIGMA, rng=generator(), epoch=epoch, **targets)


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_agree_with_the_slow_form_and_its_finite_differences(case, model, images):
    # error h^2/6 times a third derivative of at most about lam 16^3 = 1e4, so 2e-7; rounding is
    # 1e-16 / h
    h = 1e-5
    weights = parameters_to_vector(model.parameters()).detach()
    loss = step_of(case, model, images).loss
    assert loss.item() == pytest.approx(slow_of(case, weights, model, images), rel=1e-8)
    loss.backward()
    gradient = parameters_to_vector([weight.grad for weight in model.parameters()])
    for seed in range(4):
        direction = torch.randn(len(weights), generator=generator(seed), dtype=torch.float64)
        direction /= direction.norm()
        up = slow_of(case, weights + h * direction, model, images)
        down = slow_of(case, weights - h * direction, model, images)
        slope = (up - down) / (2 * h)
        assert (gradient @ direction).item() == pytest.approx(slope, abs=2e-6)


@pytest.mark.parametrize(
    "case", ["macer", "advmacer", "smoothmix", "smoothmix with one step", "cat-rs"]
)
def test_on_these_images_the_robustness_term_that_some_images_leave_is_not_negligible(
    case, model, images
):
    step = step_of(case, model, images)
    assert step.robustness > 0.01
    assert step.hinge_share is None or 0 < step.hinge_share < 1
