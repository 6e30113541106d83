"""Images and noise that a classifier is tried with, and tests of how often it is right."""

from __future__ import annotations

import math

import torch
from scipy.stats import binom
from torch import Tensor, nn

from rs.certification.expected_input import AS_IT_IS, Alternative, alternatives
from rs.data.prepared import Images
from rs.smoothing.inputs import evaluate
from rs.smoothing.noise import gaussian
from rs.statistics.certificate import UNLABELED

FALSE_ALARM = 2.2e-4
"""Largest probability that anything is found in a good classifier by chance, over all checks."""

CHECKS = 7
"""Checks that can be wrong by chance.

They are those of the order of classes, of other inputs, of the first batch norm, of one class for
all images, of poor accuracy, of accuracy under more noise and of accuracy without noise.
"""

LEVEL = FALSE_ALARM / CHECKS
"""Level of a check, about 4 standard errors; it is divided by the number of its alternatives."""

BATCH = 100
"""Images in a batch."""

SAMPLES = 8
"""Noise samples of each image, the same for all alternatives."""


class Trial:
    """A classifier, and the images and the noise that it is tried with."""

    def __init__(
        self,
        module: nn.Module,
        images: Images,
        sigma: float | None,
        device: torch.device,
        count: int,
    ) -> None:
        count = min(count, len(images))
        indices = torch.linspace(0, len(images) - 1, count).round().long().tolist()
        self.module = module
        self.sigma = sigma or 0.0
        self.condition = f"under noise of {sigma:g}" if sigma else "without noise"
        self.is_labeled = not (images.labels == UNLABELED).any()
        self.x = torch.stack([images.pixels(index) for index in indices]).to(device)
        self.labels = torch.as_tensor(images.labels)[indices].to(device)
        self.alternatives = alternatives(*_mean_and_std(self.x, images))

    def noisy(self, sigma: float, sample: int = 0) -> Tensor:
        """Return the images with noise that depends on the number of the sample alone."""
        rng = torch.Generator().manual_seed(sample)
        return self.x + gaussian(self.x.shape, sigma, rng).to(self.x.device)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W)."""
        return torch.cat([evaluate(self.module, part).float() for part in x.split(BATCH)])

    def right(
        self, sigma: float, samples: int = SAMPLES, alternative: Alternative = AS_IT_IS
    ) -> Tensor:
        """Return which noise samples of each image are classified as its label, (N, samples).

        Without noise, one sample is enough.
        """
        columns = []
        for sample in range(samples if sigma else 1):
            logits = self.logits(alternative.of(self.noisy(sigma, sample)))
            columns.append(logits.argmax(1) == self.labels)
        return torch.stack(columns, 1)


def _mean_and_std(x: Tensor, images: Images) -> tuple[Tensor, Tensor]:
    mean = torch.tensor(images.meta.mean).view(-1, 1, 1).to(x)
    std = torch.tensor(images.meta.std).view(-1, 1, 1).to(x)
    if mean.any():
        return mean, std
    # A folder of pictures has no statistics of its own.
    return x.mean((0, 2, 3)).view_as(mean), x.std((0, 2, 3)).view_as(std).clamp(min=1 / 255)


def is_larger(first: Tensor, second: Tensor, alternatives: int = 1) -> bool:
    """Return whether the first (N, samples) is larger for clearly more images, by a sign test."""
    difference = first.double().mean(1) - second.double().mean(1)
    wins = int((difference > 0).sum())
    differing = int((difference != 0).sum())
    return bool(binom.sf(wins - 1, differing, 0.5) <= LEVEL / alternatives)


def fewest_images(alternatives: int) -> int:
    """Return the fewest images with which one of the alternatives can be clearly better."""
    return math.ceil(math.log2(alternatives / LEVEL))


def percent(right: Tensor) -> str:
    """Return the share of right samples."""
    return f"{float(right.float().mean()):.0%}"
