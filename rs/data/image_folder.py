"""Images that are read from disk one by one: data sets such as ImageNet, folders of pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rs.data import pictures, readers
from rs.data.meta import Meta, check_names, composed
from rs.data.pictures import Conversion
from rs.data.prepared import EpochPlan, pictures_fingerprint
from rs.data.readers import Tree
from rs.errors import InputError, printable
from rs.runtime.streams import Stream, stream
from rs.statistics.certificate import UNLABELED
from rs.storage import files

SPLIT = re.compile(
    "(?<![a-z])(train|training|val|valid|validation|test|testing|dev|eval|extra)(?![a-z])", re.I
)
"""Words in the names of folders that hold a split of a data set rather than a class."""


@dataclass(eq=False)
class FolderImages:
    """A split whose images stay where they are; implements :class:`rs.data.prepared.Images`.

    Test images: shorter side to ``conversion.resize``, central crop of ``meta.shape``.
    """

    meta: Meta
    tree: Tree
    fingerprint: str
    conversion: Conversion

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,)."""
        return np.array([label for _, label in self.tree.samples], np.int64)

    @cached_property
    def files(self) -> list[str]:
        """Paths of the pictures in their folder, printable; none of a prepared data set."""
        if self.meta.lazy is not None:
            return []
        paths = [Path(path).relative_to(self.tree.root) for path, _ in self.tree.samples]
        return [printable(path.as_posix()) for path in paths]

    def __len__(self) -> int:
        return len(self.tree.samples)

    def pixels(self, index: int) -> Tensor:
        """Return image ``index`` with the test transform: float32 (C, H, W) in [0, 1]."""
        return as_tensor(
            pictures.picture(self.tree.samples[index][0], self.meta.shape, self.conversion)
        )

    def image(self, index: int) -> Image.Image:
        """Return image ``index`` in its size on disk, in the color mode of the model.

        Raises:
            InputError: If the file is unreadable.
        """
        path = self.tree.samples[index][0]
        pixels = pictures.picture(path, conversion=Conversion(convert=True))
        image = Image.fromarray(pixels.transpose(1, 2, 0))
        return image.convert("L") if self.meta.shape[0] == 1 else image

    def split(self, share: float) -> tuple[FolderImages, FolderImages]:
        """Split the images; see :class:`rs.data.prepared.Images`."""
        larger, smaller = split_by_content(self.tree, share)
        return self._part(larger), self._part(smaller)

    def _part(self, tree: Tree) -> FolderImages:
        return replace(self, tree=tree, fingerprint=readers.tree_sum(tree, self.conversion))

    def batches(
        self, order: Tensor, epoch: EpochPlan, device: torch.device | str, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images in ``order``; see :class:`rs.data.prepared.Images`."""
        loader = DataLoader(
            _Augmented(self, _augmentation(self, epoch), epoch.seed, epoch.number),
            batch_sampler=[batch.tolist() for batch in order.split(epoch.size)],
            num_workers=workers,
            pin_memory=torch.device(device).type == "cuda",
            # Otherwise the loader draws from the global generator.
            generator=stream(epoch.seed, Stream.ORDER, epoch.number),
        )
        for x, y in loader:
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def split_of(meta: Meta, split: str) -> FolderImages:
    """Return a split of a prepared data set whose images were left in place.

    Raises:
        InputError: If the files are no longer those that were prepared.
    """
    assert meta.lazy is not None  # a packed data set has PackedImages
    tree = readers.list_class_folders(Path(meta.lazy.root) / meta.lazy.folders[split])
    fingerprint = meta.sha256[split]
    conversion = Conversion(meta.lazy.resize, meta.shape[1], convert=True)
    is_same_classes = tree.classes == composed(meta.classes)
    if not is_same_classes or readers.tree_sum(tree, conversion) != fingerprint:
        raise InputError(
            f"{tree.root} must hold the files that were prepared; prepare the data set again"
        )
    return FolderImages(meta, tree, fingerprint, conversion)


def read_pictures(tree: Tree, shape: Sequence[int], conversion: Conversion) -> FolderImages:
    """Return the pictures of a list of files, reading each once and checking that it fits.

    Raises:
        InputError: If one does not fit.
    """
    pixels = (pictures.picture(path, shape, conversion) for path, _ in tree.samples)
    labels = np.array([label for _, label in tree.samples], np.int64)
    fingerprint = pictures_fingerprint(pixels, shape, labels)
    name = printable(tree.root.resolve().name)
    if str(conversion):
        name = f"{name} ({conversion})"
    meta = Meta(
        name=name,
        classes=tree.classes,
        shape=tuple(shape),
        mean=(0.0,) * shape[0],  # the model has its own normalization
        std=(1.0,) * shape[0],
        source=f"pictures in {tree.root}",
        sizes={"test": len(tree.samples)},
        sha256={"test": fingerprint},
    )
    return FolderImages(meta, tree, fingerprint, conversion)


def split_by_content(tree: Tree, share: float) -> tuple[Tree, Tree]:
    """Split labeled pictures class by class: the larger part, and ``share`` by SHA-256 of files.

    Files of one content lie on one side, whatever their names. Each class has at least one picture
    on each side.

    Raises:
        InputError: If a picture has no class, or a class has fewer than two pictures of different
            content.
    """
    hashes = [files.sha256(Path(path)) for path, _ in tree.samples]
    held_out = choose_by_content(hashes, [label for _, label in tree.samples], tree.classes, share)
    larger: list[tuple[str, int]] = []
    smaller: list[tuple[str, int]] = []
    for content, sample in zip(hashes, tree.samples, strict=True):
        side = smaller if content in held_out else larger
        side.append(sample)
    return replace(tree, samples=tuple(larger)), replace(tree, samples=tuple(smaller))


def choose_by_content(
    contents: Sequence[str], labels: Sequence[int], classes: Sequence[str], share: float
) -> set[str]:
    """Choose ``share`` of the images of each class, at least one, by the hashes of their contents.

    Args:
        contents, labels: Of each image.
        classes: Names of the classes; some may have no image.
        share: Of the different contents of each class.
    Raises:
        InputError: If a class has fewer than two images of different content.
    """
    contents_of: dict[int, set[str]] = {}
    for content, label in zip(contents, labels, strict=True):
        contents_of.setdefault(label, set()).add(content)
    chosen_contents = set()
    for label, name in enumerate(classes):
        of_class = sorted(contents_of.get(label, ()))
        if len(of_class) == 1:
            raise InputError(
                f"each class must have two different images or more, got one of class "
                f"{name!r}; add some, or leave the class out"
            )
        chosen_contents.update(of_class[: max(1, round(share * len(of_class)))])
    return chosen_contents


def first_shape(paths: Sequence[str], conversion: Conversion) -> tuple[int, ...]:
    """Return the shape (C, H, W) of the first picture that can be read, after a conversion.

    Raises:
        InputError: If no picture can be read.
    """
    errors = []
    for path in paths:
        try:
            return pictures.picture(path, conversion=conversion).shape
        except InputError as error:
            errors.append(error)
    message = str(errors[0])
    if len(paths) > 1:
        message += f"; the other {len(paths) - 1:,} files cannot be read either"
    raise InputError(message)


def listed(root: Path, classes: Sequence[str] = ()) -> Tree:
    """List the pictures in a folder, without reading them, with their labels and class names.

    The label of a picture outside a subfolder is :data:`rs.statistics.certificate.UNLABELED`.

    Args:
        root: The folder: pictures, or subfolders with pictures, whose names are classes.
        classes: Names of the classes in the order of the logits; if empty, those of the subfolders,
            sorted.
    Raises:
        InputError: If a folder cannot be read, there are no pictures, or both kinds, or the classes
            are unknown or do not fit.
    """
    classes = tuple(classes)
    check_names(classes, "the classes")
    content = readers.list_folder(root)
    if not content.pictures and not content.folders:
        raise InputError(
            f"{root} must hold pictures or subfolders of pictures, but has neither; their names "
            f"must end in {', '.join(pictures.EXTENSIONS)}"
        )
    if not content.pictures:
        _check_no_splits(root, content.folders, classes)
        return _relabeled(readers.list_class_folders(root), classes)
    if next(readers.images_in(root), None) is not None:
        raise InputError(
            f"{root} must hold pictures or subfolders of pictures, got both; move one "
            "kind elsewhere"
        )
    if not classes:
        raise InputError(
            f"the classes of the pictures in {root} must be known; name them (--classes FILE, one "
            "per line, in the order of the logits), or make a subfolder of each"
        )
    samples = tuple((str(root / name), UNLABELED) for name in content.pictures)
    return Tree(root, classes, samples, content.left_out)


def _check_no_splits(root: Path, folders: Sequence[str], classes: Sequence[str]) -> None:
    """Refuse a folder with a folder for each split, unless these are named as classes."""
    splits = [name for name in folders if SPLIT.search(name) and name not in classes]
    if splits and len(splits) == len(folders):
        paths = ", ".join(str(root / name) for name in splits)
        raise InputError(
            f"{root} must have a subfolder for each class, but its subfolders are splits of a data "
            f"set; give one of them: {paths} (if these are classes, name them: --classes FILE)"
        )


def _relabeled(tree: Tree, classes: tuple[str, ...]) -> Tree:
    names = classes or tree.classes
    if len(names) < 2:
        raise InputError(
            f"{tree.root} must have a subfolder for each of two classes or more, got only "
            f"{names[0]}; if it has pictures of one class only, name all classes (--classes FILE, "
            "one per line, in the order of the logits)"
        )
    composed_names = composed(names)
    unknown = [name for name in tree.classes if name not in composed_names]
    if unknown:
        more = ", ..." if len(names) > 10 else ""
        raise InputError(
            f"the subfolders of {tree.root} must have names of classes, {', '.join(names[:10])}"
            f"{more}; got {', '.join(unknown[:5])}"
        )
    numbers = [composed_names.index(name) for name in tree.classes]
    samples = [(path, numbers[label]) for path, label in tree.samples]
    return replace(tree, classes=names, samples=tuple(samples))


def as_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    """Return uint8 pixels (C, H, W) as float32 in [0, 1]."""
    # A copy, because Pillow's array is read-only and lies in memory as (H, W, C).
    return torch.from_numpy(np.array(pixels, order="C")).float() / 255


def _augmentation(images: FolderImages, epoch: EpochPlan) -> Callable[[Image.Image], Tensor]:
    """Return the augmentation: a random resized crop if ``epoch.crop`` > 0, and a random flip."""
    from torchvision.transforms import v2  # slow to import, and not in a small installation

    channels, *sides = images.meta.shape
    steps: list[Callable[..., Any]] = []
    if epoch.crop > 0:
        steps.append(v2.RandomResizedCrop(sides))
    else:
        steps.append(partial(images.conversion.apply, channels=channels))
    if epoch.flip:
        steps.append(v2.RandomHorizontalFlip())
    return v2.Compose([*steps, _pixels])


def _pixels(image: Image.Image) -> Tensor:
    return as_tensor(np.atleast_3d(np.asarray(image)).transpose(2, 0, 1))


@dataclass(frozen=True)
class _Augmented(Dataset[tuple[Tensor, int]]):
    """Augmented images whose draws depend on (seed, epoch, index) alone, in whichever process."""

    images: FolderImages
    transform: Callable[[Image.Image], Tensor]
    seed: int
    epoch: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with torch.random.fork_rng(devices=[]):  # torchvision draws from torch's global generator
            torch.set_rng_state(stream(self.seed, Stream.AUGMENT, self.epoch, index).get_state())
            return self.transform(self.images.image(index)), int(self.images.labels[index])
