"""What the page shows of a data set: the names of its classes, and its test images in small, where they are packed."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rs.data.format import read_meta, read_split

SIDE = 32
"""Pixels a side at most: larger images are made smaller."""

COLUMNS = 50
"""Images in a line of the sheet of all images."""

LIMIT = 1_000_000
"""Characters of the sheet at most: a PNG, or if that is too large a JPEG; of half of the images, a quarter, ..."""


@dataclass(frozen=True)
class Pictures:
    """The test images of a data set."""

    classes: tuple[str, ...]
    fingerprint: str  # SHA-256, as sidecars of rows have it
    pixels: NDArray[np.uint8] | None  # (N, C, H, W); None: not packed, or neither grey nor of three colours

    @classmethod
    def read(cls, folder: Path) -> Pictures:
        """Read a prepared data set.

        Raises:
            InputError: If it is missing or damaged.
        """
        meta = read_meta(folder)
        shown = meta.lazy is None and meta.shape[0] in (1, 3)
        return cls(meta.classes, meta.sha256["test"], read_split(folder, "test", meta)[0] if shown else None)

    def sheet(self, indices: Sequence[int]) -> dict[str, Any] | None:
        """Return the images of these numbers side by side, or the first of them, as many as :data:`LIMIT` has room for.

        Returns:
            ``url``, of the sheet as data; ``columns``, and ``count``, the images in it. ``None`` if there are none.
        """
        if self.pixels is None:
            return None
        tiles = [_small(image) for image in self.pixels[list(indices)].transpose(0, 2, 3, 1)]
        while len(url := _url(_side_by_side(tiles))) > LIMIT:
            tiles = tiles[: len(tiles) // 2]
        return {"url": url, "columns": COLUMNS, "count": len(tiles)}


def _small(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image (H, W, C) of :data:`SIDE` pixels a side at most."""
    small = Image.fromarray(image.squeeze(axis=2) if image.shape[2] == 1 else image)
    small.thumbnail((SIDE, SIDE))
    return np.asarray(small)


def _side_by_side(tiles: Sequence[NDArray[np.uint8]]) -> Image.Image:
    """Return images in lines of :data:`COLUMNS`, black where the last line ends early."""
    empty = [np.zeros_like(tiles[0])] * (-len(tiles) % COLUMNS)
    whole = [*tiles, *empty]
    lines = [np.concatenate(whole[start : start + COLUMNS], axis=1) for start in range(0, len(whole), COLUMNS)]
    return Image.fromarray(np.concatenate(lines))


def _url(sheet: Image.Image) -> str:
    lossless = _encoded(sheet, "PNG")
    return lossless if len(lossless) <= LIMIT else _encoded(sheet, "JPEG")


def _encoded(sheet: Image.Image, form: str) -> str:
    data = io.BytesIO()
    sheet.save(data, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
