"""The sources of data sets, each a dataclass of the settings in a section ``datasets.NAME``."""

from __future__ import annotations

import importlib.util
import os
import tarfile
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from rs.data import parquet, readers
from rs.data.meta import ImagesOnDisk, Meta, check_names, read_meta
from rs.data.pictures import Colors, Conversion, read_picture
from rs.data.prepared import SPLITS, save_images, write_folder
from rs.data.readers import Raw
from rs.errors import InputError, one_line
from rs.params import FilePath, validate, validated
from rs.storage import files

Constants = list[Annotated[float, Field(ge=0, le=1)]] | None
"""One number per channel on the [0, 1] scale; ``None`` computes it from the train split."""

Share = Annotated[float, Field(ge=0, lt=1)]
"""Share of each class of the train split to hold out as the split ``validation``."""


TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "svhn": "SVHN"}
"""Data sets of torchvision, and the names of their classes there."""

SplitName = Annotated[str, Field(pattern=r"^\w[\w-]*$")]
"""First word of the names of a split's files."""


@validated
class DataSource:
    """Base class of data sources: common settings, and the preparation of a data set."""

    mean: Constants = None
    std: Constants = None
    validation_share: Share = 0.0

    def read(self, name: str) -> Raw:
        """Read the raw data of the data set ``name``.

        Raises:
            InputError: If it is missing, broken or does not fit the settings.
        """
        raise NotImplementedError

    def sums(self) -> dict[str, str]:
        """Return checksums of the raw data, by file or folder, without importing torch.

        Returns:
            Empty if the raw data are not on this machine.
        """
        raise NotImplementedError

    def prepare(self, name: str, folder: Path) -> None:
        """Write the data set ``name`` to ``folder``, whole or not at all.

        Raises:
            InputError: As :meth:`read`.
        """
        sums = self.sums()
        raw = readers.split_validation(self.read(name), self.validation_share)
        save_images(
            folder,
            name,
            raw.splits,
            raw.classes,
            mean=self.mean,
            std=self.std,
            source=raw.source,
            raw=sums,
        )


@validated
class Digits(DataSource):
    """Scikit-learn's 1,797 handwritten digits, which come with the package."""

    source: Literal["sklearn"]
    test_share: Annotated[float, Field(gt=0, lt=1)]  # of each class
    split_seed: Annotated[int, Field(ge=0)]

    def read(self, name: str) -> Raw:
        """Read the digits, 8x8, and split them class by class; raise as :meth:`DataSource.read`.

        Values 0..16 become ``round(v * 255 / 16)``. Of the n images of a class ``round(test_share *
        n)`` are test images, chosen by a random key per image. Both splits keep the original order.
        """
        if name != "digits":
            raise InputError(
                f"source sklearn has only the data set digits, got {name}; name another source"
            )
        from sklearn.datasets import load_digits

        raw = load_digits()
        images = np.rint(raw.images * 255 / 16).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
        labels = raw.target.astype(np.int64)
        test = readers.stratified(labels, self.test_share, self.split_seed)
        splits = {"train": (images[~test], labels[~test]), "test": (images[test], labels[test])}
        source = (
            f"scikit-learn load_digits (UCI), test share {self.test_share} of each class, split "
            f"seed {self.split_seed}"
        )
        return Raw(splits, [str(name) for name in raw.target_names], source)

    def sums(self) -> dict[str, str]:
        """Return the SHA-256 of scikit-learn's file of digits, without importing scikit-learn."""
        spec = importlib.util.find_spec("sklearn")
        if spec is None:
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
        assert spec.origin is not None
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        return {path.name: files.sha256(path)} if path.is_file() else {}


@validated
class Torchvision(DataSource):
    """CIFAR-10, CIFAR-100 or SVHN, downloaded by torchvision or in its layout on disk."""

    source: Literal["torchvision"]
    dataset: str | None = None  # torchvision's name of it; None: the name of the section
    root: FilePath | None = None  # folder of torchvision's files; None: torch's cache
    download: bool = True  # what is missing

    def read(self, name: str) -> Raw:
        """Read torchvision's splits of ``dataset``, by default ``name``.

        Raises:
            InputError: If the name is unknown, or the files are missing, wrong or out of reach.
        """
        name = self.dataset or name
        if name not in TORCHVISION:
            raise InputError(
                f"source torchvision must be one of {', '.join(TORCHVISION)}, got {name!r}"
            )
        import torch

        folder = Path(self.root) if self.root else Path(torch.hub.get_dir()).parent / "datasets"
        splits = {}
        try:
            for split in SPLITS:
                images, labels, classes = self._open(name, folder, split)
                splits[split] = images, np.asarray(labels, np.int64)
        except (RuntimeError, OSError, EOFError, tarfile.TarError) as error:
            raise InputError(
                f"{folder} must hold torchvision's {name} with the right checksums, but: "
                f"{one_line(error)}; allow the download, or give another root or source"
            ) from error
        return Raw(splits, classes, f"torchvision {name}, files checked by torchvision's md5 sums")

    def _open(self, name: str, root: Path, split: str) -> tuple[Any, Any, list[str]]:
        """Return images (N, C, H, W), labels (N,) and class names; SVHN without "extra"."""
        from torchvision import datasets

        if name == "svhn":
            digits = datasets.SVHN(root, split=split, download=self.download)
            return digits.data, digits.labels, [str(digit) for digit in range(10)]
        kind = getattr(datasets, TORCHVISION[name])
        data = kind(root, train=split == "train", download=self.download)
        return data.data.transpose(0, 3, 1, 2), data.targets, data.classes

    def sums(self) -> dict[str, str]:
        """Return a constant: torchvision refuses files with another checksum."""
        return {"files": "checked by torchvision's md5 sums"}


@validated
class Parquet(DataSource):
    """A folder of parquet files in the layout of the Hugging Face hub."""

    source: Literal["parquet"]
    root: FilePath
    classes: list[str] | None = None  # names, where the files have none
    test_split: SplitName | None = None  # None: test, val or validation, whichever exists
    convert: Colors | None = None  # None: all files have the same colors

    def read(self, name: str) -> Raw:
        """See :class:`DataSource`."""
        root = Path(self.root)
        return parquet.read_parquet(root, self.classes, self.test_split, self.convert)

    def sums(self) -> dict[str, str]:
        """See :class:`DataSource`."""
        return parquet.sums(Path(self.root), self.test_split)


@validated
class Folder(DataSource):
    """A folder with ``train/CLASS/*`` and ``test/CLASS/*`` (or ``val``), packed or in place."""

    source: Literal["folder"]
    root: FilePath
    test_folder: FilePath | None = None  # None: test, val or validation, whichever exists
    convert: Colors | None = None  # None: all files have the same colors; lazy: always RGB
    lazy: bool = False  # leave the images where they are; then validation_share is 0
    # lazy: shorter side before the test crop, and side of the model's input, in pixels
    resize: Annotated[int, Field(ge=1)] | None = None
    crop: Annotated[int, Field(ge=1)] | None = None

    def __post_init__(self) -> None:
        sides = self.resize is not None and self.crop is not None and self.crop <= self.resize
        if self.lazy and not (sides and self.mean is not None and self.std is not None):
            raise ValueError("a lazy folder needs resize, crop (at most resize), mean and std")
        if not self.lazy and (self.resize, self.crop) != (None, None):
            raise ValueError("resize and crop are for lazy folders; packed images keep their size")
        if self.lazy and self.convert == "gray":
            raise ValueError("convert must be RGB for a lazy folder, got gray; leave lazy out")
        if self.lazy and self.validation_share:
            raise ValueError(
                "validation_share must be 0 for a lazy folder, because its images stay where they "
                "are"
            )
        test_folder = self.test_folder or "test"
        if self.lazy and ("/" in test_folder or test_folder in (".", "..")):
            raise ValueError(
                f"test_folder of a lazy folder must be a name in the root, got {test_folder!r}"
            )

    def read(self, name: str) -> Raw:
        """See :class:`DataSource`."""
        trees = readers.split_trees(Path(self.root), self.test_folder)
        splits = {}
        sums = []
        for split, tree in trees.items():
            rows = ((path, read_picture(path, self.convert), label) for path, label in tree.samples)
            splits[split] = readers.stack(rows)
            sums.append(f"{split} (sha256 of its list of files {readers.tree_sum(tree)})")
        source = f"folders of images: {', '.join(sums)}"
        if self.convert:
            source += f", converted to {self.convert}"
        return Raw(splits, list(trees["train"].classes), source)

    def sums(self) -> dict[str, str]:
        """Return checksums of both splits: of names and sizes alone if images stay in place."""
        sums = {}
        for names in readers.split_names(self.test_folder).values():
            path = readers.split_folder(Path(self.root), names)
            if path is None:
                return {}
            sums[os.path.relpath(path, self.root)] = readers.folder_sum(path, not self.lazy)
        return sums

    def prepare(self, name: str, folder: Path) -> None:
        """Write the data set; if the images stay in place, only ``meta.json``."""
        if not self.lazy:
            super().prepare(name, folder)
            return
        assert self.resize is not None
        assert self.crop is not None  # as mean and std
        check_names([self.root], "the root of a lazy folder")
        trees = readers.split_trees(Path(self.root), self.test_folder)
        conversion = Conversion(self.resize, self.crop, convert=True)
        sizes = {}
        sha256 = {}
        folders: dict[str, str] = {}
        for split, tree in trees.items():
            sizes[split] = len(tree.samples)
            sha256[split] = readers.tree_sum(tree, conversion)
            folders[split] = tree.root.name
        meta = Meta(
            name=name,
            classes=trees["train"].classes,
            shape=(3, self.crop, self.crop),
            mean=tuple(self.mean or ()),
            std=tuple(self.std or ()),
            source=f"images left in {self.root}, read one by one",
            sizes=sizes,
            sha256=sha256,
            lazy=ImagesOnDisk(root=self.root, folders=folders, resize=self.resize),
            raw=self.sums(),
        )
        write_folder(folder, meta, {})


COMMON_SETTINGS = ("mean", "std", "validation_share")
"""Settings of every source."""

SOURCES: dict[str, type[DataSource]] = {
    "sklearn": Digits,
    "torchvision": Torchvision,
    "parquet": Parquet,
    "folder": Folder,
}
"""Name in ``params.yaml`` -> settings."""


def settings(
    values: Any, where: str, source: str | None = None, root: Path | None = None
) -> DataSource:
    """Read a section ``datasets.NAME`` as the settings of its source.

    Args:
        values: The section.
        where: Its dotted key, for messages.
        source: In place of the section's source; of the rest of the section only
            :data:`COMMON_SETTINGS` then stay.
        root: In place of the section's root.
    Raises:
        InputError: If the source is unknown, or keys are unknown, missing or out of range.
    """
    if not isinstance(values, dict):
        raise InputError(
            f"params.yaml: {where} must be a mapping with a key source, got {values!r}"
        )
    if source is not None and source != values.get("source"):
        values = {key: values[key] for key in COMMON_SETTINGS if key in values} | {"source": source}
    if root is not None:
        values = values | {"root": str(root)}
    kind = values.get("source")
    if not isinstance(kind, str) or kind not in SOURCES:
        key = f"params.yaml: {where}.source" if source is None else "--source"
        raise InputError(f"{key} must be one of {', '.join(SOURCES)}, got {kind!r}")
    origins = {} if source is None and root is None else {"root": "--root"}
    return validate(SOURCES[kind], values, where, origins)


def raw_fingerprint(source: DataSource, folder: Path) -> dict[str, str]:
    """Return the checksums of the raw data, or else those that ``folder`` was prepared from.

    Raises:
        InputError: If they are needed and the ``meta.json`` of ``folder`` is broken.
    """
    sums = source.sums()
    if not sums and (folder / "meta.json").is_file():
        sums = read_meta(folder).raw or {}
    return sums or {"raw": "absent"}
