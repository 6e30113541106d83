"""Train and certify a classifier of sounds: waveforms (1, T) in [-1, 1], and a 1-D convolution.

The radius is an l2 distance in the unit of the waveform: within it, no added sound changes the
class. A sound of T samples whose root mean square is r has the norm r sqrt(T).
"""

import torch
from torch import nn

import rs

RATE, SAMPLES = 1_000, 400  # samples per second, and of each sound
PITCHES = (40.0, 100.0)  # of the two classes, in Hz
SIGMA = 0.25


def tones(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tones of random phase and loudness, (count, 1, T) in [-1, 1], and their classes."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    pitch = torch.tensor(PITCHES)[labels][:, None]
    phase = 2 * torch.pi * torch.rand(count, 1, generator=rng)
    loudness = 0.5 + 0.5 * torch.rand(count, 1, generator=rng)
    seconds = torch.arange(SAMPLES) / RATE
    return (loudness * torch.sin(2 * torch.pi * pitch * seconds + phase))[:, None], labels


torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv1d(1, 8, 25, stride=5),
    nn.BatchNorm1d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(8, 2),
)
sounds, labels = tones(200, seed=1)
settings = {"method": "gaussian", "epochs": 8, "training": {"eval_every": 0}}
robust = rs.train(network, sounds, labels, sigma=SIGMA, bounds=(-1, 1), **settings)

test_sounds, test_labels = tones(20, seed=2)
certificates = robust.smooth().certify_many(test_sounds, n=1_000, alpha=0.001)
radii = []
for certificate, label in zip(certificates, test_labels.tolist(), strict=True):
    radii.append(certificate.radius if certificate.predict == label else 0.0)
certified = sum(radius > SIGMA for radius in radii) / len(radii)
print(f"class and radius {SIGMA} certified: {certified:.0%} of {len(radii)} sounds")
