import itertools

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from rs.models import architectures
from tests.support.helpers import refuses
from tests.support.networks import images, lived_in

CIFAR = (3, 32, 32)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def build(architecture, shape=CIFAR, num_classes=10, seed=0):
    return architectures.build(
        architecture, shape, num_classes, MEAN[: shape[0]], STD[: shape[0]], seed
    )


def count(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("architecture", "published"), [("resnet110", 1_730_714), ("resnet20", 272_474)]
)
def test_parameters_are_as_many_as_published(architecture, published):
    model = build(architecture)
    assert count(model) == published
    assert isinstance(model.network.fc, architectures.Logits)  # which computes in float32


def test_resnet50_has_the_published_parameters_and_its_stride_in_the_3x3_convolution():
    network = architectures.ARCHITECTURES["resnet50"]((3, 224, 224), 1000)
    assert count(network) == 25_557_032
    assert (network.layer2[0].conv1.stride, network.layer2[0].conv2.stride) == ((1, 1), (2, 2))
    assert isinstance(network.fc, architectures.Logits)


def test_convolutions_start_from_he_fan_out():
    """The sum of w^2 / (2 / (k^2 C_out)) is chi-square with as many degrees as weights."""
    network = build("resnet20").network
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            variance = 2 / (layer.kernel_size[0] ** 2 * layer.out_channels)
            value = layer.weight.double().square().sum().item() / variance
            low, high = stats.chi2.ppf([1e-8, 1 - 1e-8], layer.weight.numel())
            assert low < value < high
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()  # of the last one in a block too


def slow_resnet20(state, x):
    """Logits of a ResNet with option-B shortcuts in eval mode, from the weights by their names."""

    def convolved(x, conv, norm, stride=1):
        weight = state[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(state[f"{norm}.{name}"] for name in names))

    x = F.relu(convolved(x, "conv1", "bn1"))
    for stage, i in itertools.product((1, 2, 3), range(3)):
        block, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
        inner = F.relu(convolved(x, f"{block}.conv1", f"{block}.bn1", stride))
        if stride == 2:
            x = convolved(x, f"{block}.downsample.0", f"{block}.downsample.1", stride)
        x = F.relu(convolved(inner, f"{block}.conv2", f"{block}.bn2") + x)
    return F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])


def test_resnet20_is_its_slow_form():
    network = lived_in(build("resnet20").network, CIFAR).eval()
    x = images(2, CIFAR)
    torch.testing.assert_close(
        network(x), slow_resnet20(network.state_dict(), x), rtol=1e-4, atol=1e-5
    )


def test_an_unknown_architecture_is_refused_with_the_known_ones():
    with refuses("resnet110, resnet20, resnet8, fastnet, resnet50, smallnet.*; got 'ResNet110'"):
        build("ResNet110")


@pytest.mark.parametrize(
    ("architecture", "shape", "channels"),
    [
        ("resnet20", (3, 0, 32), 3),
        ("resnet20", (1, 32, 32), 3),  # three means for one channel
        ("smallnet", (1, 1, 1, 8, 8), 1),
    ],
)
def test_a_shape_the_network_cannot_take_is_refused_in_one_line(architecture, shape, channels):
    with refuses("shape") as caught:
        architectures.build(architecture, shape, 10, MEAN[:channels], STD[:channels], 0)
    assert str(tuple(shape)) in str(caught.value)
