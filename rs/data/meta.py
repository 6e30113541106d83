"""The description of a prepared data set, ``meta.json``; NumPy is not imported."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rs.errors import InputError
from rs.params import MAX_CLASSES, Count, FilePath, Finite, Length, Positive, validated
from rs.storage import files


@validated
class ImagesOnDisk:
    """Location of the images of a data set that is not packed: ``root/folders[split]/class/*``."""

    root: FilePath
    folders: dict[str, FilePath]
    resize: int  # length of the shorter side before the test crop, in pixels

    def __post_init__(self) -> None:
        outside = [name for name in self.folders.values() if name in ("", ".", "..") or "/" in name]
        if outside:
            raise ValueError(f"folders must be names of folders in the root, got {outside[0]!r}")


@validated
class Meta:
    """Description of a data set, as ``meta.json`` holds it."""

    name: str
    classes: Annotated[tuple[str, ...], Field(max_length=MAX_CLASSES)]
    shape: Annotated[tuple[Length, ...], Field(min_length=1)]  # C, H, W
    mean: tuple[Finite, ...]  # (C,), images in [0, 1]; for the model's first layer, or none
    std: tuple[Positive, ...]  # (C,), as mean
    source: str  # where the images came from, for people
    sizes: dict[str, Count]  # images in each split
    # of each split: of its arrays; where lazy, of its list of files and their conversion
    sha256: dict[str, str]
    lazy: ImagesOnDisk | None = None
    raw: dict[str, str] | None = None  # checksums of the raw data, computed by its reader

    def __post_init__(self) -> None:
        check_classes(self.classes, f"data set {self.name}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, self.shape[0]):
            raise ValueError(
                f"mean and std must have one number for each of {self.shape[0]} channels, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        if not self.sizes.keys() <= self.sha256.keys():
            raise ValueError(f"sha256 must have the splits of sizes, {', '.join(self.sizes)}")

    @property
    def num_classes(self) -> int:
        """K, the number of classes."""
        return len(self.classes)


def check_classes(classes: Sequence[str], what: str) -> None:
    """Refuse fewer than two classes, between which nothing can be decided.

    Raises:
        InputError: If there are fewer.
    """
    if len(classes) < 2:
        raise InputError(
            f"{what} must have two classes or more, got {', '.join(classes) or 'none'}; add the "
            "others"
        )


def composed(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the Unicode form NFC, in which they are compared; macOS may write NFD."""
    return tuple(unicodedata.normalize("NFC", name) for name in names)


def check_names(classes: Sequence[str], what: str) -> None:
    """Refuse a list of classes in which a name is not Unicode text or comes twice.

    Names are compared in the form of :func:`composed`.

    Raises:
        InputError: If one is or does.
    """
    for name in classes:
        # Python uses a lone surrogate for a byte of a file name that is not UTF-8.
        if name.encode(errors="ignore").decode() != name:
            raise InputError(f"{what} must have names in UTF-8, got {name!a}; rename it")
    if len({*composed(classes)}) < len(classes):
        raise InputError(
            f"{what} must have different names, got {', '.join(classes)}; correct the list"
        )


def data_set_text(name: str | None, classes: Sequence[str], shape: Sequence[int]) -> str:
    """Return the text that names the data set of a classifier.

    >>> data_set_text("digits", ["0", "1"], (1, 8, 8))
    'digits (2 classes, shape [1, 8, 8])'
    """
    return f"{name} ({len(classes)} classes, shape {list(shape)})"


def read_meta(folder: Path) -> Meta:
    """Read ``folder/meta.json``.

    Raises:
        InputError: If it is missing or does not describe a data set.
    """
    path = folder / "meta.json"
    if not path.is_file():
        raise InputError(
            f"{folder} must be a prepared data set, but it has no meta.json; make one with `rs "
            "prepare`"
        )
    meta = files.read_as(Meta, path, "the description of a data set", "prepare it")
    if len(meta.shape) != 3:
        raise InputError(f"{path} must have the shape of images (C, H, W), got {meta.shape}")
    return meta
