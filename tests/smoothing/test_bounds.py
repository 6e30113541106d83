"""Inputs that are no images: other ranges, other numbers of axes, one logit for two classes."""

import math

import pytest
import torch
from PIL import Image
from scipy.stats import norm
from torch import nn

from rs.errors import InputWarning
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import ABSTAIN
from tests.support.helpers import generator, refuses

NUMBERS, SIGMA = 24, 0.5
SHAPES = [(24,), (4, 6), (1, 24), (2, 3, 4), (1, 2, 3, 4), (3, 2, 2, 1, 2)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)

WEIGHTS = torch.randn(NUMBERS, generator=generator(1))
INPUT = 2 * torch.rand(NUMBERS, generator=generator(2)) - 1


def linear(x):
    """Class 1 where w x > 0, whatever the axes."""
    score = x.flatten(1) @ WEIGHTS
    return torch.stack([-score, score], dim=1)


def one_logit(x):
    return (2 * x.flatten(1) @ WEIGHTS)[:, None]


@every_shape
@pytest.mark.parametrize("bounds", [(-1, 1), None])
def test_the_certificate_of_numbers_does_not_depend_on_their_axes(shape, bounds):
    smoothed = SmoothedClassifier(linear, sigma=SIGMA, bounds=bounds)
    expected = smoothed.certify(INPUT.view(1, 1, -1), seed=3)
    made = smoothed.certify(INPUT.view(shape), seed=3)
    assert made.to_dict() == expected.to_dict()
    assert made.to_dict() == smoothed.certify(INPUT.view(shape).numpy(), seed=3).to_dict()
    many = smoothed.certify_many(INPUT.view(1, *shape), seed=3)
    assert [one.to_dict() for one in many] == [made.to_dict()]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_radius_is_in_the_unit_of_the_inputs_and_below_the_distance_to_the_boundary(scale):
    smoothed = SmoothedClassifier(linear, sigma=SIGMA * scale, bounds=None)
    distance = scale * float(INPUT @ WEIGHTS / WEIGHTS.norm())
    certificate = smoothed.certify(INPUT * scale, n=10_000, alpha=1e-6)
    assert certificate.predict == int(distance > 0)
    assert certificate.radius <= abs(distance)
    unanimous = smoothed.certify(1e3 * scale * INPUT, n=500, alpha=0.01)
    assert math.isclose(unanimous.radius, SIGMA * scale * norm.ppf(0.01 ** (1 / 500)))


@pytest.mark.parametrize(
    ("bounds", "value", "message"),
    [
        ((0, 1), -0.5, r"pixels in \[0, 1\], got torch.float32 from -0.5 to .*; .* give bounds="),
        ((-1, 1), 1.01, r"finite floating-point numbers within \[-1, 1\], got .* to 1.01; correct"),
        (None, math.nan, r"finite floating-point numbers within no bounds, got .* nan to nan"),
    ],
)
def test_an_input_beyond_its_bounds_is_refused(bounds, value, message):
    x = torch.zeros(1, 24, dtype=torch.float64)
    x[0, 5] = value
    with refuses(message):
        SmoothedClassifier(linear, sigma=SIGMA, bounds=bounds).certify(x)


@pytest.mark.parametrize("bounds", [(1, 0), (0, math.inf), 3, (0, 1, 2)])
def test_bounds_are_two_finite_increasing_numbers(bounds):
    with refuses(r"bounds must be the least .*, got .*"):
        SmoothedClassifier(linear, sigma=SIGMA, bounds=bounds)


@pytest.mark.parametrize("x", [torch.ones(1, 24).byte(), Image.new("L", (6, 4))])
def test_8_bit_pixels_are_taken_within_0_and_1_alone(x):
    with refuses(r"must hold floating-point numbers .*, got .*uint8"):
        SmoothedClassifier(linear, sigma=SIGMA, bounds=(0, 255)).certify(x)


@pytest.mark.parametrize("bounds", [(-1, 1), (0, 255), None])
def test_noise_on_the_grid_is_for_pixels_alone(bounds):
    with refuses(r"noise must be gaussian .*; leave noise out"):
        SmoothedClassifier(linear, sigma=SIGMA, bounds=bounds, noise="grid")
    x = torch.ones(24)  # a multiple of 1/255
    elsewhere = SmoothedClassifier(linear, sigma=SIGMA, bounds=bounds).certify(x)
    assert elsewhere.noise == "gaussian"
    assert SmoothedClassifier(linear, sigma=SIGMA).certify(x).noise == "grid"


def test_a_sigma_of_the_255_scale_is_refused_for_pixels_alone():
    with refuses("did you mean 64/255"):
        SmoothedClassifier(linear, sigma=64)
    x = torch.full((24,), 128.0)
    assert SmoothedClassifier(linear, sigma=64, bounds=(0, 255)).certify(x).sigma == 64


class Pooled(nn.Sequential):
    """A network of gray images that takes one of them without its first axis."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten(0))

    def forward(self, x):
        logits = super().forward(x)
        return logits.view(-1, 2)


@pytest.mark.parametrize(
    ("x", "remedy"),
    [
        (torch.rand(8, 8), r"gray images have the shape \(1, H, W\): x\[None\]"),
        (torch.rand(5, 1, 8, 8), "several images go to certify_many"),
    ],
)
def test_axes_that_the_network_does_not_take_are_refused_with_a_remedy(x, remedy):
    with refuses(remedy):
        SmoothedClassifier(Pooled(), sigma=SIGMA).certify(x)
    assert SmoothedClassifier(Pooled(), sigma=SIGMA).certify(torch.rand(1, 8, 8)).n > 0


# ------------------------------------------------------------------------------------------ one
# logit


def test_one_logit_has_the_certificates_of_two_classes():
    one = SmoothedClassifier(one_logit, sigma=SIGMA, bounds=None)
    two = SmoothedClassifier(linear, sigma=SIGMA, bounds=None)
    for index, x in enumerate(torch.randn(8, NUMBERS, generator=generator(4))):
        made = one.certify(x, index=index, label=0)
        assert made.to_dict() == two.certify(x, index=index, label=0).to_dict()
        assert one.predict(x, index=index) == two.predict(x, index=index)
    assert one.num_classes == 2
    assert one.certify(torch.zeros(NUMBERS)).predict == ABSTAIN


def test_one_probability_in_place_of_a_logit_gives_a_warning():
    smoothed = SmoothedClassifier(lambda x: one_logit(x).sigmoid(), sigma=SIGMA, bounds=None)
    with pytest.warns(InputWarning, match=r"all of 100 lie in \[0, 1\], .*; leave out the sigmoid"):
        smoothed.certify(INPUT, n=100)
