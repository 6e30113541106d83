"""What users give to a smoothed classifier, and what they are told: ``rs.smoothing.inputs``."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from rs.smoothing import inputs
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.inputs import as_image
from tests.support.helpers import generator, refuses, smallnet, weights
from tests.support.networks import WithLogits

SIGMA = 0.25
RGB = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)  # (H, W, C)
TENSOR = torch.from_numpy(RGB.transpose(2, 0, 1).copy()).float() / 255
WEIGHTS = torch.randn(4, TENSOR.numel(), generator=generator())


def linear(x):
    """Four classes whose votes depend on every pixel."""
    return (x - 0.5).flatten(1) @ WEIGHTS.T


def smoothed(base=linear, **how):
    return SmoothedClassifier(base, **{"sigma": SIGMA, **how})


def text(certificate):
    return json.dumps(certificate.to_dict(), allow_nan=False)


# ------------------------------------------------------------------------------------------ images

SAME = {
    "tensor": TENSOR,
    "tensor, uint8": torch.from_numpy(RGB.transpose(2, 0, 1).copy()),
    "NumPy, (H, W, C), uint8": RGB,
    "NumPy, (C, H, W), float64": TENSOR.double().numpy(),
    "NumPy, (C, H, W), uint8": RGB.transpose(2, 0, 1),
    "NumPy, big-endian": TENSOR.numpy().astype(">f4"),
    "NumPy, masked nowhere": np.ma.masked_array(RGB),
    "Pillow": Image.fromarray(RGB),
}


@pytest.mark.parametrize("x", SAME.values(), ids=SAME)
def test_every_form_of_an_image_has_the_same_certificate(x):
    reference = smoothed().certify(TENSOR, 100, 300, 0.01)
    assert len(set(reference.counts) - {0}) > 1  # so that other pixels would have other votes
    assert text(smoothed().certify(x, 100, 300, 0.01)) == text(reference)
    assert smoothed().predict(x) == smoothed().predict(TENSOR)


@given(c=st.integers(1, 5), h=st.integers(1, 5), w=st.integers(1, 5))
def test_only_an_array_has_its_channels_last_and_only_where_they_can_be_and_cannot_be_first(
    c, h, w
):
    x = np.arange(c * h * w, dtype=np.uint8).reshape(c, h, w)
    can_be_last = w in (1, 3) and c not in (1, 3)
    expected = np.moveaxis(x, -1, 0) if can_be_last else x
    assert np.array_equal(as_image(x), expected.astype(np.float32) / 255)
    assert torch.equal(as_image(torch.from_numpy(x).double()), torch.from_numpy(x).float())
    if can_be_last:
        with refuses(r"could also be \(H, W, C\); give a tensor, which is always \(C, H, W\)"):
            as_image(x.astype(np.float64))
    else:
        assert np.array_equal(as_image(x.astype(np.float64)), x.astype(np.float32))


BAD_IMAGES = {
    "batch": (
        torch.stack([TENSOR, TENSOR]),
        r"base must take inputs of shape \(2, 3, 6, 5\).*; several images go to certify_many",
    ),
    "sparse": (TENSOR.to_sparse(), "dense tensor with numbers, got sparse_coo on cpu"),
    "on meta": (TENSOR.to("meta"), "dense tensor with numbers, got strided on meta"),
    "two axes": (RGB[..., 0], r"one image .* got shape \(6, 5\); give a gray image as x\[None\]"),
    "a path": ("photo.png", r"got str; open a file with PIL\.Image\.open"),
    "int64": (
        RGB.astype(np.int64),
        r"uint8 pixels, or floating-point pixels in \[0, 1\], got int64; divide",
    ),
    "masked": (
        np.ma.masked_less(RGB, 9),
        r"pixels without a mask, got \d+ masked ones; fill them first: x.filled\(0\)",
    ),
    "RGBA": (
        Image.fromarray(RGB).convert("RGBA"),
        r'got mode RGBA; convert it: x.convert\("RGB"\)',
    ),
    "0 to 255": (
        TENSOR * 255,
        r"pixels in \[0, 1\], got torch.float32 from 0.* to 2\d\d; divide 8-bit pixels by 255",
    ),
}


@pytest.mark.parametrize(("x", "message"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_an_image_that_is_none_is_refused(x, message):
    for ask in (smoothed().certify, smoothed().predict):
        with refuses(message):
            ask(x)


# ------------------------------------------------------------------------------------------ base
# classifiers


class Linear(nn.Module):
    """The function as a module."""

    def forward(self, x):
        return linear(x)


@pytest.mark.parametrize(
    "base",
    [Linear(), WithLogits(Linear()), lambda x: SimpleNamespace(logits=linear(x)), Linear().forward],
)
def test_every_form_of_a_base_classifier_has_the_same_certificate(base):
    made = smoothed(base).certify(TENSOR, 100, 300, 0.01)
    assert text(made) == text(smoothed(num_classes=4).certify(TENSOR, 100, 300, 0.01))


def test_a_base_classifier_that_writes_into_its_images_leaves_the_given_one_alone():
    x = TENSOR.clone()
    smoothed(lambda noisy: linear(noisy.mul_(2.0))).certify(x)
    assert torch.equal(x, TENSOR)


@pytest.mark.parametrize(
    "call", [lambda network: lambda x: network(x), lambda network: network.forward]
)
def test_a_plain_function_that_calls_a_network_in_training_mode_is_refused_before_it_runs(call):
    """In training mode the batch norm would use statistics of the noisy copies."""
    network = smallnet().train()
    before = weights(network)
    with refuses(
        r"must call networks in eval mode, but \w+ is in training mode; give the nn",
    ):
        smoothed(call(network)).certify(torch.rand(1, 4, 4))
    assert network.training
    assert weights(network) == before


def broken(x):
    """The user's own mistake."""
    raise KeyError("no such layer")


def returning(value):
    return lambda x: value(linear(x))


BAD_BASES = {
    "a class": (Linear, r"got the class Linear; create one: Linear\(\.\.\.\)"),
    "a path": (
        "models/digits",
        r"must be an nn.Module or a function of images, got str; .*rs.load\(path\).smooth\(\)",
    ),
    "a tuple": (
        returning(lambda z: (z, z)),
        r"logits \(N, K\), got a tuple of 2; return the logits alone",
    ),
    "an array": (
        returning(lambda z: z.detach().numpy()),
        r"logits \(N, K\), .*, got ndarray; convert it with torch.from_numpy",
    ),
    "on meta": (
        nn.Linear(2, 2, device="meta"),
        "base must hold its weights, but weight is on the device meta, .* load them",
    ),
    "half": (
        nn.Conv2d(3, 2, 3).half(),
        r"must take images of shape \(1, 3, 6, 5\), torch.float32 on cpu, but it raised .*Half",
    ),
    "one axis": (returning(lambda z: z[:, 0]), r"logits \(1, K\) of one image"),
    "no class": (returning(lambda z: z[:, :0]), r"logits \(1, K\) of one image, K at least 2"),
    "infinity": (
        returning(lambda z: z.index_fill(1, torch.tensor([2]), math.inf)),
        "finite numbers, got NaN or infinity",
    ),
}


@pytest.mark.parametrize(("base", "message"), BAD_BASES.values(), ids=BAD_BASES)
def test_a_base_classifier_that_is_none_is_refused(base, message):
    with refuses(message):
        smoothed(base).certify(TENSOR)


class Broken(nn.Module):
    """The same in a module."""

    def forward(self, x):
        broken(x)


@pytest.mark.parametrize("base", [broken, Broken()])
def test_the_error_of_a_classifier_is_the_cause(base):
    message = r"base must take images of shape \(\d+, 3, 6, 5\), .* raised KeyError: 'no such"
    with refuses(message) as caught:
        smoothed(base, num_classes=2).certify(TENSOR)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("you can't allocate memory")])
def test_too_little_memory_is_no_mistake_of_the_classifier(error):
    def greedy(x):
        raise error

    with pytest.raises(type(error)) as caught:
        smoothed(greedy).certify(TENSOR)
    assert caught.value is error


def test_a_score_of_minus_infinity_is_a_class_that_never_wins():
    made = smoothed(lambda x: torch.tensor([-math.inf, 0.0]).expand(len(x), 2)).certify(TENSOR)
    assert made.predict == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": "0.25"}, "sigma must be a positive number, got '0.25'"),
        ({"sigma": math.nan}, "sigma must be a positive number, got nan"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"batch": True}, "batch must be at least 1, got True"),
        (
            {"num_classes": 0.25, "sigma": None},
            "num_classes must be at least 2, got 0.25; .* give sigma by name",
        ),
    ],
)
def test_a_number_that_is_none_is_refused(changes, message):
    with refuses(message):
        smoothed(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n0": 0}, "n0 must be a whole number of noisy copies from 1 to 1,000,000,000, got 0"),
        ({"alpha": 1.0}, r"alpha must lie in \(0, 1\), got 1.0"),
        ({"alpha": 1e-250}, r"got 1e-250; .* at least 1e-200"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1; it names the noise"),
        ({"index": 2**32}, r"index must be below 2\^32, got 4294967296; it is a word of the key"),
    ],
)
def test_a_number_of_certify_that_is_none_is_refused(changes, message):
    with refuses(message):
        smoothed().certify(TENSOR, **changes)


def test_a_seed_may_have_any_length_and_the_index_32_bits():
    """As a secret seed of the operating system has."""
    assert smoothed().certify(TENSOR, 10, 10, seed=2**200, index=2**32 - 1).n == 10


def test_numbers_of_numpy_are_numbers():
    made = smoothed(num_classes=np.int64(4), sigma=np.float32(SIGMA)).certify(
        TENSOR, np.int64(100), np.int32(300)
    )
    assert text(made) == text(smoothed().certify(TENSOR, 100, 300))


# ------------------------------------------------------------------------------------------ many
# images

MANY = [TENSOR, RGB, 1 - TENSOR, Image.fromarray(RGB[::-1].copy())]


@pytest.mark.parametrize("form", [list, iter])
def test_certify_many_is_the_loop_with_positions_as_keys(form):
    loop = [text(smoothed().certify(x, 50, 150, 0.01, seed=3, index=i)) for i, x in enumerate(MANY)]
    assert loop[0] != loop[1]  # the same image, with other noise
    made = smoothed().certify_many(form(MANY), 50, 150, 0.01, seed=3)
    assert [text(certificate) for certificate in made] == loop


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (Image.fromarray(RGB), "images must be several images, got Image; pass one to"),
        (
            TensorDataset(TENSOR[None], torch.zeros(1)),
            r"got TensorDataset; .* without labels: \(data\[i\]\[0\]",
        ),
        (TENSOR, r"image 0: base must take inputs of shape \(6, 5\).* images\[:, None\]"),
        ([RGB, RGB[..., 0]], r"image 1: x of uint8 must be one .*, got shape \(6, 5\)"),
    ],
)
def test_certify_many_names_the_image_that_is_none(images, message):
    with refuses(message):
        smoothed().certify_many(images)


@pytest.mark.parametrize(
    ("mode", "divisor"),
    [("F", "LARGEST_POSSIBLE_VALUE"), ("I;16", "65535")],
)
def test_pictures_of_unknown_range_are_not_to_be_made_white(mode, divisor):
    with refuses(f"got mode {mode}; give values in .*{divisor}") as error:
        as_image(Image.new(mode, (8, 8), 20_000))
    assert "convert" not in str(error.value)


@pytest.mark.parametrize("leaves_first", [0, 1])
def test_who_still_evaluates_a_part_keeps_it_in_eval_mode_until_all_have_left(leaves_first):
    """As two threads that certify with one network: one may leave while the other is evaluating."""
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Dropout(), nn.Linear(4, 2).eval()))
    modes = [module.training for module in model.modules()]
    users = [inputs.evaluating(model), inputs.evaluating(model[1])]
    for user in users:
        user.__enter__()
    users.pop(leaves_first).__exit__(None, None, None)
    assert not model[1][0].training
    users.pop().__exit__(None, None, None)
    assert [module.training for module in model.modules()] == modes
    assert not inputs._evaluated
