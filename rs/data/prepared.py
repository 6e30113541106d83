"""A data set on disk: ``meta.json``, and ``.npz`` files of its splits or images left in place."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rs.data.meta import Meta
from rs.errors import InputError
from rs.storage import files

if TYPE_CHECKING:  # torch takes a second to import, and to prepare a data set does not need it
    import torch
    from torch import Tensor

SPLITS = ("train", "test")
"""Splits of raw data; ``validation`` is a part of the first that ``prepare`` can hold out."""

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images (N, C, H, W) with values 0..255, and labels (N,)."""


def images_fingerprint(images: NDArray[Any], labels: NDArray[np.int64]) -> str:
    """Return the SHA-256 of both arrays: type, shape and numbers, however they were compressed."""
    return pictures_fingerprint(images, images.shape[1:], labels, images.dtype.str)


def pictures_fingerprint(
    pictures: Iterable[NDArray[Any]],
    shape: Sequence[int],
    labels: NDArray[np.int64],
    kind: str = "|u1",
) -> str:
    """Return :func:`images_fingerprint` of pictures (C, H, W) that are read one by one."""
    digest = hashlib.sha256(f"{kind} {(len(labels), *shape)}\n".encode())
    for picture in pictures:
        digest.update(np.ascontiguousarray(picture).data)
    numbers = np.ascontiguousarray(labels, "<i8")
    digest.update(f"<i8 {numbers.shape}\n".encode())
    digest.update(numbers.data)
    return digest.hexdigest()


def channel_mean_std(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of (N, C, H, W), on the [0, 1] scale.

    Computed from exact integer sums, so that no summation order shows. A constant channel gets
    deviation 1.

    >>> channel_mean_std(np.array([0, 255], np.uint8).reshape(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    value = np.arange(256)
    mean = []
    std = []
    for channel in np.moveaxis(images, 1, 0):
        count = np.bincount(channel.ravel(), minlength=256)
        n = int(count.sum())
        total = int(count @ value)
        square = int(count @ value**2)
        mean.append(total / (255 * n))
        std.append((n * square - total**2) ** 0.5 / (255 * n) or 1.0)
    return tuple(mean), tuple(std)


def save_images(
    folder: Path,
    name: str,
    splits: Mapping[str, tuple[NDArray[np.uint8], NDArray[np.integer]]],
    classes: Sequence[str],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    source: str = "arrays in memory",
    raw: dict[str, str] | None = None,
) -> Meta:
    """Write a packed data set to ``folder``, whole or not at all; equal arrays give equal bytes.

    Args:
        folder: New, or an older data set, which is replaced.
        name: Name of the data set.
        splits: Images (N, C, H, W) uint8 and labels (N,) of "train", "validation" and "test", or
            some of them.
        classes: Names of the K classes; label k is ``classes[k]``.
        mean: One number per channel on the [0, 1] scale; ``None``, as ``std``, to compute both from
            the train split.
        std: As ``mean``.
        source: Where the images came from, for people.
        raw: Checksums of the raw data, as ``rs.data.sources.DataSource.sums`` returns them.
    Raises:
        InputError: If shapes, types, labels or constants do not fit, or ``folder`` holds other
            things.
    """
    if (mean is None) != (std is None):
        raise InputError(
            f"data set {name}: give both mean and std or neither, got {mean} and {std}"
        )
    if mean is None and "train" not in splits:
        raise InputError(
            f"data set {name}: give mean and std, as there is no train split to compute them from"
        )
    shape = tuple(next(iter(splits.values()))[0].shape[1:])
    for split, arrays in splits.items():
        check_split(*arrays, shape, len(classes), f"{name}, {split} split")
    if mean is None or std is None:
        mean, std = channel_mean_std(splits["train"][0])
    packed = {}
    sizes = {}
    sha256 = {}
    for split, (images, labels) in splits.items():
        packed[split] = images, labels.astype(np.int64)
        sizes[split] = len(labels)
        sha256[split] = images_fingerprint(*packed[split])
    meta = Meta(
        name=name,
        classes=tuple(classes),
        shape=shape,
        mean=tuple(mean),
        std=tuple(std),
        source=source,
        sizes=sizes,
        sha256=sha256,
        raw=raw,
    )
    write_folder(folder, meta, packed)
    return meta


def write_folder(folder: Path, meta: Meta, splits: Mapping[str, Arrays]) -> None:
    """Write ``meta`` and ``splits`` (none if the images stay in place), whole or not at all.

    Raises:
        InputError: If ``folder`` exists and holds anything but a data set of that name.
    """
    names = {"meta.json", "train.npz", "test.npz", "validation.npz"}
    is_data_set = folder.is_dir() and names >= {child.name for child in folder.iterdir()}
    old = files.json_values(folder / "meta.json").get("name") if is_data_set else None
    replaceable = is_data_set and old in (None, meta.name)
    present = f"the data set {old}" if old else None
    files.check_output(folder, f"an older data set {meta.name}", replaceable, content=present)
    with files.replacing(folder.absolute()) as temporary:
        temporary.mkdir()
        for split, (images, labels) in splits.items():
            np.savez_compressed(temporary / f"{split}.npz", images=images, labels=labels)
        files.write_json(temporary / "meta.json", asdict(meta))


def check_split(
    images: np.ndarray, labels: np.ndarray, shape: Sequence[int], classes: int, where: str
) -> None:
    """Check a split: uint8 images ``(N, *shape)``, N >= 1, 1 or 3 channels, labels in [0, classes).

    Raises:
        InputError: Naming ``where`` and what is wrong.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"{where}: images must be uint8 of shape (N, 1 or 3, H, W), got {images.dtype} of "
            f"{images.shape}"
        )
    if len(images) == 0:
        raise InputError(f"{where}: there must be at least one image, got none; check the source")
    if images.shape[1:] != tuple(shape):
        raise InputError(
            f"{where}: images must have shape {tuple(shape)} (C, H, W), got {images.shape[1:]}"
        )
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"{where}: labels must be whole numbers of shape ({len(images)},), got {labels.dtype} "
            f"of {labels.shape}"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(
            f"{where}: labels must lie in 0..{classes - 1}, one for each class name, "
            f"got {labels.min()}..{labels.max()}; correct the labels or the list of classes"
        )


def read_split(folder: Path, split: str, meta: Meta) -> Arrays:
    """Read the arrays of a packed split and check them against ``meta``.

    Raises:
        InputError: If the file is missing, broken, or not what ``meta.json`` describes.
    """
    path = folder / f"{split}.npz"
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; prepare the data set again")
    try:
        _check_sizes(path, split, meta)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except Exception as error:  # zipfile and NumPy raise anything for a damaged archive
        raise InputError(
            f"{path} must hold the arrays images and labels, but: {error}; prepare it again"
        ) from error
    check_split(images, labels, meta.shape, meta.num_classes, str(path))
    sha256 = images_fingerprint(images, labels)
    if sha256 != meta.sha256[split]:
        raise InputError(
            f"{path} must have the sha256 {meta.sha256[split]} of meta.json, got {sha256}; prepare "
            "it again"
        )
    return images, labels


MAX_HEADER_BYTES = 2**16
"""Bytes of the header of an array on disk, at most."""


def _check_sizes(path: Path, split: str, meta: Meta) -> None:
    """Check that the arrays of a packed split are not larger than ``meta`` says.

    This comes before they are decompressed.

    Raises:
        ValueError: If one is.
    """
    numbers = {"images": math.prod(meta.shape), "labels": 8}
    with zipfile.ZipFile(path) as archive:
        for name, item_bytes in numbers.items():
            size = archive.getinfo(f"{name}.npy").file_size
            most = meta.sizes[split] * item_bytes + MAX_HEADER_BYTES
            if size > most:
                raise ValueError(
                    f"{name} have {size:,} bytes where meta.json says at most {most:,}"
                )


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """One pass over a split: its order, batches and augmentation, and the process it is for.

    Process ``rank`` of ``world_size`` takes every ``world_size``-th image of the order from number
    ``rank`` on; all processes take equally many images.
    """

    seed: int  # non-negative
    number: int  # from 0
    size: int  # images in a batch of this process, at least 1; the last batch may be smaller
    # packed images: zero padding of the random crop, pixels; lazy: random resized crop unless 0
    crop: int = 0
    flip: bool = False  # mirror each image left to right with probability 1/2
    rank: int = 0
    world_size: int = 1
    # probabilities (N,) of N images drawn with replacement; None: each image once
    weights: Tensor | None = None


class Images(Protocol):
    """One split of a data set."""

    @property
    def meta(self) -> Meta:
        """What the data set is."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,)."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal that identifies the split: its pixels and labels.

        Of images that a data set has left in place, their names and conversion alone: what their
        files hold may change.
        """

    @property
    def files(self) -> Sequence[str]:
        """Paths of pictures in a user's folder, printable; none of a prepared data set."""

    def __len__(self) -> int: ...

    def pixels(self, index: int) -> Tensor:
        """Return image ``index`` for certification: float32 (C, H, W) in [0, 1], on the CPU."""

    def batches(
        self, order: Tensor, epoch: EpochPlan, device: torch.device | str, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch, each with an augmentation of its own.

        Crops and flips of packed images are drawn on ``device``, keyed by (seed, epoch, step) and
        the process, so they depend on ``epoch.size`` too; those of lazy ones are keyed by (seed,
        epoch, index).

        Args:
            order: Numbers of the images, of :func:`rs.data.images.epoch_order`.
            epoch: Which epoch, and for which process.
            device: Where the batches lie.
            workers: Processes that read lazy images; does not change the batches.
        Yields:
            x float32 (B, C, H, W) in [0, 1] and y int64 (B,), on ``device``.
        """

    def split(self, share: float) -> tuple[Images, Images]:
        """Split class by class: the larger part, and ``share`` of the images, by their SHA-256.

        Raises:
            InputError: If a class has fewer than two images of different content.
        """
