"""Training steps and trainings by engine: ``rs.training.attack_backend`` under
``rs.training.trainer``.
"""

import copy

import pytest
import torch

from rs import params
from rs.methods import METHODS, method_class
from rs.methods.base import NeedsTargets
from rs.models.backend import MAX_ROUNDING
from rs.runtime.streams import stream
from rs.training.attack_backend import training_network
from tests.support.helpers import (
    METHOD_PARAMETERS,
    SHAPE,
    soft_targets,
    tiny_images,
    trainer,
    weights,
)
from tests.support.networks import close, images, tiny

STEPS = [
    ("smoothadv", {}),
    ("consistency", {"steps": 2, "epsilon": 0.2}),
    ("smoothmix", {"steps": 2, "one_step": True}),
    ("advmacer", {"fresh_draws": True, "steps": 2, "epsilon": 0.2}),
    ("cat-rs", {}),
    ("hard-drop", {}),
]
"""A step with each attack."""


def step(name, changes, network, model, seed):
    """Loss, gradients and statistics of a Trainer's step on 12 images in float64."""
    x = images(12, SHAPE, seed).double()
    y = torch.arange(12) % 2
    method = params.validate(method_class(name), METHOD_PARAMETERS[name] | changes, name)
    targets = {"targets": soft_targets(y)} if isinstance(method, NeedsTargets) else {}
    result = method.loss(network, x, y, sigma=0.25, rng=stream(seed), epoch=1, **targets)
    model.zero_grad()
    result.loss.backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    buffers = torch.cat([buffer.flatten() for buffer in model.buffers()])
    return result.loss.detach().reshape(1), gradients, buffers


@pytest.mark.parametrize(("precision", "compiled"), [("float32", 2), ("bfloat16", 1)])
def test_a_training_in_bfloat16_on_a_cpu_compiles_its_attack_alone(precision, compiled, compiler):
    made = trainer("smoothadv", engine="compiled", precision=precision)
    made.run()
    assert len(compiler) == compiled
    assert all(one.module is not made.model for one in compiler[:1])
    assert any(one.module is made.model for one in compiler) == (precision == "float32")


@pytest.mark.parametrize(
    "engine", ["folded", pytest.param("compiled", marks=pytest.mark.trust_only)]
)
@pytest.mark.parametrize(("name", "changes"), STEPS)
def test_a_step_is_the_plain_one_but_for_rounding(name, changes, engine, capsys):
    plain = tiny().double()
    model = copy.deepcopy(plain)
    network = training_network(model, engine, SHAPE)
    for seed in range(4):
        expected = step(name, changes, plain, plain, seed)
        found = step(name, changes, network, model, seed)
        for one, other in zip(found, expected, strict=True):
            assert close(one, other, MAX_ROUNDING)
    assert "warning" not in capsys.readouterr().err  # it is folded, and compiled


@pytest.mark.parametrize("method", METHODS)
def test_no_byte_changes_by_folding_without_attacks_or_by_a_compiler_that_changes_nothing(
    method, compiler
):
    made = {}
    for engine in ("plain", "folded", "compiled"):
        made[engine] = trainer(method, tiny_images(20), engine=engine)
        made[engine].run()
    attacks = method in ("smoothadv", "smoothmix", "advmacer", "hard-drop", "cat-rs")
    assert len(compiler) == 1 + attacks
    for same in ("compiled",) if attacks else ("compiled", "plain"):
        assert weights(made["folded"].model) == weights(made[same].model)
        assert made["folded"].progress.history == made[same].progress.history
