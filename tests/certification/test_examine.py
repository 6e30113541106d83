"""Planted faults are found, and nothing is found in good classifiers: ``rs.certification.examine``."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rs.certification.examine import examine
from rs.certification.load import Classifier
from rs.data.format import Meta
from rs.data.images import PackedImages
from rs.ensemble.rules import Ensemble, SoftmaxAverage

CPU = torch.device("cpu")
SHAPE, CLASSES, SIGMA = (3, 6, 4), 5, 0.25
MEAN, STD = (0.5, 0.4, 0.6), (0.2, 0.25, 0.3)
CONSTANTS = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
TEMPLATES = torch.rand(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(3))
TEMPLATES[0], TEMPLATES[1] = 0.5, 0.75  # what pictures of little contrast look like


def labelled(count=150):
    """Images near the picture of their class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=count)
    pixels = 255 * TEMPLATES.numpy()[labels] + rng.normal(0, 12, (count, *SHAPE))
    meta = Meta(
        name="pictures", classes=tuple("abcde"), shape=SHAPE, mean=MEAN, std=STD, source="", sizes={"test": count},
        sha256={"test": ""},
    )  # fmt: skip
    return PackedImages(meta, pixels.clip(0, 255).round().astype(np.uint8), labels)


class Nearest(nn.Module):
    """Logits are larger the nearer the picture of a class is: right under much noise."""

    def __init__(self, before=lambda x: x, after=lambda logits: logits):
        super().__init__()
        self.before, self.after = before, after
        self.weight = nn.Parameter(TEMPLATES.flatten(1).clone())

    def forward(self, x):
        return self.after(self.near(self.before(x).flatten(1).to(self.weight.dtype)))

    def near(self, x):
        return x @ self.weight.T - self.weight.square().sum(1) / 2


class Hook(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return self.function(self, x)


class Brittle(Nearest):
    """Wrong about all that is farther from every picture than noise of 0.15 would put it."""

    def near(self, x):
        logits = super().near(x)
        nearest = (x[:, None] - self.weight).square().mean(2).amin(1, keepdim=True)
        return torch.where(nearest > 0.15**2, logits.roll(1, dims=1), logits)


def counted(hook, x):
    hook.seen += 1
    return x * hook.seen


def normalised(x):
    return (x - CONSTANTS[0]) / CONSTANTS[1]


def unnormalised(x):
    return x * CONSTANTS[1] + CONSTANTS[0]


def renamed(logits):
    return logits.roll(1, dims=1)


class Always(nn.BatchNorm2d):
    def train(self, mode=True):
        return super().train(True)


def examined(model, sigma=SIGMA):
    loaded = Classifier("own:model", model, None, tuple("abcde"), SHAPE, None, "model")
    return examine(loaded, labelled(), sigma, CPU)


FAULTS = {
    "dropout": (nn.Sequential(Hook(lambda _, x: F.dropout(x, 0.5, training=True)), Nearest()), {}, "from one call"),
    "batch statistics": (nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), Nearest()), {}, "other images"),
    "always training": (nn.Sequential(Always(3), Nearest()), {}, "stays in training mode"),
    "state": (nn.Sequential(Hook(counted), Nearest()), {}, "changes at every call"),
    "place": (Nearest(lambda x: x * torch.arange(1, len(x) + 1)[:, None, None, None]), {}, "place in the batch"),
    "writes": (Nearest(lambda x: x.mul_(1.0).add_(0.1)), {}, "leave its images as they are"),
    "not finite": (Nearest(after=lambda logits: logits / 0), {}, "must be finite"),
    "tuple": (Nearest(after=lambda logits: (logits,)), {}, "must return logits .* got a tuple of 1"),
    "missing class": (Nearest(after=lambda logits: logits[:, 1:]), {}, "must have 5 logits.*it has 4"),
    "probabilities": (Nearest(after=lambda logits: logits.softmax(1)), {}, "returns probabilities"),
    "one class": (Nearest(after=lambda logits: logits * torch.tensor([1.0, 0, 0, 0, 0]) + 99), {}, "same class"),
    "255": (Nearest(lambda x: x / 255), {}, "want pixels of 0 to 255"),
    "normalised": (Nearest(unnormalised), {}, "want normalised pixels"),
    "normalised twice": (Brittle(normalised), {}, "normalise twice"),
    "minus one to one": (Nearest(lambda x: (x + 1) / 2), {}, "want pixels of -1 to 1"),
    "BGR": (Nearest(lambda x: x.flip(1)), {}, "BGR"),
    "names": (Nearest(after=renamed), {}, "other numbers than the data set's: 0 for 4"),
    "255ths": (Nearest(), {"sigma": 64.0}, "in pixels of.*0.251"),
    "clips": (Nearest(lambda x: x.clamp(0, 1)), {}, "clips its images"),
    "noise": (Brittle(), {}, "not to be trained with noise of 0.25"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    model, options, expected = FAULTS[name]
    found = examined(model, **options)
    assert found, "nothing was found"
    assert re.search(expected, found[0].text), found


GOOD = {
    "nearest": Nearest(),
    "normalises": nn.Sequential(Hook(lambda _, x: normalised(x)), Nearest(unnormalised)),
    "from -1 to 1": nn.Sequential(Hook(lambda _, x: 2 * x - 1), Nearest(lambda x: (x + 1) / 2)),
    "float64": Nearest().double(),
    "dropout off": nn.Sequential(nn.Dropout2d(0.5), Nearest()),
    "batch norm": nn.Sequential(nn.BatchNorm2d(3), Nearest()),
    "large logits": Nearest(after=lambda logits: 1000 * logits),
    "log of probabilities": Nearest(after=lambda logits: logits.log_softmax(1)),
    "channels last": nn.Sequential(nn.Conv2d(3, 3, 1, groups=3, bias=False), Nearest()).to(
        memory_format=torch.channels_last
    ),
    "ensemble": Ensemble([Nearest(), Nearest()], SoftmaxAverage((0.5, 0.5))),
}
nn.init.ones_(GOOD["channels last"][0].weight)


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_found_in_a_good_classifier(name):
    assert examined(GOOD[name].train()) == []


def test_without_the_noise_nothing_is_tried_under_it():
    (finding,) = examined(Nearest(), sigma=None)
    assert finding.level == "warning"
    assert "give --sigma" in finding.text
