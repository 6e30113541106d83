"""Images for training and certification: loading, shuffled and augmented batches, subsets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rs.data import prepared
from rs.data.meta import Meta, read_meta
from rs.data.prepared import EpochPlan, Images
from rs.errors import InputError
from rs.runtime.streams import Stream, process_key, stream

VALIDATION_SHARE = 0.1
"""Share of the images of each class that is held out of the training of a user's network."""


@dataclass(frozen=True, eq=False)
class PackedImages:
    """A split in memory; implements :class:`rs.data.prepared.Images`."""

    meta: Meta
    images: NDArray[np.uint8] | NDArray[np.float32]  # (N, C, H, W), or other inputs (N, ...)
    labels: NDArray[np.int64]  # (N,)
    _resident: dict[torch.device, tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def files(self) -> tuple[str, ...]:
        """None: the images have no files."""
        return ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images and labels."""
        return prepared.images_fingerprint(self.images, self.labels)

    def pixels(self, index: int) -> Tensor:
        """Return image ``index``: float32 (C, H, W) in [0, 1], on the CPU."""
        return to_float(torch.from_numpy(self.images[index]))

    def batches(
        self, order: Tensor, epoch: EpochPlan, device: torch.device | str, workers: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images in ``order``; see :class:`rs.data.prepared.Images`."""
        for step, (x, y) in enumerate(self.unaugmented_batches(order, epoch, device, workers)):
            key = (Stream.AUGMENT, epoch.number, step, *process_key(epoch.rank))
            rng = stream(epoch.seed, *key, device=device)
            yield augment(to_float(x), epoch.crop, epoch.flip, rng), y

    def unaugmented_batches(
        self, order: Tensor, epoch: EpochPlan, device: torch.device | str, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images in ``order``: uint8 (B, C, H, W) and int64 (B,), on ``device``."""
        device = torch.device(device)
        if device not in self._resident:  # they stay there for the next epoch
            images = torch.from_numpy(self.images).to(device)
            self._resident[device] = images, torch.from_numpy(self.labels).to(device)
        images, labels = self._resident[device]
        for indices in order.to(images.device).split(epoch.size):
            yield images[indices], labels[indices]

    def split(self, share: float) -> tuple[PackedImages, PackedImages]:
        """Split the images; see :class:`rs.data.prepared.Images`."""
        from rs.data.image_folder import choose_by_content  # Pillow is needed there

        contents = content_hashes(self.images)
        in_smaller = choose_by_content(contents, self.labels.tolist(), self.meta.classes, share)
        smaller = np.array([content in in_smaller for content in contents])
        return self.part(~smaller), self.part(smaller)

    def part(self, mask: NDArray[np.bool_]) -> Self:
        """Return the images that ``mask``, shape (N,), marks."""
        return replace(self, images=self.images[mask], labels=self.labels[mask])


def to_float(x: Tensor) -> Tensor:
    """Return 8-bit pixels divided by 255, and numbers that are float32 already."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def content_hashes(images: NDArray[Any]) -> list[str]:
    """Return the SHA-256 of the pixels of each image."""
    return [hashlib.sha256(image.tobytes()).hexdigest() for image in images]


def load_images(folder: Path, split: str) -> Images:
    """Load a split of a prepared data set and check it against ``meta.json``.

    Raises:
        InputError: If it is missing, broken, or not what was prepared.
    """
    meta = read_meta(folder)
    if split not in meta.sizes:
        raise InputError(
            f"{folder} must have the split {split}, but it has {', '.join(meta.sizes)}; prepare it"
        )
    if meta.lazy:
        from rs.data.image_folder import split_of

        return split_of(meta, split)
    return PackedImages(meta, *prepared.read_split(folder, split, meta))


def epoch_order(count: int, epoch: EpochPlan) -> Tensor:
    """Return the numbers of the images of one epoch: a permutation, or drawn by ``epoch.weights``.

    The order depends on (seed, epoch) and the weights. Several processes get equal shares of it;
    the remainder is left out.
    """
    rng = stream(epoch.seed, Stream.ORDER, epoch.number)
    if epoch.weights is None:
        order = torch.randperm(count, generator=rng)
    else:
        order = torch.multinomial(epoch.weights, count, replacement=True, generator=rng)
    used = count - count % epoch.world_size
    return order[epoch.rank : used : epoch.world_size]


def augment(x: Tensor, crop: int, flip: bool, rng: torch.Generator) -> Tensor:
    """Shift each image by up to ``crop`` pixels, padded with zeros, and mirror half of them.

        out[b, :, i, j] = padded[b, :, top_b + i, left_b + j],   top_b, left_b uniform on 0..2 crop

    Args:
        x: Images (B, C, H, W).
        crop: Pixels of padding at each side; 0 leaves the position alone.
        flip: Whether to mirror left to right with probability 1/2.
        rng: Generator on the device of ``x``; tops and lefts are drawn first, then the flips.
    Returns:
        Images (B, C, H, W).
    """
    if not crop and not flip:
        return x
    if x.ndim != 4:
        raise InputError(
            "crop and flip must be off for inputs that are no images (C, H, W), got the shape "
            f"{tuple(x.shape[1:])}; leave them out of training"
        )
    B, C, H, W = x.shape
    if crop:
        top, left = torch.randint(2 * crop + 1, (2, B, 1), generator=rng, device=x.device)
        rows = (top + torch.arange(H, device=x.device))[:, None, :, None]  # (B, 1, H, 1)
        columns = (left + torch.arange(W, device=x.device))[:, None, None, :]  # (B, 1, 1, W)
        image = torch.arange(B, device=x.device)[:, None, None, None]
        channel = torch.arange(C, device=x.device)[:, None, None]
        x = F.pad(x, (crop, crop, crop, crop))[image, channel, rows, columns]
    if flip:
        mirrored = torch.rand(B, generator=rng, device=x.device) < 0.5
        x = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
    return x
