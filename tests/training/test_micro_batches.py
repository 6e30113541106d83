"""A network that takes its images a few at a time computes what it computes of all at once."""

import copy

import pytest
import torch
from torch import nn

from rs.methods import METHODS
from rs.methods.base import NeedsTargets
from rs.params import packaged
from rs.recipes import replace_in_recipe
from rs.training.attack_backend import MicroBatches, training_network
from rs.training.recipe import training_recipe
from tests.support.helpers import SHAPE, generator, refuses, soft_targets, trainer, weights
from tests.support.networks import images, tiny

SIZE = 3
COUNT = 8


def without_batch_norm():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 2)).double()


def gradients(method, network, model):
    """The gradients of a step, and its loss."""
    model.zero_grad()
    x = images(COUNT, SHAPE).double()
    y = torch.arange(COUNT) % 2
    step = {"sigma": 0.25, "rng": generator(), "epoch": 5}
    if isinstance(method, NeedsTargets):
        step["targets"] = soft_targets(y).double()
    loss = method.loss(network, x, y, **step).loss
    loss.backward()
    return [loss.detach()] + [value.grad.clone() for value in model.parameters()]


@pytest.mark.parametrize("engine", ["plain", "folded"])
@pytest.mark.parametrize("method", METHODS)
def test_losses_and_gradients_are_those_of_all_images_at_once(method, engine):
    model = without_batch_norm()
    network = training_network(model, engine, SHAPE)
    parts = training_network(model, engine, SHAPE, micro_batch=SIZE)
    method = trainer(method).method
    expected = gradients(method, network, model)
    sizes = []
    model[0].register_forward_pre_hook(lambda layer, given: sizes.append(len(given[0])))
    found = gradients(method, parts, model)
    for one, other in zip(found, expected, strict=True):
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
