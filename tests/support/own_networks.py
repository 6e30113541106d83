"""A module of a user's networks, and trainings of them on pictures by ``rs train``."""

from rs.command_line.train import main as train
from tests.support.helpers import exit_code

MODULE = """
from pathlib import Path

import torch
from torch import nn

class Small(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        maps = self.features(x)
        return self.fc(maps.view(len(maps), -1))

def network(classes=2):
    Path("built").touch()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Small(classes)

def thousand():
    return network(1000)

def fixed():
    return Small().requires_grad_(False)

class InPlace(Small):
    def forward(self, x):
        return super().forward(x.sub_(0.5))

class Unused(Small):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(2, 2)

def stored():
    small = network()
    small.fc.bias.data.fill_(torch.load("bias.pt"))
    return small
"""


def words(*more, method="gaussian", network="network", images="photos", out="model"):
    """Words of a training of one epoch, unless there are more."""
    named = [method, "--network", f"own_networks:{network}", "--images", images]
    return [*named, "--sigma", 0.25, "--epochs", 1, "--out", out, "--device", "cpu", *more]


def trained(*more, out="model", **named):
    """Train, and return the folder of the model."""
    assert exit_code(train, *words(*more, out=out, **named)) == 0
    return out
