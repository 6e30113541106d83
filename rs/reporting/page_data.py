"""What the page shows image by image: small pictures, predictions, radii and votes."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rs.data.meta import read_meta
from rs.data.prepared import read_split
from rs.reporting.results import Result
from rs.statistics.certificate import ABSTAIN, parse_counts
from rs.storage.certificate_rows import FILE

if TYPE_CHECKING:
    from rs.data.image_folder import FolderImages

MAX_IMAGES = 300
"""Images on the page at most, the first ones."""

MAX_CLASSES = 3
"""Classes whose votes are shown for an image, those with the most votes."""

SIDE = 32
"""Pixels per side at most: larger images are made smaller."""

COLUMNS = 50
"""Images in a line of the sheet of all images."""

MAX_SHEET = 500_000
"""Characters of the sheet as PNG at most: a larger one is a JPEG."""


@dataclass(frozen=True)
class Pictures:
    """The test images of a data set."""

    classes: tuple[str, ...]
    fingerprint: str  # SHA-256, as sidecars of rows have it
    pixels: NDArray[np.uint8] | None  # (N, C, H, W); None: not packed

    @classmethod
    def read(cls, folder: Path) -> Pictures:
        """Read a prepared data set.

        Raises:
            InputError: If it is missing or damaged.
        """
        meta = read_meta(folder)
        pixels = read_split(folder, "test", meta)[0] if meta.lazy is None else None
        return cls(meta.classes, meta.sha256["test"], pixels)

    @classmethod
    def of_folder(cls, images: FolderImages) -> Pictures:
        """Return the pictures of a folder, made small one by one."""
        tiles = []
        for index in range(len(images)):
            pixels = images.pixels(index).mul(255).byte().permute(1, 2, 0).numpy()
            small = np.atleast_3d(_small(pixels))
            tiles.append(small.transpose(2, 0, 1))
        return cls(images.meta.classes, images.fingerprint, np.stack(tiles))

    def sheet(self, indices: Sequence[int]) -> str | None:
        """Return the images of these numbers as one picture, in lines of :data:`COLUMNS`.

        Returns:
            The picture as a ``data:`` URL; ``None`` if there are no pixels.
        """
        if self.pixels is None:
            return None
        tiles = list(map(_small, self.pixels[list(indices)].transpose(0, 2, 3, 1)))
        tiles += [np.zeros_like(tiles[0])] * (-len(tiles) % COLUMNS)
        lines = []
        for start in range(0, len(tiles), COLUMNS):
            lines.append(np.concatenate(tiles[start : start + COLUMNS], axis=1))
        sheet = Image.fromarray(np.concatenate(lines))
        lossless = _data_url(sheet, "PNG")
        return lossless if len(lossless) <= MAX_SHEET else _data_url(sheet, "JPEG")


def image_table(
    results: Mapping[str, Result], pictures: Pictures | None
) -> tuple[list[str], list[list[str]]]:
    """Return the first images with what each classifier says of them.

    Args:
        results: Classifiers by their names on the page, all of the same images.
        pictures: The images, if they are there.
    Returns:
        Titles of columns, and rows of cells in HTML.
    """
    titles = ["Image", "Label"]
    classes = pictures.classes if pictures else ()
    lines: list[list[str]] = []
    for name, result in results.items():
        titles += [f"{name}: prediction", "radius", "votes"]
        frame = result.rows.sort_values("idx", kind="stable")[:MAX_IMAGES]
        for number, row in enumerate(frame.to_dict("records")):
            if number == len(lines):
                image = _picture(number, row["idx"], pictures)
                if FILE in row:
                    image += f" {escape(row[FILE])}"
                lines.append([image, _class_name(row["label"], classes)])
            cells = (_prediction(row, classes), f"{row['radius']:.3f}", _votes(row, classes))
            lines[number].extend(cells)
    return titles, lines


def _picture(position: int, idx: int, pictures: Pictures | None) -> str:
    """Return the number of an image after its picture, which is cut out of the sheet."""
    if pictures is None or pictures.pixels is None:
        return str(idx)
    line, column = divmod(position, COLUMNS)
    return f'<i class="picture" style="--column:{column};--line:{line}"></i>{idx}'


def _class_name(number: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has no name."""
    return escape(classes[number]) if number < len(classes) else str(number)


def _prediction(row: Mapping[str, Any], classes: Sequence[str]) -> str:
    if row["predict"] == ABSTAIN:
        return "abstains"
    name = _class_name(row["predict"], classes)
    return name if row["correct"] else f'<span class="wrong">{name} (wrong)</span>'


def _votes(row: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return the classes with the most votes; of the n0 samples where the n were skipped."""
    skipped = row["n"] == 0
    counts = parse_counts(row["counts0"] if skipped else row["counts"])
    largest = sorted(counts, key=lambda number: (-counts[number], number))[:MAX_CLASSES]
    listed = [f"{_class_name(number, classes)}:&nbsp;{counts[number]:,}" for number in largest]
    text = ", ".join(listed) + (", …" if len(counts) > MAX_CLASSES else "")
    return f"{text} of the first {row['n0']:,}" if skipped else text


def _small(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image (H, W, C) of :data:`SIDE` pixels per side at most."""
    small = Image.fromarray(image.squeeze(axis=2) if image.shape[2] == 1 else image)
    small.thumbnail((SIDE, SIDE))
    return np.asarray(small)


def _data_url(sheet: Image.Image, form: str) -> str:
    data = io.BytesIO()
    sheet.save(data, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
