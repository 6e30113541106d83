"""Networks that are hard to fold or to trace, and images for them."""

from types import SimpleNamespace

import torch
from torch import nn

from rs.models.architectures import CifarResNet, Normalize
from tests.support.helpers import SHAPE, generator, smallnet

COLOR = (3, 8, 8)
ROUNDING = 20 * 576 * 2**-53
"""Of float64 in resnet20, the deepest here: 20 layers, each a sum of up to 64 * 3 * 3 terms."""


def mlp(numbers, classes, hidden=8, activation=nn.Tanh, seed=0):
    """A network with one hidden layer, of inputs with so many numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Linear(numbers, hidden), activation(), nn.Linear(hidden, classes)]
    return nn.Sequential(nn.Flatten(), *layers)


class Scaled(nn.Module):
    """A network of inputs in [0, 2] as one of inputs in [0, 1]."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(2 * x)


def lived_in(model, shape):
    """A model whose batch norms have seen images, and which has scales and shifts of its own."""
    rng = generator()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data = 0.5 + torch.rand(module.weight.shape, generator=rng)
            module.bias.data = torch.randn(module.bias.shape, generator=rng) / 10
            module.running_mean = torch.randn(module.running_mean.shape, generator=rng) / 10
            module.running_var = 0.5 + torch.rand(module.running_var.shape, generator=rng)
    return model


def tiny():
    return lived_in(smallnet(), SHAPE)


def images(count, shape, seed=1):
    return torch.rand(count, *shape, generator=generator(seed))


class Layer(nn.Module):
    """A function of this layer and of images, which may have a state."""

    def __init__(self, function):
        super().__init__()
        self.function, self.calls = function, 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.function(self, x)


def counted(layer, x):
    layer.seen += 1
    return x * layer.seen


def close(found, expected, bound=ROUNDING):
    return (found - expected).abs().max() <= bound * expected.abs().max()


class Branches(nn.Module):
    """What torch.fx cannot trace."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x):
        x = self.norm(self.conv(x)).mean(dim=(2, 3))
        return x if x.sum() > 0 else x * 2


class WithLogits(nn.Module):
    """A network whose output has the attribute ``logits``, as those of transformers have."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return SimpleNamespace(logits=self.network(x))


def hooked():
    """A network whose hook fx would drop."""
    model = smallnet()
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2 - 0.3,))
    return model


class Measures(Branches):
    """What torch.fx refuses with an error of its own."""

    def forward(self, x):
        return self.norm(self.conv(x)).reshape(len(x), -1)[:, :2]


def residual():
    """A network with shortcuts, sums and a mean over the picture, for color images."""
    model = nn.Sequential()
    model.add_module("normalize", Normalize([0.5] * 3, [0.25] * 3))
    model.add_module("network", CifarResNet(COLOR, 4, (1, 1, 1), (4, 8, 16)))
    return lived_in(model, COLOR).eval()
