"""Data sets of torch: packed once if their items never change, else read again in each epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from rs.data.images import PackedImages, to_float
from rs.data.prepared import EpochPlan
from rs.errors import InputError
from rs.params import PIXELS, Bounds
from rs.runtime.streams import Stream, seed_sequence, seeded, stream
from rs.smoothing.inputs import as_image, check_range

ROUNDING = 1e-6
"""Difference from a multiple of 1/255 below which a number is an 8-bit pixel."""

READ_TWICE = 64
"""Number of first items that are read twice, to see whether a data set is random."""

FIRST_READ = 0
SECOND_READ = 1
FIRST_EPOCH = 2
"""Keys of the random numbers of each reading of a data set."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RereadImages(PackedImages):
    """A data set whose items are random, such as crops: each epoch trains on new ones.

    The images in memory are those of its first reading. They are used wherever an image must stay
    the same: to hold out some, for the quick ACR, and for votes.
    """

    dataset: Any
    numbers: NDArray[np.int64]  # of each image in the data set, (N,)
    bounds: Bounds = PIXELS  # of the inputs

    def part(self, mask: NDArray[np.bool_]) -> Self:
        """Return the images that ``mask``, shape (N,), marks."""
        return replace(super().part(mask), numbers=self.numbers[mask])

    def unaugmented_batches(
        self, order: Tensor, epoch: EpochPlan, device: torch.device | str, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield new items in ``order``: inputs (B, ...) and int64 (B,), on ``device``."""
        loader = DataLoader(
            _Reading(self, epoch.seed, FIRST_EPOCH + epoch.number),
            batch_sampler=[batch.tolist() for batch in order.split(epoch.size)],
            num_workers=workers,
            # Otherwise the loader draws from the global generator.
            generator=stream(epoch.seed, Stream.ORDER, epoch.number),
        )
        for x, y in loader:
            yield x.to(device), y.to(device)


@dataclass(frozen=True)
class _Reading(Dataset[tuple[Tensor, int]]):
    """One reading of the items, whose random numbers depend on (seed, read, number) alone."""

    images: RereadImages
    seed: int
    read: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = int(self.images.numbers[index])
        x, y = read_item(self.images.dataset, number, self.seed, self.read, self.images.bounds)
        expected = (tuple(self.images.meta.shape), int(self.images.labels[index]))
        if (tuple(x.shape), int(y)) != expected:
            raise InputError(
                f"item {number} of the data set must keep its shape and label, {expected}, got "
                f"{(tuple(x.shape), int(y))} when it was read again; remove what changes them"
            )
        check_range(x, self.images.bounds, f"item {number} of the data set")
        return x, int(y)


def read_all(dataset: Any, seed: int, bounds: Bounds) -> tuple[Tensor, list[Any]]:
    """Read every item of a data set once.

    Returns:
        Images (N, C, H, W), or other inputs (N, ...), and their labels.
    Raises:
        InputError: If items cannot be read by number, or their images have different shapes.
    """
    _check_dataset(dataset)
    pixels = []
    labels = []
    for number in range(len(dataset)):
        x, y = read_item(dataset, number, seed, FIRST_READ, bounds)
        pixels.append(x)
        labels.append(y)
    if len({image.shape for image in pixels}) > 1:
        raise InputError(
            "the images of a data set must have one shape, but they differ; resize them in it"
        )
    return torch.stack(pixels), labels


def is_random(dataset: Any, images: NDArray[Any], seed: int, bounds: Bounds) -> bool:
    """Return whether one of the first images differs from ``images`` when it is read again."""
    for number, image in enumerate(images[:READ_TWICE]):
        again, _ = read_item(dataset, number, seed, SECOND_READ, bounds)
        if again.shape != image.shape:
            return True
        difference = again - to_float(torch.from_numpy(image))
        if float(difference.abs().max()) > ROUNDING:
            return True
    return False


def read_item(
    dataset: Any, number: int, seed: int, read: int, bounds: Bounds
) -> tuple[Tensor, Any]:
    """Return an item as floating-point image (C, H, W), or other input, and label.

    The global generators of torch, NumPy and Python are seeded for it, and restored afterward.
    """
    with _seeded_globally(seed, read, number):
        item = dataset[number]
    x, y = image_and_label(item)
    return as_image(x, bounds), y


def image_and_label(item: Any) -> tuple[Any, Any]:
    """Return the image and the label of an item.

    Raises:
        InputError: If it is not (image, label).
    """
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    item_text = type(item).__name__
    if isinstance(item, Mapping):
        item_text = f"a {item_text} with the keys {', '.join(map(str, item))}"
    elif isinstance(item, tuple | list):
        item_text = f"a {item_text} of ({', '.join(type(part).__name__ for part in item)})"
    raise InputError(
        f"the items of a data set must be (image, label), got {item_text}; return these two from "
        "its __getitem__"
    )


def _check_dataset(dataset: Any) -> None:
    if isinstance(dataset, Tensor | np.ndarray):
        raise InputError(
            "labels must be given with an array of images, got none; a data set of torch has its "
            "own"
        )
    kind = type(dataset).__name__
    if isinstance(dataset, DataLoader):
        raise InputError(
            f"images must be an array or a data set, got a {kind}; give its .dataset and batch="
        )
    # torch gives every data set __getitem__, so IterableDataset has one too.
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    ):
        raise InputError(
            f"images must be an array or a data set with __len__ and __getitem__, got {kind}; if "
            "its items are (image, label) and fit into memory, give list(...) of it"
        )
    if len(dataset) == 0:
        raise InputError(f"a data set must have items, but {kind} has none; check its source")


@contextmanager
def _seeded_globally(seed: int, *key: int) -> Iterator[None]:
    global_seed = int(seed_sequence(seed, Stream.ITEMS, *key).generate_state(1, np.uint32)[0])
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002  # from which data sets draw
    try:
        with seeded(global_seed):
            random.seed(global_seed)
            np.random.seed(global_seed)  # noqa: NPY002
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def as_values(x: Tensor, bounds: Bounds) -> Tensor:
    """Return pixels that are multiples of 1/255 as uint8, and all other inputs as float32.

    Raises:
        InputError: If they are neither uint8 pixels nor floating-point numbers within the bounds.
    """
    if x.dtype == torch.uint8 and bounds == PIXELS:
        return x
    check_range(x, bounds, "images" if bounds == PIXELS else "inputs")
    levels = (x * 255).round()
    is_8_bit = bounds == PIXELS and bool(((levels / 255 - x).abs() < ROUNDING).all())
    return levels.to(torch.uint8) if is_8_bit else x.float()
