"""Images for training and certification: loading, shuffled and augmented batches, subsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rs.data import format
from rs.data.format import Images, Keep, Meta, read_meta
from rs.errors import InputError
from rs.runtime.streams import Stream, stream


@dataclass(frozen=True, eq=False)
class PackedImages:
    """A split in memory; implements :class:`Images`."""

    meta: Meta
    images: NDArray[np.uint8]  # (N, C, H, W)
    labels: NDArray[np.int64]  # (N,)
    _resident: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images and labels."""
        return format.fingerprint(self.images, self.labels)

    def pixels(self, index: int) -> Tensor:
        """Return image ``index``: float32 (C, H, W) in [0, 1], on the CPU."""
        return torch.from_numpy(self.images[index]).float() / 255

    def resident(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Return images uint8 (N, C, H, W) and labels int64 (N,) on ``device``, copied there once."""
        device = torch.device(device)
        if device not in self._resident:
            arrays = torch.from_numpy(self.images), torch.from_numpy(self.labels)
            self._resident[device] = tuple(array.to(device) for array in arrays)
        return self._resident[device]

    def batches(
        self,
        order: Tensor,
        size: int,
        *,
        crop: int,
        flip: bool,
        seed: int,
        epoch: int,
        device: torch.device | str,
        workers: int = 0,
        keep: Keep,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images in ``order``; see :func:`batches`. No workers are needed."""
        images, labels = self.resident(device)
        for step, chosen in enumerate(order.to(images.device).split(size)):
            rng = stream(seed, Stream.AUGMENT, epoch, step, device=device)
            x, y = augment(images[chosen].float() / 255, crop, flip, rng), labels[chosen]
            kept = keep(len(chosen))
            yield torch.cat([x[some] for some in kept]), torch.cat([y[some] for some in kept])


def load(folder: Path, split: str) -> Images:
    """Load a split, "train" or "test", of a prepared data set, and check it against ``meta.json``.

    Raises:
        InputError: If it is missing, broken, or not what was prepared.
    """
    meta = read_meta(folder)
    if split not in meta.sizes:
        raise InputError(f"{folder} must have the split {split}, but it has {', '.join(meta.sizes)}; prepare it")
    if meta.lazy:
        from rs.data.image_folder import FolderImages  # torchvision is slow to import, and needed here alone

        return FolderImages(meta, split)
    return PackedImages(meta, *format.read_split(folder, split, meta))


def batches(
    images: Images,
    size: int,
    *,
    crop: int,
    flip: bool,
    seed: int,
    epoch: int,
    device: torch.device | str,
    workers: int = 0,
    keep: Keep = lambda images: [slice(images)],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Return one epoch: every image once, in an order and with an augmentation of its own.

    The order depends on (seed, epoch). Crops and flips of packed images are drawn on ``device``, keyed by
    (seed, epoch, step), so they depend on ``size`` too; those of lazy ones are keyed by (seed, epoch, index).

    Args:
        images: The split.
        size: Images in a batch, B >= 1; the last batch may be smaller.
        crop: Packed images: pixels of zero padding before a random crop back to (H, W). Lazy images: anything
            but 0 is a random resized crop. 0 is none.
        flip: Whether each image is mirrored left to right with probability 1/2.
        seed: Non-negative integer.
        epoch: Number of the epoch, from 0.
        device: Where the batches lie.
        workers: Processes that read lazy images; does not change the batches.
        keep: Which images of a batch to yield, for a process that has a part of them; lazy images are read only if they
            are kept. The others count: order and augmentation do not depend on it.
    Returns:
        Iterator over x float32 (B, C, H, W) in [0, 1] and y int64 (B,), on ``device``.
    Raises:
        ValueError: If ``size`` < 1 or ``crop`` < 0.
    """
    if size < 1 or crop < 0:
        raise ValueError(f"size must be at least 1 and crop at least 0, got {size} and {crop}")
    order = torch.randperm(len(images), generator=stream(seed, Stream.ORDER, epoch))
    how = {"crop": crop, "flip": flip, "seed": seed, "epoch": epoch, "device": device, "workers": workers}
    return images.batches(order, size, **how, keep=keep)


def augment(x: Tensor, crop: int, flip: bool, rng: torch.Generator) -> Tensor:
    """Shift each image by up to ``crop`` pixels, zeros coming in at the edges, and mirror half of them.

        out[b, :, i, j] = padded[b, :, top_b + i, left_b + j],   top_b, left_b uniform on 0..2 crop

    Args:
        x: Images (B, C, H, W).
        crop: Pixels of padding at each side; 0 leaves the position alone.
        flip: Whether to mirror left to right with probability 1/2.
        rng: Generator on the device of ``x``; tops and lefts are drawn first, then the flips.
    Returns:
        Images (B, C, H, W).
    """
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
