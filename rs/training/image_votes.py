"""Votes of a network on noisy copies of training images: targets, and accuracies under noise."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rs.data.prepared import EpochPlan, Images
from rs.methods.base import Accuracies, TargetSettings
from rs.runtime import Precision
from rs.runtime.streams import Stream, process_key, stream
from rs.smoothing.classifier import autocast
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import add_noise, training_noise
from rs.storage import files
from rs.training.attack_backend import frozen
from rs.training.recipe import RunOptions

BATCH = 500
"""Images in a batch, one noisy copy of each."""

BLOCK = 10_000
"""Images of a file of votes, which a stopped training does not count again."""


def vote_shares(
    network: nn.Module,
    images: Images,
    numbers: Tensor,
    draws: int,
    sigma: float,
    rng: Generator,
    workers: int = 0,
) -> Tensor:
    """Return the share of noisy copies of each image that a network assigns to each class.

    Args:
        network: Images in [0, 1] (B, C, H, W) -> logits (B, K), on the device of ``rng``; runs in
            eval mode.
        images: The split; without crop or flip.
        numbers: Indices of its images, shape (N,).
        draws: Noisy copies of each image.
        sigma: Noise standard deviation, in pixels of [0, 1].
        rng: Stream of the noise.
        workers: Processes that read lazy images.
    Returns:
        float64 (N, K), on the CPU.
    """
    epoch = EpochPlan(seed=0, number=0, size=BATCH)  # without crop and flip its seed is not used
    votes = []
    classes = images.meta.num_classes
    with torch.no_grad(), evaluating(network):
        for x, y in images.batches(numbers, epoch, rng.device, workers):
            counts = torch.zeros(len(y), classes, dtype=torch.int64, device=x.device)
            for _ in range(draws):
                noisy = add_noise(x, training_noise(x, 1, sigma, rng))
                counts += F.one_hot(network(noisy).argmax(dim=-1), classes)
            votes.append(counts.cpu())
    return torch.cat(votes).double() / draws


def image_targets(
    network: nn.Module,
    images: Images,
    settings: TargetSettings,
    device: torch.device,
    folder: Path,
) -> tuple[Tensor, float]:
    """Return the targets of images, which are the vote shares of a network, and the seconds taken.

    Args:
        network: Images in [0, 1] (B, C, H, W) -> logits (B, K).
        images: The split.
        settings: Noise level, draws and seed.
        device: Where the network runs.
        folder: Keeps the votes that are counted, for a run after a stop.
    Returns:
        float32 (N, K) on the CPU, and seconds.
    """
    network = frozen(network, images.meta.shape).to(device)
    shares = []
    seconds = 0.0
    for number, indices in enumerate(torch.arange(len(images)).split(BLOCK)):
        file = folder / f"votes-{number}.safetensors"
        if file.is_file():
            block = safetensors.torch.load_file(file)
        else:
            began = time.perf_counter()
            rng = stream(settings["seed"], Stream.VOTES, *process_key(number), device=device)
            votes = vote_shares(network, images, indices, settings["draws"], settings["sigma"], rng)
            taken = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
            block = {"shares": votes.float(), "seconds": taken}
            files.write_bytes(file, safetensors.torch.save(block))
        shares.append(block["shares"])
        seconds += block["seconds"].item()
    return torch.cat(shares), seconds


def accuracies_under_noise(
    network: nn.Module,
    images: Images,
    epoch: int,
    options: RunOptions,
    precision: Precision,
) -> Accuracies:
    """Return a function that measures accuracies on training images, with new noise at each call.

    Args:
        network: On ``options.device``.
        images: The training split.
        epoch: Epochs finished so far.
        options: Noise level, seed, device and workers.
        precision: Precision of the network.
    """
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

    return accuracies
