"""Votes of a model on noisy copies of its training images, and files of the targets that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
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
from rs.statistics.certificate import radius_text
from rs.statistics.radius import lower_bound, radius
from rs.storage import files
from rs.training.attack_backend import frozen

BATCH = 500
"""Images in a batch, one noisy copy of each."""

ROUTER_ALPHA = 0.5
"""Level of the bounds behind a router's targets, which are neither too large nor too small on average."""


@validated
class TargetSettings:
    """How targets are made; section ``recipes.DATASET.targets`` of params.yaml."""

    draws: Count  # noisy copies of an image
    seed: NonNegativeCount
    images: Count | None = None  # of a router's targets, the first ones; None: all


def vote_shares(
    network: nn.Module, images: Images, numbers: Tensor, draws: int, sigma: float, rng: Generator, workers: int = 0
) -> Tensor:
    """Return the share of noisy copies of each image that a network gives each class.

    Args:
        network: In eval mode here; images in [0, 1] (B, C, H, W) -> logits (B, K), on the device of ``rng``.
        images: The split; without crop or flip.
        numbers: Of its images, shape (N,).
        draws: Noisy copies of each image.
        sigma: Noise standard deviation, in pixels of [0, 1].
        rng: Stream of the noise.
        workers: Processes that read lazy images.
    Returns:
        float64 (N, K), on the CPU.
    """
    epoch = Epoch(seed=0, number=0, size=BATCH)  # whose seed counts for nothing without crop and flip
    votes = []
    with torch.no_grad(), evaluating(network):
        for x, y in images.batches(numbers, epoch, rng.device, workers):
            counts = torch.zeros(len(y), images.meta.num_classes, dtype=torch.int64, device=x.device)
            for _ in range(draws):
                classes = network(noisy(x, draw(x, 1, sigma, rng))).argmax(dim=-1, keepdim=True)
                counts.scatter_add_(1, classes, torch.ones_like(classes))
            votes.append(counts.cpu())
    return torch.cat(votes).double() / draws


def write_targets(
    models: Sequence[Path], images: Images, settings: TargetSettings, device: torch.device, out: Path
) -> None:
    """Write the targets of images, from votes of models under the noise that they were trained with.

    Of one model these are its vote shares. Of several they are those of a router: the radius of each image at the noise
    level of each model. A radius is sigma Phi^-1(p), p the Clopper-Pearson bound of the votes for the label at
    alpha = 1/2, and 0 below 1/2. At alpha = 0.001 few draws would certify next to nothing. It is no certificate.

    Args:
        models: Model folders; several must be of increasing noise levels.
        images: The split.
        settings: How to draw; images of a router's targets that are not measured have no radius.
        device: Where the models run.
        out: The file.
    Raises:
        InputError: If a model does not fit the images or the others, no image has a radius, or ``out`` is another file.
    """
    files.check_output(out, "a file of targets", _metadata(out) is not None)
    if settings.images is not None and len(models) == 1:
        raise InputError(f"images must be left out for one model, got {settings.images}; routers have several models")
    cards, metadata = [read_card(model) for model in models], {"images": images.fingerprint}
    for model, card in zip(models, cards, strict=True):
        if (card.shape, card.classes) != (list(images.meta.shape), list(images.meta.classes)):
            raise InputError(f"{model} must classify the images of {images.meta.name}, got a model of {card.dataset}")
    levels = [card.sigma for card in cards]
    if levels != sorted({*levels}):
        raise InputError(f"models must be of increasing noise levels, one for each level, got {levels}")
    numbers = torch.arange(len(images))[: settings.images]
    labels = torch.as_tensor(images.labels)[numbers].unsqueeze(1)
    radii = torch.zeros(len(images), len(models))
    for column, (model, card) in enumerate(zip(models, cards, strict=True)):
        network = frozen(load_model(model)[0], card.shape).to(device)
        rng = stream(settings.seed, Stream.VOTES, *([column] if column else []), device=device)
        targets = shares = vote_shares(network, images, numbers, settings.draws, card.sigma, rng)
        votes = (shares.gather(1, labels).squeeze(1) * settings.draws).round().numpy()
        bounds = lower_bound(votes, settings.draws, ROUTER_ALPHA)
        radii[: len(numbers), column] = torch.from_numpy(radius(bounds, card.sigma))
    if len(models) > 1:
        targets, metadata["levels"] = router_targets(radii), " ".join(map(radius_text, levels))
    files.write_bytes(out, safetensors.torch.save({"targets": targets.float()}, metadata))


def router_targets(radii: Tensor) -> Tensor:
    """Return the radii (N, L) of images at each level, and the weight of each image, (N, L + 1).

    Raises:
        InputError: If no image has a radius.
    """
    best, is_used = radii.argmax(dim=1), radii.amax(dim=1) > 0
    if not is_used.any():
        raise InputError("some image must have a radius at some level, but none has; give experts that classify them")
    shares = best[is_used].bincount(minlength=radii.shape[1]) / is_used.sum()
    weights = torch.where(is_used, 1 / shares[best], 0.0)
    return torch.cat([radii, weights.to(radii).unsqueeze(1)], dim=1)


def read_targets(path: Path, images: Images) -> Tensor:
    """Read the targets of images, float32 (N, K).

    Raises:
        InputError: If there is no such file, or it holds those of other images.
    """
    metadata, remedy = _metadata(path), "make it by `rs targets MODEL` of a Gaussian model at sigma 0.25"
    if metadata is None:
        raise InputError(f"{path} must be a file of targets, but it is none; {remedy}")
    if metadata["images"] != images.fingerprint:
        raise InputError(f"{path} must hold the targets of the images of this training, but it has others; {remedy}")
    return safetensors.torch.load_file(path)["targets"]


def read_levels(path: Path) -> list[str]:
    """Return the noise levels of a file of a router's targets; none of other files."""
    return (_metadata(path) or {}).get("levels", "").split()


def _metadata(path: Path) -> dict[str, str] | None:
    """Return what a file of targets says of them; ``None`` if it is no such file."""
    try:
        with safe_open(path, "pt") as content:
            metadata: dict[str, str] = content.metadata() or {}
            return metadata if "images" in metadata else None
    except (OSError, SafetensorError):
        return None
