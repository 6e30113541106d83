"""Votes of a model on noisy copies of its training images, and files of the targets that are made
of them.
"""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Generator, Tensor, nn

from rs.data.prepared import Epoch, Images
from rs.errors import InputError
from rs.models.checkpoint import load_model, read_card
from rs.params import Count, NonNegativeCount, validated
from rs.runtime.streams import Stream, stream
from rs.smoothing.attack import evaluating
from rs.smoothing.noise import draw, noisy
from rs.storage import files
from rs.training.attack_backend import frozen

BATCH = 500
"""Images in a batch, one noisy copy of each."""


@validated
class TargetSettings:
    """How targets are made; section ``recipes.DATASET.targets`` of params.yaml."""

    draws: Count  # noisy copies of an image
    seed: NonNegativeCount


def vote_shares(
    network: nn.Module,
    images: Images,
    numbers: Tensor,
    draws: int,
    sigma: float,
    rng: Generator,
    workers: int = 0,
) -> Tensor:
    """Return the share of noisy copies of each image that a network gives each class.

    Args:
        network: In eval mode here; images in [0, 1] (B, C, H, W) -> logits (B, K), on the device of
            ``rng``.
        images: The split; without crop or flip.
        numbers: Of its images, shape (N,).
        draws: Noisy copies of each image.
        sigma: Noise standard deviation, in pixels of [0, 1].
        rng: Stream of the noise.
        workers: Processes that read lazy images.
    Returns:
        float64 (N, K), on the CPU.
    """
    epoch = Epoch(
        seed=0, number=0, size=BATCH
    )  # whose seed counts for nothing without crop and flip
    votes = []
    with torch.no_grad(), evaluating(network):
        for x, y in images.batches(numbers, epoch, rng.device, workers):
            counts = torch.zeros(
                len(y), images.meta.num_classes, dtype=torch.int64, device=x.device
            )
            for _ in range(draws):
                classes = network(noisy(x, draw(x, 1, sigma, rng))).argmax(dim=-1, keepdim=True)
                counts.scatter_add_(1, classes, torch.ones_like(classes))
            votes.append(counts.cpu())
    return torch.cat(votes).double() / draws


def write_targets(
    model: Path, images: Images, settings: TargetSettings, device: torch.device, out: Path
) -> None:
    """Write the targets of images: the vote shares of a model under the noise that it was trained
    with.

    Args:
        model: Model folder.
        images: The split.
        settings: How to draw.
        device: Where the model runs.
        out: The file.
    Raises:
        InputError: If the model does not fit the images, or ``out`` is another file.
    """
    files.check_output(out, "a file of targets", _metadata(out) is not None)
    card = read_card(model)
    if (card.shape, card.classes) != (list(images.meta.shape), list(images.meta.classes)):
        raise InputError(
            f"{model} must classify the images of {images.meta.name}, got a model of {card.dataset}"
        )
    network = frozen(load_model(model)[0], card.shape).to(device)
    rng = stream(settings.seed, Stream.VOTES, device=device)
    shares = vote_shares(
        network, images, torch.arange(len(images)), settings.draws, card.sigma, rng
    )
    files.write_bytes(
        out, safetensors.torch.save({"targets": shares.float()}, {"images": images.fingerprint})
    )


def read_targets(path: Path, images: Images) -> Tensor:
    """Read the targets of images, float32 (N, K).

    Raises:
        InputError: If there is no such file, or it holds those of other images.
    """
    metadata, remedy = (
        _metadata(path),
        "make it by `rs targets MODEL` of a Gaussian model at sigma 0.25",
    )
    if metadata is None:
        raise InputError(f"{path} must be a file of targets, but it is none; {remedy}")
    if metadata["images"] != images.fingerprint:
        raise InputError(
            f"{path} must hold the targets of the images of this training, but it has others; "
            f"{remedy}"
        )
    return safetensors.torch.load_file(path)["targets"]


def _metadata(path: Path) -> dict[str, str] | None:
    """Return what a file of targets says of them; ``None`` if it is no such file."""
    try:
        with safe_open(path, "pt") as content:
            metadata: dict[str, str] = content.metadata() or {}
            return metadata if "images" in metadata else None
    except (OSError, SafetensorError):
        return None
