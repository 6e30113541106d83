"""Training steps by engine and by micro-batches: ``rs.training.attack_backend`` under methods and
under ``rs.training.trainer``.
"""

import copy

import pytest
import torch
from torch import nn

from rs import params
from rs.methods import METHODS, method_class
from rs.methods.base import NeedsTargets
from rs.models.backend import MAX_ROUNDING
from rs.params import packaged
from rs.recipes import replace_in_recipe
from rs.runtime.streams import stream
from rs.training.attack_backend import MicroBatches, training_network
from rs.training.recipe import training_recipe
from tests.support.helpers import (
    METHOD_PARAMETERS,
    SHAPE,
    refuses,
    soft_targets,
    tiny_images,
    trainer,
    weights,
)
from tests.support.networks import close, images, tiny

SIZE = 4
"""Of a micro-batch."""
COUNT = 11
ATTACKED = ["smoothadv", "consistency", "smoothmix", "advmacer", "cat-rs", "hard-drop"]
CHANGES = {
    "consistency": {"steps": 2, "epsilon": 0.2},
    "smoothmix": {"steps": 2, "one_step": True},
    "advmacer": {"fresh_draws": True, "steps": 2, "epsilon": 0.2},
}


def step(name, network, model, seed=0):
    """Loss, gradients and statistics of a step on images in float64."""
    x = images(COUNT, SHAPE, seed).double()
    y = torch.arange(COUNT) % 2
    values = METHOD_PARAMETERS[name] | CHANGES.get(name, {})
    method = params.validate(method_class(name), values, name)
    targets = {"targets": soft_targets(y)} if isinstance(method, NeedsTargets) else {}
    result = method.loss(network, x, y, sigma=0.25, rng=stream(seed), epoch=1, **targets)
    model.zero_grad()
    result.loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [result.loss.detach(), *gradients, *copy.deepcopy([*model.buffers()])]


@pytest.mark.parametrize(
    "engine", ["folded", pytest.param("compiled", marks=pytest.mark.trust_only)]
)
@pytest.mark.parametrize("name", ATTACKED)
def test_a_step_is_the_plain_one_but_for_rounding(name, engine, capsys):
    plain = tiny().double()
    model = copy.deepcopy(plain)
    network = training_network(model, engine, SHAPE)
    for seed in range(4):
        expected = step(name, plain, plain, seed)
        found = step(name, network, model, seed)
        for one, other in zip(found, expected, strict=True):
            assert close(one, other, MAX_ROUNDING)
    assert "warning" not in capsys.readouterr().err  # it is folded, and compiled


@pytest.mark.parametrize(("precision", "compiled"), [("float32", 2), ("bfloat16", 1)])
def test_a_training_in_bfloat16_on_a_cpu_compiles_its_attack_alone(precision, compiled, compiler):
    made = trainer("smoothadv", engine="compiled", precision=precision)
    made.run()
    assert len(compiler) == compiled
    assert all(one.module is not made.model for one in compiler[:1])
    assert any(one.module is made.model for one in compiler) == (precision == "float32")


@pytest.mark.parametrize("method", METHODS)
def test_no_byte_changes_by_folding_without_attacks_or_by_a_compiler_that_changes_nothing(
    method, compiler
):
    made = {}
    for engine in ("plain", "folded", "compiled"):
        made[engine] = trainer(method, tiny_images(20), engine=engine)
        made[engine].run()
    attacks = method in ATTACKED and method != "consistency"  # which has no steps here
    assert len(compiler) == 1 + attacks
    for same in ("compiled",) if attacks else ("compiled", "plain"):
        assert weights(made["folded"].model) == weights(made[same].model)
        assert made["folded"].progress.history == made[same].progress.history


def without_batch_norm():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 2)).double()


@pytest.mark.parametrize("engine", ["plain", "folded"])
@pytest.mark.parametrize("name", METHODS)
def test_losses_and_gradients_are_those_of_all_images_at_once(name, engine):
    model = without_batch_norm()
    network = training_network(model, engine, SHAPE)
    parts = training_network(model, engine, SHAPE, micro_batch=SIZE)
    expected = step(name, network, model)
    sizes = []
    model[0].register_forward_pre_hook(lambda layer, given: sizes.append(len(given[0])))
    for one, other in zip(step(name, parts, model), expected, strict=True):
        torch.testing.assert_close(one, other)
    assert max(sizes) <= SIZE


def stored(network, model):
    """The bytes that the backward pass of a network waits for."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(images(COUNT, SHAPE).double()).sum()
    return sum(sizes)


def test_no_activations_are_stored():
    model = without_batch_norm()
    inputs = COUNT * 16 * 8
    assert stored(MicroBatches(model, model, 1), model) <= inputs
    assert stored(model, model) > 4 * inputs


def test_batch_norm_sees_each_part_once():
    model = tiny().double().train()
    other = copy.deepcopy(model)
    x = images(COUNT, SHAPE).double()
    MicroBatches(model, model, SIZE)(x).square().sum().backward()
    for part in x.tensor_split(3):
        other(part).square().sum().backward()
    assert weights(model) == weights(other)  # statistics
    for one, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, expected.grad)


@pytest.mark.parametrize("engine", ["plain", "folded"])
def test_a_pass_in_eval_mode_is_repeated_in_eval_mode(engine):
    model = tiny().double()
    network = MicroBatches(training_network(model, engine, SHAPE), model, SIZE)
    x = images(COUNT, SHAPE).double().requires_grad_()
    loss = network.eval()(x).square().sum()
    network.train()
    (found,) = torch.autograd.grad(loss, x)
    (expected,) = torch.autograd.grad(copy.deepcopy(model).eval()(x).square().sum(), x)
    torch.testing.assert_close(found, expected)
    assert network.training
    assert all(module.training for module in network.modules())


def test_a_training_takes_micro_batches():
    sizes = []
    model = without_batch_norm().float()
    model[0].register_forward_hook(lambda layer, given, result: sizes.append(len(result)))
    trainer("macer", model=model, parameters={"draws": 2}, micro_batch=SIZE, epochs=1).run()
    assert max(sizes) == SIZE


def test_a_denoiser_takes_no_micro_batches():
    values = replace_in_recipe(packaged(), "finetune", "training", {"micro_batch": 2})
    with refuses("micro_batch must be null for denoiser-mse, got 2; lower batch"):
        training_recipe(values, "finetune", "denoiser-mse", 0.25)
