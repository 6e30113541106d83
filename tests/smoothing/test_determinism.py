"""Classifiers that are one function of each image, and those that are not:
``rs.smoothing.determinism``.
"""

import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import rs
from rs.certification.certify_model import certify_images
from rs.ensemble.base import Cascade, Ensemble, SoftmaxAverage
from rs.errors import NotDeterministicError
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.determinism import check_deterministic, checking_determinism
from rs.smoothing.noise import noisy_pair
from rs.smoothing.settings import CertificationSettings
from rs.storage.provenance import Provenance
from tests.support.helpers import CERTIFY, SHAPE, refuses, smallnet, tiny_images
from tests.support.networks import Layer, counted, lived_in

CPU = torch.device("cpu")

pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.(script|freeze). is deprecated:FutureWarning"
)


def network(*layers):
    """A network of convolutions with these layers in its middle."""
    torch.default_generator.manual_seed(0)
    return nn.Sequential(nn.Conv2d(SHAPE[0], 4, 3), *layers, nn.Flatten(), nn.Linear(4 * 2 * 2, 5))


def stateless(function):
    """A layer that is a function of its images alone."""
    return Layer(lambda _, x: function(x))


def scaled_by_place(x):
    places = torch.arange(1, len(x) + 1)
    return x * places[:, None, None, None]


def first_of_several_doubled(x):
    if len(x) == 1:
        return x
    return torch.cat([2 * x[:1], x[1:]])


def started(layer, x):
    """Add 1 from the second call on."""
    before = layer.seen.clone()
    layer.seen.fill_(1)
    return x + before


BROKEN = {
    "dropout": (
        stateless(lambda x: F.dropout(x, 0.5, training=True)),
        "from one call to the next.*dropout that is always on",
    ),
    "statistics": (
        nn.BatchNorm2d(4, track_running_stats=False),
        "with the other images of the batch",
    ),
    "place": (stateless(scaled_by_place), "place in the batch"),
    "first place": (stateless(first_of_several_doubled), "place in the batch"),
    "first call": (Layer(started), "from one call to the next"),
    "state": (Layer(counted), "from one call to the next"),
    "infinite": (stateless(lambda x: x / 0), "must be finite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_one_function_is_refused(name):
    layer, message = BROKEN[name]
    with refuses(message):
        check_deterministic(network(layer), noisy_pair(SHAPE, CPU))


def test_a_network_of_torch_export_votes_as_the_network_also_inside_others():
    """It refuses ``eval`` until it is a base classifier, and is in the mode of its export."""
    model = network(nn.BatchNorm2d(4)).eval()
    shapes = [{0: torch.export.Dim("images", min=1)}]
    two_images = (torch.zeros(2, *SHAPE),)
    exported = torch.export.export(model, two_images, dynamic_shapes=shapes).module()

    def votes(module):
        smoothed = rs.load(module).smooth(0.5)
        return smoothed.votes(torch.full(SHAPE, 0.5), 100, 0, 0).tolist()

    expected = votes(model)
    assert votes(nn.Sequential(nn.Identity(), exported)) == expected
    assert votes(exported) == expected
    assert max(expected) < 100


def logits_by_batch_size(x):
    return x.flatten(1)[:, : 2 * len(x)]


def changes_its_images(x):
    return x.sub_(0.5).flatten(1)


def changes_later_images(x):
    logits = x.flatten(1).clone()
    x[1:].zero_()
    return logits


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (logits_by_batch_size, "with the other images of the batch, by inf"),
        (changes_its_images, "must not change its images"),
        (changes_later_images, "must not change its images"),
    ],
)
def test_what_does_not_return_logits_is_refused(function, message):
    with refuses(message):
        check_deterministic(stateless(function), noisy_pair(SHAPE, CPU))


def smallnet_of_five_classes():
    return nn.Sequential(lived_in(smallnet(), SHAPE), nn.ConstantPad1d((0, 3), 0.0))


GOOD = {
    "smallnet": smallnet_of_five_classes,
    "dropout": lambda: network(nn.Dropout2d(0.5)),
    "constant": lambda: network(stateless(torch.zeros_like)),
    "scripted": lambda: torch.jit.script(network(nn.BatchNorm2d(4))),
    "float64": lambda: nn.Sequential(stateless(torch.Tensor.double), network().double()),
}


def drifting(layer, x):
    """Subtract a running mean of all calls."""
    centered = x - layer.seen
    layer.seen.lerp_(x.mean(), 3e-4)
    return centered


def stochastic_depth(rate):
    """A residual layer that some images skip."""
    rng = np.random.default_rng(1)

    def residual(x):
        is_kept = rng.random((len(x), 1, 1, 1)) >= rate
        return x + x * torch.from_numpy(is_kept)

    return stateless(residual)


def normalized_in_large_batches(x):
    if len(x) < 16:
        return x
    return F.batch_norm(x, None, None, training=True)


def test_frozen_torchscript_hides_its_weights_and_is_refused():
    with refuses("must not be frozen TorchScript, whose weights cannot be read"):
        SmoothedClassifier(torch.jit.freeze(torch.jit.script(network().eval())), 5, 0.5)


def certify_checked(model, classes, images, **options):
    """Certificates of images, from a run that is checked."""
    smoothed = SmoothedClassifier(model, classes, 0.5, **options)
    checked_images = checking_determinism(images, [smoothed.base])
    return smoothed.certify_many(checked_images)


@pytest.mark.parametrize("rule", [None, SoftmaxAverage(), Cascade((2.0,))])
def test_many_certificates_refuse_what_is_not_one_function_as_one_does(rule):
    model = network(stochastic_depth(0.5))
    if rule is not None:
        model = Ensemble([network(), model], rule)
    images = [tiny_images().pixels(index) for index in range(2)]
    with pytest.raises(NotDeterministicError):
        certify_checked(model, 5, images)


LATE = {  # what two images do not show, and how many images of a run show
    "batch statistics from 16 images on": (
        lambda: stateless(normalized_in_large_batches),
        3,
        "a batch of 100 and its images alone",
    ),
    "an error at the end": (
        lambda: Layer(lambda layer, x: x[layer.calls > 21 :]),
        3,
        "must have the shape",
    ),
    "running mean": (lambda: Layer(drifting), 60, "the start and the end"),
    "stochastic depth of 1 %": (lambda: stochastic_depth(0.01), 60, "differ between"),
}


def certify(model, images, out, **changes):
    """Certify images of the tiny data set in batches of 100, 500 and 500; 1,100 evaluations an
    image.
    """
    values = CERTIFY | {"n0": 100, "n": 1000, "subset": "all"} | changes
    settings = CertificationSettings(**values)
    provenance = Provenance(classifier="a", scope="model", sigma=0.5, subset="all")
    classifier = SmoothedClassifier(model, 5, 0.5, precision=settings.precision)
    indices = np.arange(images)
    certify_images(classifier, tiny_images(images), indices, settings, CPU, provenance, out)


@pytest.mark.parametrize("name", LATE)
def test_what_two_images_do_not_show_is_refused_and_leaves_no_rows(name, tmp_path, work):
    make_layer, images, message = LATE[name]
    model = network(make_layer())
    out = tmp_path / "rows"
    check_deterministic(model, noisy_pair(SHAPE, CPU))
    with pytest.raises(NotDeterministicError, match=message):
        certify(model, images, out / "rows.tsv")
    assert not out.exists()
    assert os.listdir(work) == []  # nor what the same command would continue


@pytest.mark.parametrize(
    ("name", "precision"),
    [("smallnet", "bfloat16"), *((name, "float32") for name in GOOD)],
)
def test_a_run_of_what_is_one_function_is_not_refused(name, precision, tmp_path):
    out = tmp_path / "rows.tsv"
    certify(GOOD[name](), 3, out, precision=precision)
    assert out.exists()


def sizes_of_calls(images, **options):
    """The sizes of all batches of a checked run."""
    sizes = []
    model = nn.Flatten()
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    certify_checked(model, 16, [torch.zeros(SHAPE)] * images, **options)
    assert not model._forward_hooks
    return sizes


@pytest.mark.parametrize("images", [3, 60])
def test_from_three_images_on_it_costs_less_than_a_hundredth(images):
    assert 1100 * images < sum(sizes_of_calls(images)) < 1.01 * 1100 * images


def test_the_check_at_the_end_has_no_larger_batch_than_the_run():
    sizes = sizes_of_calls(3, batch=7)
    assert max(sizes) == 7
    assert sum(sizes) > 3300  # there was a check


def answers_otherwise_at(is_other_call, places=slice(None)):
    """A network whose logits at these places of a batch are others in some of its calls."""

    def logits(layer, x):
        changed = x.flatten(1)[:, :5].clone()
        changed[places] += float(is_other_call(layer.calls))
        return changed

    return Layer(logits)


CALLS_OF_THREE_IMAGES = 9 + 8 + 2
"""Batches of the run, single images of the first two of them, and the calls at the end."""


@given(
    others=st.sets(st.integers(1, CALLS_OF_THREE_IMAGES))
    | st.integers(1, 19).map(lambda call: {call})
)
@example(others=set())
@example(others=set(range(1, CALLS_OF_THREE_IMAGES + 1)))
def test_a_run_passes_only_if_all_of_its_calls_answer_in_one_way(others):
    """So chance p per call passes with probability (1 - p)^19 + p^19."""
    model = answers_otherwise_at(lambda call: call in others)
    images = [torch.zeros(SHAPE)] * 3
    if len(others) in (0, CALLS_OF_THREE_IMAGES):
        certify_checked(model, 5, images)
        assert model.calls == CALLS_OF_THREE_IMAGES
        return
    with pytest.raises(NotDeterministicError):
        certify_checked(model, 5, images)


@pytest.mark.parametrize(("period", "places"), [(33, slice(50)), (97, slice(50, None))])
def test_a_network_that_differs_at_every_kth_call_is_refused(period, places, tmp_path):
    """34 images are 102 calls, so one of each 97 calls in a row is compared, at changing places."""
    model = answers_otherwise_at(lambda call: call % period == 0, places)
    with pytest.raises(NotDeterministicError, match="the start and the end"):
        certify(model, 34, tmp_path / "rows.tsv")


def test_images_of_several_shapes_are_watched():
    images = [torch.full((3, side, side), 0.5) for side in (4, 5, 4)]
    mean_color = stateless(lambda x: x.mean(dim=(2, 3)))
    assert len(certify_checked(mean_color, 3, images)) == 3
    with pytest.raises(NotDeterministicError, match="the start and the end"):
        certify_checked(answers_otherwise_at(lambda call: call > 13), 5, images)
