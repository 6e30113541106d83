"""Raw data sets as arrays, and folders of class folders."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rs.data.meta import check_classes, check_names, composed
from rs.data.pictures import Conversion, is_picture
from rs.data.prepared import Arrays
from rs.errors import InputError, one_line, reason
from rs.params import MAX_CLASSES
from rs.runtime.progress import say
from rs.storage import files

SPLIT_NAMES = {"train": ("train",), "test": ("test", "val", "validation")}
"""Folder or file names of a split, in order of preference."""

SERVICE_NAMES = ("@eadir", "__macosx", "thumbs.db")
"""Lower-case names of what file servers, macOS and Windows put among pictures."""

HIDDEN = "hidden"
"""How files and folders are counted that begin with a dot or have a name in SERVICE_NAMES."""


@dataclass(frozen=True)
class Raw:
    """A data set in memory."""

    splits: dict[str, Arrays]
    classes: list[str]
    source: str  # where the data came from, for people


def stratified(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Mark a share of the images: in each class those with the lowest random keys.

    NumPy guarantees that ``SeedSequence`` makes the same keys in every version.
    """
    is_held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        sequence = np.random.SeedSequence(seed, spawn_key=(int(label),))
        order = np.argsort(sequence.generate_state(len(members), np.uint64), kind="stable")
        is_held_out[members[order[: round(share * len(members))]]] = True
    return is_held_out


def split_validation(raw: Raw, share: float) -> Raw:
    """Move a share of each class of the train split to a split ``validation``.

    Both keep the original order. The choice is a function of labels and share alone; share 0 moves
    nothing.

    Raises:
        InputError: If no image would be moved, or none would stay.
    """
    if share == 0:
        return raw
    images, labels = raw.splits["train"]
    held_out = stratified(labels, share, seed=0)
    if held_out.all() or not held_out.any():
        raise InputError(
            f"validation_share must leave some of {len(labels)} train images on each side, got "
            f"{share}, which holds out {held_out.sum()}"
        )
    new_splits = {
        "train": (images[~held_out], labels[~held_out]),
        "validation": (images[held_out], labels[held_out]),
    }
    source = f"{raw.source}; validation: {share} of each class of the train split"
    return Raw({**raw.splits, **new_splits}, raw.classes, source)


@dataclass(frozen=True)
class Tree:
    """The images of a folder of class folders."""

    root: Path
    classes: tuple[str, ...]  # names of the folders, sorted
    samples: tuple[tuple[str, int], ...]  # path and label of each image, by class and then by path
    left_out: Counter[str] = field(default_factory=Counter)  # other entries, as in FolderListing


def split_trees(root: Path, test_folder: str | None) -> dict[str, Tree]:
    """List the images of both splits.

    Raises:
        InputError: If a folder is missing or empty, or the two are one or have different classes.
    """
    trees = {}
    for split, names in split_names(test_folder).items():
        path = split_folder(root, names)
        if path is None:
            raise InputError(
                f"{root} must hold a folder {' or '.join(names)}, but there is none; check the root"
            )
        trees[split] = list_class_folders(path)
        if trees[split].left_out:
            say(describe_left_out(trees[split]), sys.stderr)
    if trees["train"].root.samefile(trees["test"].root):
        raise InputError(
            f"{root}: the splits must have different folders, got {trees['test'].root} for "
            "both; name another"
        )
    if trees["train"].classes != trees["test"].classes:
        differ = sorted(set(trees["train"].classes) ^ set(trees["test"].classes))
        raise InputError(
            f"{root}: both splits must have the same class folders, but {differ[:5]} are in one "
            "only"
        )
    return trees


def split_names(test: str | None) -> dict[str, tuple[str, ...]]:
    """Return the possible names of each split, in order of preference; ``test`` is that of one."""
    return SPLIT_NAMES | {"test": (test,)} if test else SPLIT_NAMES


def split_folder(root: Path, names: Sequence[str]) -> Path | None:
    """Return the folder of a split, by the first of its possible names; ``None`` without one."""
    return next((root / name for name in names if (root / name).is_dir()), None)


def folder_sum(folder: Path, contents: bool) -> str:
    """Return the SHA-256 of the list of the images in a folder of class folders.

    Args:
        folder: The folder.
        contents: Whether the SHA-256 of each image is in the list, or only its size in bytes.
    """
    images = {path.relative_to(folder).as_posix(): path for path in images_in(folder)}
    digest = hashlib.sha256()
    for name, path in sorted(images.items()):
        content = files.sha256(path) if contents else path.stat().st_size
        digest.update(os.fsencode(f"{name} {content}\n"))
    return digest.hexdigest()


def images_in(folder: Path) -> Iterator[Path]:
    """Yield the images in the class folders of ``folder``, at any depth and in any order."""
    for inner in _walked(folder):
        if inner.path != str(folder):
            for name in inner.pictures:
                yield Path(inner.path, name)


@dataclass(frozen=True)
class FolderListing:
    """The names in one folder, sorted, and what was left out."""

    path: str
    folders: tuple[str, ...]
    pictures: tuple[str, ...]
    left_out: Counter[str]  # other entries by extension, and those that are HIDDEN


def list_folder(path: str | Path) -> FolderListing:
    """List one folder; links to folders are folders.

    Raises:
        InputError: If it cannot be read.
    """
    try:
        entries = list(os.scandir(path))
    except OSError as error:
        raise InputError(
            f"{path} must be a folder that can be read, but: {reason(error)}; correct its name or "
            "its permissions"
        ) from error
    folders = []
    names = []
    left_out: Counter[str] = Counter()
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in SERVICE_NAMES:
            left_out[HIDDEN] += 1
        elif entry.is_dir():
            folders.append(entry.name)
        elif is_picture(entry.name):
            names.append(entry.name)
        else:
            left_out[_extension(entry.name)] += 1
    return FolderListing(str(path), tuple(sorted(folders)), tuple(sorted(names)), left_out)


def _extension(name: str) -> str:
    return Path(name).suffix.lower() or "no extension"


def _walked(folder: Path) -> Iterator[FolderListing]:
    """Yield ``folder`` and each folder in it, followed through links.

    Raises:
        InputError: If a folder cannot be read, or a link leads to a folder that contains it, whose
            images would count many times.
    """
    pending = [str(folder)]
    while pending:
        listed = list_folder(pending.pop())
        for name in listed.folders:
            link = Path(listed.path, name)
            if link.is_symlink() and Path(listed.path).resolve().is_relative_to(link.resolve()):
                raise InputError(
                    f"{link} must not be a link to a folder that contains it; remove it"
                )
            pending.append(str(link))
        yield listed


def list_class_folders(path: Path) -> Tree:
    """List the images of a folder of class folders, sorted by the composed names of the classes.

    As in torchvision, except that what is hidden is left out.

    Raises:
        InputError: If a folder cannot be read, there is no class in it, a class has no image, or
            the names of two classes look the same.
    """
    root = list_folder(path)
    check_names(root.folders, f"the class folders of {path}")
    left_out = root.left_out
    for name in root.pictures:
        left_out[_extension(name)] += 1
    folder_of = dict(zip(composed(root.folders), root.folders, strict=True))
    classes = tuple(sorted(folder_of))
    samples: list[tuple[str, int]] = []
    empty = []
    for label, name in enumerate(classes):
        number_before = len(samples)
        for folder in sorted(_walked(path / folder_of[name]), key=_path_of):
            left_out.update(folder.left_out)
            samples += [(os.path.join(folder.path, image), label) for image in folder.pictures]
        if len(samples) == number_before:
            empty.append(name)
    if empty or not classes:
        what = f"there is none in {', '.join(empty[:5])}" if empty else "it has no folder"
        raise InputError(f"{path} must hold class folders with images, but {what}; check it")
    return Tree(path, classes, tuple(samples), left_out)


def _path_of(folder: FolderListing) -> str:
    return folder.path


def describe_left_out(tree: Tree) -> str:
    """Return how many files and folders were left out, by extension; empty if none were.

    >>> describe_left_out(Tree(Path("photos"), (), (), Counter({".gif": 2, "hidden": 1})))
    'left out of photos: 2 .gif, 1 hidden'
    """
    kinds = [f"{count:,} {kind}" for kind, count in sorted(tree.left_out.items())]
    return f"left out of {tree.root}: {', '.join(kinds)}" if kinds else ""


def class_names(path: Path) -> tuple[str, ...]:
    """Read the names of classes from a text file, one per line, as :func:`composed` text.

    Raises:
        InputError: If it is missing or not UTF-8, a line is empty, a name comes twice, or there is
            only one.
    """
    try:
        text = files.read_bytes(path, files.MAX_TABLE_BYTES, "correct its name").decode("utf-8-sig")
        names = composed([line.strip() for line in text.rstrip().split("\n")])
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must hold names of classes, one per line, but: {one_line(error)}; save it in "
            "UTF-8"
        ) from error
    if "" in names:
        raise InputError(
            f"{path} must hold a name on each line, but line {names.index('') + 1} is empty; "
            "remove it"
        )
    check_names(names, str(path))
    check_classes(names, str(path))
    return names


def tree_sum(folders: Tree, conversion: Conversion | None = None) -> str:
    """Return the SHA-256 of the sorted names of the files, without their contents.

    Args:
        folders: The files; their names are relative to its root.
        conversion: How the files are converted where they are read, which the sum then depends on.
    """
    lines = sorted(Path(path).relative_to(folders.root).as_posix() for path, _ in folders.samples)
    if conversion is not None:
        lines.insert(0, str(conversion))
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.sha256(os.fsencode(text)).hexdigest()


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
        if label >= MAX_CLASSES:
            raise InputError(
                f"{where} must have a label of at most {MAX_CLASSES - 1:,}, got {label}; correct it"
            )
        if images and image.shape != images[0].shape:
            raise InputError(
                f"all images must have one shape (C, H, W), but {first} has {images[0].shape} "
                f"and {where} has {image.shape}; resize them, or add convert: RGB (or gray) to the "
                "data set in params.yaml where channels differ"
            )
        images.append(image)
        labels.append(label)
    pixels = np.stack(images) if images else np.empty((0, 1, 0, 0), np.uint8)
    return pixels, np.array(labels, np.int64)
