"""The contract that every training method of METHODS keeps, with its defaults; test_losses.py has
what they compute.
"""

import pytest
import torch
from torch import nn

from rs import params
from rs.methods import METHODS, method_class
from rs.methods.base import NeedsTargets, accuracy
from tests.support.helpers import generator, method_parameters, soft_targets
from tests.support.networks import mlp

K, SHAPE, SIGMA = 3, (1, 4, 4), 0.25
SMALL = {"draws": 4, "steps": 2, "epsilon": 0.2, "step_size": 0.1, "warmup": 1, "lam": 2.0}
VALUES = {name: method_parameters(name, **SMALL) for name in METHODS}
VALUES["consistency"] |= {"steps": 2, "epsilon": 0.2}
VALUES["smoothmix"]["one_step"] = True
VALUES["hard-drop"]["defer"] = 0
PASSES = dict.fromkeys(METHODS, 1) | dict.fromkeys(("stability", "smoothmix", "cat-rs"), 2)
"""Train-mode forward passes in a step."""

SWITCHES = [
    ("consistency", {"steps": 0}),
    ("smoothmix", {"one_step": False}),
    ("advmacer", {"fresh_draws": True}),
    ("advmacer", {"cross_entropy": "mean-of-logs"}),
    ("advmacer", {"beta_cross_entropy": 16.0, "beta_attack": 16.0}),
    ("cat-rs", {"confidence": "targets"}),
    ("hard-drop", {"steps": 0}),
]
every_form = pytest.mark.parametrize(
    ("name", "changes"), [*((name, {}) for name in METHODS), *SWITCHES]
)


def method(name, **changes):
    return params.validate(method_class(name), VALUES[name] | changes, name)


def net(scale=1.0):
    model = mlp(16, K, activation=nn.ReLU)
    with torch.no_grad():
        model[-1].weight.mul_(scale)
    return model


def batch(images=12):
    """Images whose class lights up its own row, so that a small net can learn them, and their
    labels.
    """
    y = torch.arange(images) % K
    x = 0.3 * torch.rand((images, *SHAPE), generator=generator(7))
    x[torch.arange(images), 0, y] += 0.6
    return x, y


def step(name, model, seed=0, epoch=0, **changes):
    (x, y), own = batch(), method(name, **changes)
    targets = {"targets": soft_targets(y, K)} if isinstance(own, NeedsTargets) else {}
    return own.loss(model, x, y, sigma=SIGMA, rng=generator(seed), epoch=epoch, **targets)


@every_form
def test_a_step_reports_scalars_whose_loss_is_the_sum_of_its_two_terms(name, changes):
    made = step(name, net().train(), **changes)
    for value in (made.loss, made.cross_entropy, made.robustness, made.accuracy):
        assert value.shape == ()
    assert torch.equal(made.loss, made.cross_entropy + made.robustness)
    assert not made.accuracy.requires_grad
    assert (made.hinge_share is not None) == (name in ("macer", "advmacer"))


@every_form
@pytest.mark.parametrize("scale", [1.0, 1e4, -1e4])
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_are_finite_up_to_saturation_in_any_precision(name, changes, scale, autocast):
    model = net(scale).train()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        made = step(name, model, **changes)
    made.loss.backward()
    assert made.loss.dtype == torch.float32
    assert made.loss.isfinite()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert scale != 1.0 or any(weight.grad.abs().sum() > 0 for weight in model.parameters())


@every_form
def test_a_loss_draws_nothing_from_the_global_generator(name, changes):
    before = torch.get_rng_state()
    step(name, net(), **changes)
    assert torch.equal(torch.get_rng_state(), before)


@every_form
def test_only_the_passes_of_the_loss_itself_update_batch_norm(name, changes):
    norm = nn.BatchNorm2d(1)
    model = nn.Sequential(norm, net()).train()
    passes = []
    model.register_forward_hook(
        lambda *_: passes.append(next(model.parameters()).requires_grad and model.training)
    )
    step(name, model, **changes)
    assert norm.num_batches_tracked == sum(passes) == PASSES[name]
    assert model.training
    assert norm.training


def test_methods_that_copy_an_image_cut_a_batch_into_as_many_steps_and_macer_does_not():
    whole = ("gaussian", "stability", "macer")
    for name in METHODS:
        changes = {"draws": 3} if "draws" in VALUES[name] else {}
        assert method(name, **changes).steps_per_batch == (1 if name in whole else 3)
    assert method("advmacer", draws=3, chunked=False).steps_per_batch == 1


def test_accuracy_counts_every_noisy_copy():
    logits = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[0.0, 3.0], [1.0, 3.0]]])
    assert accuracy(logits, torch.tensor([0, 1])) == 3 / 4
