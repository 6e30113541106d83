"""Training steps and trainings by engine: ``rs.training.attack_backend`` under
``rs.training.trainer``.
"""

import numpy as np
import pytest
import torch
from torch import nn

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

STEPS = [(name, {}) for name in METHODS] + [
    ("consistency", {"steps": 2, "epsilon": 0.2}),
    ("smoothmix", {"steps": 2, "one_step": True}),
    ("advmacer", {"fresh_draws": True, "steps": 2}),
]
every_step = pytest.mark.parametrize(("name", "changes"), STEPS)
ATTACKS = [("smoothadv", {}), *STEPS[-3:]]
"""One step of each attack; the other methods call one of these or none."""
every_attack = pytest.mark.parametrize(
    ("name", "changes"),
    [
        *ATTACKS,
        *(pytest.param(*one, marks=pytest.mark.trust_only) for one in STEPS if one not in ATTACKS),
    ],
)


def step(name, changes, made, model, seed):
    """Loss, gradients and statistics of a Trainer's step on 12 images in float64."""
    own = (
        METHOD_PARAMETERS[name]
        | ({"epsilon": 0.2} if "epsilon" in METHOD_PARAMETERS[name] else {})
        | changes
    )
    x, y = images(12, SHAPE, seed).double(), torch.arange(12) % 2
    method = params.validate(method_class(name), own, name)
    targets = {"targets": soft_targets(y)} if isinstance(method, NeedsTargets) else {}
    result = method.loss(made, x, y, sigma=0.25, rng=stream(seed), epoch=0, **targets)
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


class Narrow(nn.Module):
    """A network in float32 for a method in float64, whose random numbers and losses are then the
    same.
    """

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x.float()).double()


def is_the_plain_step(engine, name, changes):
    """In float64 but for rounding, and in float32 as far from it as the plain engine is.

    Medians of 16 steps, because now and then a ReLU falls on the other side of its kink; those of
    16 normal errors of one size are a factor of 8 apart with a probability of 2e-6.
    """
    start, errors = tiny().state_dict(), {"plain": [], engine: []}
    exact, same = tiny().double(), tiny().double()
    wide = training_network(same, engine, SHAPE)
    narrow = {each: tiny() for each in errors}
    networks = {
        each: Narrow(training_network(model, each, SHAPE)) for each, model in narrow.items()
    }
    for seed in range(16):
        for model in (exact, same, *narrow.values()):
            model.load_state_dict(start)
        expected = step(name, changes, exact, exact, seed)
        assert all(
            map(
                lambda a, b: close(a, b, MAX_ROUNDING),
                step(name, changes, wide, same, seed),
                expected,
            )
        )
        for each, model in narrow.items():
            found = step(name, changes, networks[each], model, seed)
            errors[each].append(
                [float((a - b).norm()) for a, b in zip(found, expected, strict=True)]
            )
    ours, plain = (np.median(errors[each], axis=0) for each in (engine, "plain"))
    assert (plain > 0).all()
    assert (ours <= 8 * plain).all()


@every_attack
def test_a_folded_step_is_the_plain_one_but_for_rounding(name, changes, capsys):
    is_the_plain_step("folded", name, changes)
    assert capsys.readouterr().err == ""


@pytest.mark.trust_only
@every_step
def test_a_compiled_step_is_the_plain_one_but_for_rounding(name, changes, capsys):
    is_the_plain_step("compiled", name, changes)
    assert "warning" not in capsys.readouterr().err  # it is compiled


def history(model=None, method="smoothadv", parameters=None, epochs=3, **changes):
    made = trainer(method, tiny_images(20), model, parameters=parameters, epochs=epochs, **changes)
    made.run()
    names = ("loss", "cross_entropy", "robustness", "gradient_norm")
    return made, np.array([[row[name] for name in names] for row in made.progress.history])


@pytest.mark.parametrize("method", METHODS)
def test_no_byte_changes_by_folding_without_attacks_or_by_a_compiler_that_changes_nothing(
    method, compiler
):
    made = {
        engine: history(method=method, engine=engine, epochs=2)[0]
        for engine in ("plain", "folded", "compiled")
    }
    attacks = method in ("smoothadv", "smoothmix", "advmacer", "hard-drop", "cat-rs")
    assert len(compiler) == 1 + attacks
    for same in ("compiled",) if attacks else ("compiled", "plain"):
        assert weights(made["folded"].model) == weights(made[same].model)
        assert made["folded"].progress.history == made[same].progress.history
