"""Small problems for tests of attacks."""

import math

import torch
from hypothesis import strategies as st
from torch import nn

from tests.support.helpers import generator

B, M, K, SHAPE = 4, 3, 3, (1, 3, 3)
ULP = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


class Ramp(nn.Module):
    """Two classes with logits (scale w.x - offset, 0): label 1 is lost along +w. Remembers every batch it is given."""

    def __init__(self, w, scale=1.0, offset=0.0):
        super().__init__()
        self.w, self.scale, self.offset, self.seen = torch.as_tensor(w), scale, offset, []

    def forward(self, x):
        self.seen.append(x.detach().clone())
        score = self.scale * (x.flatten(1) @ self.w.to(x.dtype)) - self.offset
        return torch.stack([score, torch.zeros_like(score)], dim=1)


def net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, K)).double()


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    shape = tuple(draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))))
    rng = generator(draw(st.integers(0, 10**6)))
    x = torch.rand(shape, generator=rng, dtype=dtype)
    x = x.where(torch.rand(shape, generator=rng) > 0.5, x.round())  # many pixels on the faces of the box
    noise = 0.5 * torch.randn((shape[0], draw(st.integers(1, 3)), *shape[1:]), generator=rng, dtype=dtype)
    w = draw(st.sampled_from([0.0, 1.0, 1e3])) * torch.randn(math.prod(shape[1:]), generator=rng, dtype=dtype)
    return Ramp(w), x, torch.randint(2, (shape[0],), generator=rng), noise
