"""The network as training runs it: ``rs.training.attack_backend``."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rs.training.attack_backend import OneShape, frozen
from tests.support.helpers import SHAPE, weights
from tests.support.networks import (
    COLOR,
    Branches,
    Measures,
    close,
    hooked,
    images,
    lived_in,
    residual,
    tiny,
)


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def unusual():
    """Convolutions with all they may have, and a batch norm without parameters."""
    first = (
        nn.Conv2d(1, 4, 3, padding="same", dilation=2),
        nn.BatchNorm2d(4, affine=False, eps=0.1),
        nn.ReLU(),
    )
    second = nn.Conv2d(4, 6, 2, stride=2, padding=1, groups=2), nn.BatchNorm2d(6), nn.ReLU()
    model = nn.Sequential(
        *first, *lived_in(nn.Sequential(*second), SHAPE), nn.Flatten(), nn.Linear(54, 2)
    )
    model(images(16, SHAPE))  # which moves the statistics
    return model


class OtherUses(nn.Module):
    """Convolutions that are needed without the batch norms after them too, and one that only looks
    as if it were.
    """

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.twice = nn.Conv2d(2, 2, 3, padding=1)
        self.one, self.two = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
        self.last, self.end = nn.Conv2d(2, 3, 4), nn.BatchNorm2d(3)

    def forward(self, x):
        x = self.conv(x)
        x = F.dropout(torch.relu(self.norm(x)) + x, 0.5, self.training)
        x = self.two(self.twice(torch.relu(self.one(self.twice(x)))))
        return self.end(self.last(x)).flatten(1)


def circular():
    convolution = nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")
    return nn.Sequential(convolution, nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 2))


@pytest.fixture
def ran(monkeypatch):
    """One entry for each batch norm that has run."""
    calls, batch_norm = [], F.batch_norm
    monkeypatch.setattr(
        F, "batch_norm", lambda *args, **rest: (calls.append(1), batch_norm(*args, **rest))[1]
    )
    return calls


def evaluated(model, x):
    """What its eval mode gives, in the slow way: of a copy."""
    return copy.deepcopy(model).eval()(x).detach()


def there_and_back(module, x):
    x = x.clone().requires_grad_()
    logits = module(x)
    return logits.detach(), torch.autograd.grad(logits.square().sum(), x)[0]


@pytest.mark.parametrize(("make", "shape"), [(unusual, SHAPE), (residual, COLOR)])
def test_the_frozen_network_is_that_of_eval_mode_and_runs_no_batch_norm(make, shape, ran, capsys):
    model = seeded(make).double().train()
    x = images(4, shape).double()
    before = weights(model)
    made = frozen(model, shape)
    ran.clear()
    found = there_and_back(made, x)
    assert ran == []
    expected = there_and_back(copy.deepcopy(model).eval(), x)
    assert len(ran) == sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert all(map(close, found, expected))
    made(x.requires_grad_()).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.training for module in model.modules())
    assert weights(model) == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("make", [unusual, Branches])
def test_the_frozen_network_follows_the_model_because_it_holds_no_copies(make):
    model = seeded(make).double().train()
    made = frozen(model, SHAPE)
    x = images(4, SHAPE).double()
    before = evaluated(model, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
        model(images(16, SHAPE, 2).double())  # statistics move
    assert close(made(x), evaluated(model, x))
    assert not close(made(x), before, 1e-6)
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    assert {tensor.data_ptr() for tensor in (*made.parameters(), *made.buffers())} <= own
    assert not any(parameter.requires_grad for parameter in made.parameters())


@pytest.mark.parametrize("make", [Measures, hooked, circular])
def test_a_network_that_cannot_be_folded_keeps_its_function_and_says_so_once(make, capsys):
    model = lived_in(seeded(make), SHAPE).double().train()
    made = frozen(model, SHAPE)
    error = capsys.readouterr().err
    assert error.startswith(
        "warning: this network is attacked with its batch norms, which is slower ("
    )
    assert error.count("\n") == 1
    x, before = images(4, SHAPE).double(), weights(model)
    assert all(
        map(torch.equal, there_and_back(made, x), there_and_back(copy.deepcopy(model).eval(), x))
    )
    assert weights(model) == before  # its batch norms are in eval mode, and the model's are not
    assert all(module.training for module in model.modules())


def test_a_batch_norm_whose_convolution_has_other_uses_stays_and_the_others_are_folded(ran, capsys):
    model = lived_in(seeded(OtherUses), SHAPE).double().train()
    made, x, before = frozen(model, SHAPE), images(4, SHAPE).double(), weights(model)
    expected = evaluated(model, x)
    ran.clear()
    assert close(made(x), expected)
    assert len(ran) == 3
    assert weights(model) == before
    assert capsys.readouterr().err == ""


def test_only_the_first_shape_with_gradients_is_compiled(compiler):
    model = tiny().eval()
    made = OneShape(model)
    for count, gradients in [(3, False), (4, True), (3, True), (4, True), (4, False)]:
        with torch.set_grad_enabled(gradients):
            x = images(count, SHAPE).requires_grad_(gradients)
            assert torch.equal(made(x), model(x))
    (one,) = compiler
    assert (one.module, one.seen) == (model, [(4, True)] * 3)  # a trial and two passes


class BreaksDown(torch.autograd.Function):
    """The identity, whose backward pass fails."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        raise RuntimeError("no compiler\nfound")


def breaks_in_the_backward_pass(module, _):
    """A compiled network that fails when the last layer has its gradient."""
    features = nn.Sequential(module.normalize, module.network.features)
    return lambda x: module.network.fc(BreaksDown.apply(features(x)).flatten(1))


@pytest.mark.parametrize("broken", [None, breaks_in_the_backward_pass])
def test_the_trial_leaves_no_trace_and_a_compiler_that_fails_leaves_the_network_plain(
    broken, compiler, monkeypatch, capsys
):
    if broken:
        monkeypatch.setattr("rs.training.attack_backend.compiled", broken)
    model = tiny().train()
    plain = copy.deepcopy(model)
    made = OneShape(model)
    for seed in range(3):
        x = images(6, SHAPE, seed)
        results = []
        for each, owner in ((made, model), (plain, plain)):
            logits = each(x)
            gradients = torch.autograd.grad(logits.square().sum(), list(owner.parameters()))
            results.append([logits, *gradients])
        assert all(map(torch.equal, *results))
        assert weights(model) == weights(plain)
        assert all(parameter.grad is None for parameter in model.parameters())
    warning = "warning: this network is not compiled (RuntimeError: no compiler found)\n"
    assert capsys.readouterr().err == (warning if broken else "")
