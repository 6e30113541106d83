"""A compiler that changes nothing."""

import pytest
from torch import nn


class Unchanged(nn.Module):
    """In the place of a compiled network: the network, and the shapes that it was given, with or
    without gradient.
    """

    def __init__(self, module):
        super().__init__()
        self.module, self.seen = module, []

    def forward(self, x):
        self.seen.append((len(x), x.requires_grad))
        return self.module(x)


@pytest.fixture
def compiler(monkeypatch):
    """What was compiled."""
    networks = []
    monkeypatch.setattr(
        "rs.training.attack_backend.compiled",
        lambda module, _: (networks.append(Unchanged(module)), networks[-1])[1],
    )
    return networks
