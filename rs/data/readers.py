"""Raw data sets as arrays: scikit-learn's digits, torchvision's files, folders of class folders."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rs.data.format import SPLITS, Arrays, check_classes, check_names_differ
from rs.errors import InputError
from rs.params import MOST_CLASSES
from rs.storage import files

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

SPLIT_NAMES = {"train": ("train",), "test": ("test", "val", "validation")}
"""Folder or file names of a split, in order of preference."""

CHANNELS = {1: "8-bit grey", 3: "8-bit RGB"}
"""Kind of image, by the number of channels of a model."""

LARGEST = 2**14
"""Largest side of an image, in pixels."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Names of files that torchvision reads as images end so."""


FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
"""Pillow's names of the formats of these."""

CONVERTIBLE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's names of the modes of 8 bits or fewer: of others it turns all above 255 into white, 16-bit grey for one."""

MOST_BYTES, MOST_PIXELS = 2**28, 2**26
"""Of an image, as a file and decoded; larger ones are refused before they are."""


@dataclass(frozen=True)
class Raw:
    """A data set in memory."""

    splits: dict[str, Arrays]
    classes: list[str]
    source: str  # where the data came from, for people


def digits_sums() -> dict[str, str]:
    """Return the SHA-256 of scikit-learn's file of digits, without importing scikit-learn."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    assert spec.origin is not None
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return {path.name: files.sha256(path)} if path.is_file() else {}


def digits(test_share: float, split_seed: int) -> Raw:
    """Read scikit-learn's 1,797 handwritten digits, 8x8, and split them class by class.

    Values 0..16 become ``round(v * 255 / 16)``. Of the n images of a class ``round(test_share * n)`` are test
    images, chosen by a random key of each image that no version of a library changes. Both splits keep the
    original order.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.rint(raw.images * 255 / 16).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    labels = raw.target.astype(np.int64)
    test = _stratified(labels, test_share, split_seed)
    splits = {"train": (images[~test], labels[~test]), "test": (images[test], labels[test])}
    source = f"scikit-learn load_digits (UCI), test share {test_share} of each class, split seed {split_seed}"
    return Raw(splits, [str(name) for name in raw.target_names], source)


def _stratified(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Mark a share of the images: in each class those with the lowest keys, which no version of a library changes."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        sequence = np.random.SeedSequence(seed, spawn_key=(int(label),))
        order = np.argsort(sequence.generate_state(len(members), np.uint64), kind="stable")
        chosen[members[order[: round(share * len(members))]]] = True
    return chosen


def keep_back(raw: Raw, share: float) -> Raw:
    """Move a share of each class of the train split to a split ``validation``; both keep the original order.

    Nothing is moved at share 0. The choice is a function of labels and share alone.

    Raises:
        InputError: If no image would be moved, or none would stay.
    """
    if share == 0:
        return raw
    images, labels = raw.splits["train"]
    kept = _stratified(labels, share, seed=0)
    if kept.all() or not kept.any():
        raise InputError(
            f"validation_share must leave some of {len(labels)} train images on each side, got {share}, which keeps "
            f"back {kept.sum()}"
        )
    parts = {"train": (images[~kept], labels[~kept]), "validation": (images[kept], labels[kept])}
    source = f"{raw.source}; validation: {share} of each class of the train split"
    return Raw({**raw.splits, **parts}, raw.classes, source)


def torchvision(name: str, root: str | None, download: bool) -> Raw:
    """Read one of torchvision's data sets, train and test split; torchvision checks the sums of its files.

    Args:
        name: A key of :data:`TORCHVISION`.
        root: Folder that holds or receives torchvision's files; ``None`` is ``datasets`` in torch's cache.
        download: Whether to download what is missing.
    Raises:
        InputError: If the name is unknown, or the files are missing, wrong or out of reach.
    """
    if name not in TORCHVISION:
        raise InputError(f"source torchvision must be one of {', '.join(TORCHVISION)}, got {name!r}")
    import torch

    folder = Path(root) if root else Path(torch.hub.get_dir()).parent / "datasets"
    try:
        opened = {split: TORCHVISION[name](folder, split, download) for split in SPLITS}
    except (RuntimeError, OSError, EOFError, tarfile.TarError) as error:
        raise InputError(
            f"{folder} must hold torchvision's {name} with the right checksums, but: {one_line(error)}; "
            "allow the download, or give another root or source"
        ) from error
    splits = {split: (images, np.asarray(labels, np.int64)) for split, (images, labels, _) in opened.items()}
    return Raw(splits, list(opened["train"][2]), f"torchvision {name}, files checked by torchvision's md5 sums")


Opened = tuple[NDArray[np.uint8], Sequence[int], Sequence[str]]


def _cifar(kind: str) -> Callable[[Path, str, bool], Opened]:
    """Return the function that opens a split of torchvision's class ``kind``."""

    def opened(root: Path, split: str, download: bool) -> Opened:
        from torchvision import datasets

        data = getattr(datasets, kind)(root, train=split == "train", download=download)
        return data.data.transpose(0, 3, 1, 2), data.targets, data.classes

    return opened


def _svhn(root: Path, split: str, download: bool) -> Opened:
    """Open a split of SVHN; its "extra" split is never used."""
    from torchvision import datasets

    data = datasets.SVHN(root, split=split, download=download)
    return data.data, data.labels, [str(digit) for digit in range(10)]


TORCHVISION = {"cifar10": _cifar("CIFAR10"), "cifar100": _cifar("CIFAR100"), "svhn": _svhn}
"""Torchvision's data sets, and how to open a split of each."""


def folder(root: Path, test_folder: str | None) -> Raw:
    """Read ``root/train/CLASS/*`` and ``root/test/CLASS/*`` (or ``val``) into memory.

    Raises:
        InputError: If folders are missing or differ in classes, or an image is unreadable or of another size.
    """
    trees = split_trees(root, test_folder)
    splits = {split: stack(_files(tree)) for split, tree in trees.items()}
    sums = ", ".join(f"{split} (sha256 of its list of files {tree_sum(tree)})" for split, tree in trees.items())
    return Raw(splits, list(trees["train"].classes), f"folders of images: {sums}")


@dataclass(frozen=True)
class Tree:
    """The images of a folder of class folders."""

    root: Path
    classes: tuple[str, ...]  # names of the folders, sorted
    samples: tuple[tuple[str, int], ...]  # path and label of each image, by class and then by path


def split_trees(root: Path, test_folder: str | None) -> dict[str, Tree]:
    """List the images of both splits.

    Raises:
        InputError: If a folder is missing or empty, or the two are one or have different classes.
    """
    trees = {}
    for split, names in _split_names(test_folder).items():
        path = _split_folder(root, names)
        if path is None:
            raise InputError(f"{root} must hold a folder {' or '.join(names)}, but there is none; check the root")
        trees[split] = tree(path)
    if trees["train"].root.samefile(trees["test"].root):
        raise InputError(
            f"{root}: the splits must have folders of their own, got {trees['test'].root} for both; name another"
        )
    if trees["train"].classes != trees["test"].classes:
        differ = sorted(set(trees["train"].classes) ^ set(trees["test"].classes))
        raise InputError(f"{root}: both splits must have the same class folders, but {differ[:5]} are in one only")
    return trees


def _split_names(test_folder: str | None) -> dict[str, tuple[str, ...]]:
    return {**SPLIT_NAMES, **({"test": (test_folder,)} if test_folder else {})}


def _split_folder(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def folder_sums(root: Path, test_folder: str | None, contents: bool) -> dict[str, str]:
    """Return the SHA-256 of the lists of images of both splits, by folder in ``root``; none if a split has no folder.

    Args:
        root: Folder of the splits.
        test_folder: Name of the test folder; ``None`` tries :data:`SPLIT_NAMES`.
        contents: Whether the SHA-256 of each image is in its list, or only its size in bytes.
    """
    names = _split_names(test_folder).values()
    paths = [path for of_split in names if (path := _split_folder(root, of_split))]
    return (
        {os.path.relpath(path, root): _folder_sum(path, contents) for path in paths} if len(paths) == len(names) else {}
    )


def _folder_sum(folder: Path, contents: bool) -> str:
    images = sorted((path.relative_to(folder).as_posix(), path) for path in images_in(folder))
    gone = [path for _, path in images if not path.exists()]
    if gone:
        raise InputError(f"{gone[0]} must be an image, but is a link that leads nowhere; replace or remove it")
    lines = (f"{name} {files.sha256(path) if contents else path.stat().st_size}\n" for name, path in images)
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()


def images_in(folder: Path) -> Iterator[Path]:
    """Yield the images in the class folders of ``folder``, at any depth, as torchvision finds them, in any order."""
    for path, names in _walked(folder):
        if Path(path) != folder:
            yield from (Path(path, name) for name in names if is_picture(name))


def _walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder in ``folder``, itself and those that links lead to included, and the names of its files.

    Raises:
        InputError: If a link leads to a folder that it lies in, whose images would count many times.
        OSError: If a folder cannot be read.
    """
    for path, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        for link in filter(os.path.islink, (os.path.join(path, name) for name in folders)):
            if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(link)):
                raise InputError(f"{link} must not be a link to a folder that it lies in; remove it")
        yield path, names


def _raise(error: OSError) -> None:
    raise error


def tree(path: Path) -> Tree:
    """List the images of a folder of class folders, with torchvision's rules and order.

    Raises:
        InputError: If there is no such folder, no class in it, or a class without an image.
    """
    try:
        classes = tuple(sorted(entry.name for entry in os.scandir(path) if entry.is_dir()))
    except OSError as error:
        raise InputError(f"{path} must hold class folders with images, but: {one_line(error)}; check it") from error
    files_of = {name: _images_of_class(path / name) for name in classes}
    empty = [name for name, found in files_of.items() if not found]
    if empty or not classes:
        what = f"there is none in {', '.join(empty[:5])}" if empty else "it has no folder"
        raise InputError(f"{path} must hold class folders with images, but {what}; check it")
    return Tree(path, classes, tuple((file, label) for label, name in enumerate(classes) for file in files_of[name]))


def _images_of_class(folder: Path) -> list[str]:
    walked = sorted(_walked(folder))
    return [os.path.join(path, name) for path, names in walked for name in sorted(names) if is_picture(name)]


def is_picture(name: str) -> bool:
    """Return whether a file of this name is taken for an image."""
    return name.lower().endswith(EXTENSIONS)


def class_names(path: Path) -> tuple[str, ...]:
    """Read the names of classes from a text file, one a line.

    Raises:
        InputError: If it cannot be read, a line is empty, a name comes twice, or there is one alone.
    """
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8-sig").rstrip().split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must hold names of classes, one a line, but: {one_line(error)}") from error
    if "" in names:
        raise InputError(f"{path} must hold a name on each line, but line {names.index('') + 1} is empty; remove it")
    check_names_differ(names, str(path))
    check_classes(names, str(path))
    return names


def tree_sum(tree: Tree, how: Conversion | None = None) -> str:
    """Return the SHA-256 of the sorted list of files, relative to the tree's root; not of their contents.

    With ``how``, their conversion where they are read, other conversions of the same files have other sums.
    """
    names = sorted(Path(path).relative_to(tree.root).as_posix() for path, _ in tree.samples)
    lines = [*([] if how is None else [str(how)]), *names]
    return hashlib.sha256(os.fsencode("".join(f"{line}\n" for line in lines))).hexdigest()


def _files(tree: Tree) -> Iterable[tuple[str, NDArray[np.uint8], int]]:
    for path, label in tree.samples:
        yield path, decode(files.read_bytes(Path(path), MOST_BYTES, "replace it"), path), label


@dataclass(frozen=True)
class Conversion:
    """What makes a picture an image of the size and the channels of a model: the field's transform of test images."""

    resize: int | None = None  # length of the shorter side, in pixels
    crop: int | None = None  # side of the square in the middle
    convert: bool = False  # to 8-bit grey or RGB

    def __post_init__(self) -> None:
        for name, side in (("resize", self.resize), ("crop", self.crop)):
            if side is not None and not 1 <= side <= LARGEST:
                raise InputError(f"--{name} must be a number of pixels from 1 to {LARGEST}, got {side}")

    def __str__(self) -> str:
        """Return it in words; empty if nothing is done.

        >>> str(Conversion(256, 224, convert=True))
        'shorter side 256, central 224x224, converted'
        """
        words = (
            f"shorter side {self.resize}" if self.resize else "",
            f"central {self.crop}x{self.crop}" if self.crop else "",
            "converted" if self.convert else "",
        )
        return ", ".join(filter(None, words))

    def apply(self, image: PillowImage, channels: int) -> PillowImage:
        """Return the converted picture: first its channels, then its size (bilinear), then its middle.

        Raises:
            InputError: If it is smaller than the crop, or cannot be converted; says what must hold of it.
        """
        from PIL import Image

        if self.convert and image.mode not in CONVERTIBLE:
            raise InputError(f"must have at most 8 bits a channel to be converted, got mode {image.mode}; save it so")
        if self.convert:
            image = image.convert("L" if channels == 1 else "RGB")
        resized = self._resized(image.size)
        if resized != image.size:
            image = image.resize(resized, Image.Resampling.BILINEAR)
        if self.crop is None:
            return image
        if self.crop > min(image.size):
            raise InputError(
                f"must be at least as large as --crop {self.crop}, got {image.width} x {image.height}; give a smaller "
                f"--crop, or add --resize {self.crop}"
            )
        left, top = (round((side - self.crop) / 2) for side in image.size)
        return image.crop((left, top, left + self.crop, top + self.crop))

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height of a converted picture, from those of the file.

        >>> Conversion(resize=256).size(512, 300), Conversion(crop=224).size(512, 300)
        ((436, 256), (224, 224))
        """
        return self._resized((width, height)) if self.crop is None else (self.crop, self.crop)

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = (side if self.resize is None else self.resize * side // min(size) for side in size)
        return width, height


def shape_of(file: str | Path, how: Conversion | None = None) -> tuple[int, int, int] | None:
    """Return (C, H, W) of :func:`picture`, without decoding the file; ``None`` if it is no such image.

    Args:
        file: Its path.
        how: How it is converted; grey or RGB, it has three channels after ``how.convert``.
    """
    how = how or Conversion()
    try:
        with _opened(files.read_bytes(Path(file), MOST_BYTES, "correct its name")) as image:
            mode = "RGB" if how.convert and image.mode in CONVERTIBLE else image.mode
            width, height = how.size(*image.size)
    except Exception:  # Pillow raises errors of every kind on damaged files; whoever reads the picture says which
        return None
    return (channels, height, width) if (channels := {"L": 1, "RGB": 3}.get(mode)) else None


def picture(file: str | Path, shape: Sequence[int] | None = None, how: Conversion | None = None) -> NDArray[np.uint8]:
    """Read an image file as uint8 (C, H, W).

    Args:
        file: Its path.
        shape: (C, H, W) of the images of a model; ``None`` takes what comes.
        how: How it is converted first; ``None`` leaves it as it is.
    Raises:
        InputError: If it is unreadable, or not an 8-bit grey or RGB image of exactly ``shape``.
    """
    try:
        content = files.read_bytes(Path(file), MOST_BYTES, "correct its name")
    except OSError as error:
        raise InputError(f"{file} must be a file that can be read, but: {one_line(error)}; correct its name") from error
    pixels = decode(content, str(file), how, 3 if shape is None else shape[0])
    if shape is not None and pixels.shape != tuple(shape):
        expected, actual = kind(shape), kind(pixels.shape)
        steps = {"convert": pixels.shape[0] != shape[0], "resize": pixels.shape[1:] != tuple(shape[1:])}
        remedy = " and ".join(step for step, is_needed in steps.items() if is_needed)
        raise InputError(
            f"{file} must be {expected}, as the images of the model are, got {actual}; {remedy} it, or let --convert, "
            "--resize and --crop do so"
        )
    return pixels


def kind(shape: Sequence[int]) -> str:
    """Return what images of a shape are.

    >>> kind((3, 32, 40))
    '8-bit RGB of 32x40 (height x width)'
    """
    channels, height, width = shape
    return f"{CHANNELS[channels]} of {height}x{width} (height x width)"


def decode(data: bytes, where: str, how: Conversion | None = None, channels: int = 3) -> NDArray[np.uint8]:
    """Decode an 8-bit grey or RGB image to (C, H, W), after a conversion if one is given.

    Raises:
        InputError: If the bytes are no such image.
    """
    try:
        with _opened(data) as file:
            image = file if how is None else how.apply(file, channels)
            mode, pixels = image.mode, np.asarray(image)
    except InputError as error:  # of the conversion
        raise InputError(f"{where} {error}") from error
    except Exception as error:  # Pillow raises errors of every kind on damaged files
        raise InputError(f"{where} must be an image, but: {one_line(error)}; replace or remove it") from error
    if mode not in ("L", "RGB"):
        raise InputError(f"{where} must be an 8-bit grey or RGB image, got mode {mode}; convert it")
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def _opened(data: bytes) -> PillowImage:
    """Open an image of one of the :data:`FORMATS`, none of which runs a program, before its pixels are decoded.

    Raises:
        ValueError: If it has more than :data:`MOST_PIXELS`; Pillow raises other errors.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:  # it names an object in memory
        raise ValueError(f"it is none of {', '.join(FORMATS)}") from error
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"it must have at most {MOST_PIXELS:,} pixels, got {image.width} x {image.height}")
    return image


def stack(rows: Iterable[tuple[str, NDArray[np.uint8], int]]) -> Arrays:
    """Stack named images (C, H, W) of one shape to (N, C, H, W), and their labels to (N,).

    Raises:
        InputError: If two images differ in shape.
    """
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    first = ""
    for where, image, label in rows:
        first = first or where
        if label >= MOST_CLASSES:
            raise InputError(f"{where} must have a label of at most {MOST_CLASSES - 1:,}, got {label}; correct it")
        if images and image.shape != images[0].shape:
            raise InputError(
                f"all images must have one shape (C, H, W), but {first} has {images[0].shape} "
                f"and {where} has {image.shape}; resize or convert them"
            )
        images.append(image)
        labels.append(label)
    pixels = np.stack(images) if images else np.empty((0, 1, 0, 0), np.uint8)
    return pixels, np.array(labels, np.int64)


def one_line(error: BaseException) -> str:
    """Return an error's message as one line."""
    return " ".join(str(error).split()) or type(error).__name__
