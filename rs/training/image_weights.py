"""How often an epoch draws each training image, for methods that weigh images."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from rs.data.prepared import Images
from rs.methods.base import WeightsImages
from rs.runtime import Precision
from rs.runtime.streams import Stream, stream
from rs.smoothing.classifier import autocast
from rs.training.image_votes import vote_shares
from rs.training.recipe import RunOptions


def weigh_images(
    method: WeightsImages,
    network: nn.Module,
    images: Images,
    weights: Tensor | None,
    *,
    epoch: int,
    options: RunOptions,
    precision: Precision,
) -> Tensor | None:
    """Return the probabilities (N,) by which an epoch draws the images; ``None`` shuffles them.

    Args:
        method: Decides on them, from accuracies under noise.
        network: Measures the accuracies, on ``options.device``.
        images: The training split.
        weights: The probabilities of the epoch before; ``None`` for equal ones.
        epoch: Epochs finished so far.
        options: Noise level, seed, device and workers.
        precision: Precision of the network.
    """
    count = len(images)
    labels = torch.from_numpy(images.labels)
    calls = itertools.count()

    def accuracies(numbers: Tensor, draws: int) -> Tensor:
        key = (Stream.VOTES, epoch, next(calls))
        rng = stream(options.seed, *key, device=options.device)
        with autocast(options.device, precision):
            shares = vote_shares(
                network, images, numbers, draws, options.sigma, rng, options.workers
            )
        return shares.gather(1, labels[numbers].unsqueeze(1)).squeeze(1)

    if weights is None:
        weights = torch.full((count,), 1 / count, dtype=torch.float64)
    return method.image_weights(epoch, weights, accuracies)
