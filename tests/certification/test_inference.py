"""Networks optimized for inference: ``rs.certification.inference``."""

from functools import partial
from threading import Lock

import pytest
import torch
from torch import nn
from torchvision.transforms import Normalize

from rs.certification.inference import FixedBatch, fold, optimize_for_inference
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.models import architectures
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import as_module
from rs.smoothing.noise import BLOCK, noisy_pair
from rs.training.attack_backend import frozen
from tests.support.helpers import SHAPE, generator, refuses, smallnet, weights
from tests.support.networks import Branches, Measures, WithLogits, hooked, images, lived_in

CPU = torch.device("cpu")


def check_same(network, model):
    """Check that two networks are the same function, but for rounding in float32."""
    x = images(3, SHAPE)
    torch.testing.assert_close(network(x), model(x), rtol=1e-5, atol=1e-6)


def batch_norms(model):
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


@pytest.mark.parametrize(
    ("architecture", "shape"), [("smallnet", SHAPE), ("resnet20", (3, 32, 32))]
)
def test_folding_is_exact_in_float64_but_for_rounding(architecture, shape):
    channels = shape[0]
    network = architectures.build(architecture, shape, 5, [0.5] * channels, [0.25] * channels, 0)
    model = lived_in(network, shape).double().eval()
    x = images(4, shape).double()
    folded = fold(model, torch.float64, shape)
    assert not batch_norms(folded)
    expected = model(x)
    difference = folded.network(folded.normalize(x)) - expected
    assert difference.abs().max() <= 1e-12 * expected.abs().max()


def test_logits_come_back_in_float32_and_noise_is_normalized_before_it_is_rounded():
    model = lived_in(smallnet(), SHAPE).eval()
    x = images(3, SHAPE)
    made = optimize_for_inference(model, "folded", "bfloat16", SHAPE, CPU).module
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
    assert made(x).dtype == fold(plain, torch.bfloat16, SHAPE)(x).dtype == torch.float32
    rounded = model.normalize(x).bfloat16().float() * model.normalize.std + model.normalize.mean
    assert 0 < (made(x) - model(x)).abs().max() < 0.1 * model(x).abs().max()  # bfloat16 has 8 bits
    assert torch.allclose(made(rounded), made(x), atol=1e-6)


class InHalf(nn.Module):
    """A network that computes in float16, whatever it is given."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).half()

    def forward(self, x):
        return self.network(x.half()).float()


def close_call():
    """A network whose features are all 1 and whose logits are 1 and 1 + 2^-12, which in bfloat16 is
    1 as well.
    """
    model = smallnet().eval()
    with torch.no_grad():
        for module in model.network.features:
            if isinstance(module, nn.Conv2d):
                module.weight.zero_()
            if isinstance(module, nn.BatchNorm2d):
                module.bias.fill_(1.0)
        model.network.fc.weight.zero_()
        model.network.fc.bias.zero_()
        model.network.fc.weight[:, 0] = torch.tensor([1.0, 1.0 + 2**-12])
    return model


@pytest.mark.parametrize(
    "engine", ["plain", "folded", pytest.param("compiled", marks=pytest.mark.trust_only)]
)
def test_logits_that_only_bfloat16_cannot_tell_apart_are_told_apart(engine):
    made = optimize_for_inference(close_call(), engine, "bfloat16", SHAPE, CPU)
    classifier = SmoothedClassifier(made.module, 2, 0.5, precision=made.precision, batch=made.batch)
    assert classifier.votes(torch.zeros(SHAPE), 100, 0, 1).tolist() == [0, 100]


@pytest.mark.parametrize("make", [Branches, hooked, Measures])
def test_a_network_that_cannot_be_folded_keeps_its_batch_norms_and_its_function(make, capsys):
    model = lived_in(make(), SHAPE).eval()
    folded = fold(model, torch.float32, SHAPE)
    assert capsys.readouterr().err.startswith("warning: this network keeps its batch norms (")
    assert batch_norms(folded)
    check_same(folded, model)


class InFrequencies(nn.Module):
    """A filter of complex numbers, as Fourier neural operators have, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat, generator=generator(0)))
        self.linear = nn.Linear(16, 3)

    def forward(self, x):
        filtered = torch.fft.irfft2(torch.fft.rfft2(x) * self.filter, s=(4, 4))
        return self.linear(filtered.flatten(1))


@pytest.mark.parametrize("engine", ["folded", "compiled"])
def test_complex_weights_keep_both_parts(engine):
    network = InFrequencies().eval()
    made = optimize_for_inference(network, engine, "float32", (1, 4, 4), CPU)
    x = images(3, (1, 4, 4))
    torch.testing.assert_close(made.module(x), network(x), rtol=1e-5, atol=1e-6)


def test_a_network_whose_logits_are_all_zero_is_folded(capsys):
    model = smallnet().eval()
    for parameter in model.network.fc.parameters():
        nn.init.zeros_(parameter)
    for folded in (fold(model, torch.float32, SHAPE), frozen(model, SHAPE)):
        assert not folded(images(3, SHAPE)).any()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "folding", [partial(fold, dtype=torch.float32), frozen], ids=["certification", "attacks"]
)
def test_batch_norms_behind_the_normalization_of_torchvision_are_folded(folding, capsys):
    module = nn.Sequential(Normalize([0.3], [0.2]), lived_in(smallnet(), SHAPE).network).eval()
    folded = folding(module, shape=SHAPE)
    assert capsys.readouterr().err == ""
    called = []
    for layer in batch_norms(folded):
        layer.register_forward_hook(lambda layer, *_: called.append(layer))
    check_same(folded, module)
    assert called == []


@pytest.mark.parametrize("count", [1, 4, 5, 11])
def test_batches_of_every_size_are_filled_up_or_cut(count):
    """The compiled network writes all of its outputs into one memory, as a CUDA graph does."""
    seen = []
    memory = torch.zeros(4, 2)

    def compiled(x):
        seen.append(len(x))
        return memory.copy_(x.flatten(1)[:, :2])

    x = images(count, SHAPE)
    assert torch.equal(FixedBatch(compiled, 4)(x), x.flatten(1)[:, :2])
    assert set(seen) == {4}


def test_members_of_an_ensemble_are_optimized_one_by_one_and_its_rule_stays():
    ensemble = Ensemble(
        [lived_in(smallnet(seed), SHAPE) for seed in (0, 1)], SoftmaxAverage([0.3, 0.7])
    ).eval()
    made = optimize_for_inference(ensemble, "folded", "float32", SHAPE, CPU)
    assert (made.engine, made.precision, made.module.rule) == ("folded", "float32", ensemble.rule)
    assert not batch_norms(made.module)
    check_same(made.module, ensemble)


@pytest.mark.parametrize("engine", ["folded", "compiled", "quantized"])
@pytest.mark.parametrize("together", [False, True])
def test_a_plain_function_runs_plain_alone(engine, together):
    """Nothing knows its networks: a copy of it would call the same ones."""
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(16, 2)).train()
    function = as_module(lambda x: network(x))
    classifier = Ensemble([smallnet(), function], SoftmaxAverage()) if together else function
    with refuses(f"engine must be plain for a plain function, .* got {engine}"):
        optimize_for_inference(classifier, engine, "float32", SHAPE, CPU)


@pytest.mark.parametrize("engine", ["folded", "compiled"])
def test_a_network_with_a_precision_of_its_own_is_refused_by_the_engine_that_would_change_it(
    engine,
):
    half = InHalf()
    check_deterministic(half, noisy_pair(SHAPE, CPU))
    with refuses(f"with engine {engine} the classifier must take .*; or use engine plain"):
        optimize_for_inference(half, engine, "float32", SHAPE, CPU)


def test_a_network_that_cannot_be_copied_is_refused_by_the_engine_that_copies_it():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    network.lock = Lock()
    with refuses("with engine folded the network must be one that can be copied, .*; or use"):
        optimize_for_inference(network, "folded", "float32", (3, 2, 2), CPU)


def test_an_unknown_engine_is_refused_by_its_name():
    with refuses("engine must be one of .*; got 'turbo'"):
        optimize_for_inference(smallnet(), "turbo", "float32", SHAPE, CPU)


def test_without_a_compiler_the_network_is_folded_and_a_warning_says_so(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no C++ compiler\nfound")

    monkeypatch.setattr(torch, "compile", broken)
    model = lived_in(smallnet(), SHAPE).eval()
    made = optimize_for_inference(model, "compiled", "float32", SHAPE, CPU)
    assert (made.engine, made.batch) == ("folded", BLOCK)
    warning = "warning: this network is not compiled (RuntimeError: no C++ compiler found)\n"
    assert capsys.readouterr().err == warning
    check_same(made.module, model)


def linear():
    """A network that is compiled soon: a product of matrices is no kernel of its own."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count"),
    [
        (linear, 9),
        pytest.param(
            lambda: WithLogits(lived_in(smallnet(), SHAPE)), 1, marks=pytest.mark.trust_only
        ),
    ],
    ids=["linear", "smallnet"],
)
def test_compiled_networks_vote_as_the_plain_ones_do_and_each_is_compiled_once(make, count):
    """All 600 votes on three images, in float32: rounding alone could part them, on draws between
    two classes.

    Dynamo compiles 8 networks by default.
    """
    ensemble = Ensemble([make() for _ in range(count)], SoftmaxAverage()).eval()
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["frames"]["ok"]
    made = optimize_for_inference(ensemble, "compiled", "float32", SHAPE, CPU)
    assert (made.engine, made.batch) == ("compiled", BLOCK)
    fast = SmoothedClassifier(made.module, 2, 0.5, batch=made.batch)
    plain = SmoothedClassifier(ensemble, 2, 0.5)
    with torch.compiler.set_stance("fail_on_recompile"):
        for index, x in enumerate(images(3, SHAPE)):
            counts = [one.certify(x, 50, 150, 0.01, index=index).counts for one in (fast, plain)]
            assert abs(counts[0] - counts[1]).sum() <= 2
    assert (
        torch._dynamo.utils.counters["frames"]["ok"] - before >= count
    )  # none is compiled again, as said above


def test_folding_leaves_the_model_as_it_was():
    model = lived_in(smallnet(), SHAPE).train()
    before = weights(model)
    fold(model, torch.bfloat16, SHAPE)
    assert model.training
    assert weights(model) == before
