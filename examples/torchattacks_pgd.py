"""PGD of torchattacks on a smoothed classifier: it breaks no certificate."""

import torch
import torchattacks
from torch import nn

import rs

SIGMA, RADIUS = 0.25, 0.1

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
images = torch.rand(8, 1, 4, 4)
smoothed = rs.SmoothedClassifier(network, 2, SIGMA, noise="gaussian")
certificates = smoothed.certify_many(images, alpha=1e-6, seed=1)
labels = smoothed.as_module(100)(images).argmax(dim=1)

attack = torchattacks.PGDL2(smoothed.as_module(100), eps=RADIUS, alpha=RADIUS / 4, steps=10)
attacked = attack(images, labels)
broken = 0
certified = 0
for x, certificate in zip(attacked, certificates, strict=True):
    if certificate.radius > RADIUS:
        certified += 1
        predicted = smoothed.predict(x.clamp(0, 1), alpha=1e-6, seed=2)
        broken += predicted not in (-1, certificate.predict)
print(f"{broken} of {certified} certificates broken")
