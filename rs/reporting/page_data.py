"""What the page holds in bulk: the votes of rows, and the test images in small."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rs.data.prepared import read_meta, read_split
from rs.reporting.results import Result
from rs.statistics import metrics
from rs.statistics.certificate import votes_for, votes_of
from rs.statistics.resampling import dense_votes

if TYPE_CHECKING:
    from rs.data.image_folder import FolderImages

SIDE = 32
"""Pixels a side at most: larger images are made smaller."""

COLUMNS = 50
"""Images in a line of the sheet of all images."""

MAX_SHEET = 1_000_000
"""Characters of the sheet at most: a PNG, or if that is too large a JPEG; of half of the images, a
quarter, ...
"""


def has_votes(result: Result) -> bool:
    """Return whether rows hold the votes of a fixed number of draws; a log, whose n may be NaN,
    does not.
    """
    rows = result.rows
    return (
        metrics.mode_of(rows) == "certify"
        and not ((rows["counts"] == "-") & (rows["n"] != 0)).any()
    )


def vote_columns(rows: Any, draws: int) -> NDArray[np.int64]:
    """Return of every image what its certificates depend on, in numbers that are mostly 0.

    Args:
        rows: In the order of the images' numbers, with votes.
        draws: n.
    Returns:
        Shape (4, N): the class that the n0 draws chose + 1, or 0 for the label; draws that did not
            vote for it, n + 1
        where the n draws were skipped; those of them that voted for none of the first two classes;
        votes for the label if it was not chosen.
    """
    labels = rows["label"].to_numpy()
    chosen = dense_votes(rows["counts0"]).argmax(axis=1)  # the lowest class of several
    votes = votes_of(rows["counts"])
    row, k, count = votes
    second = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(second, row, np.where(k == chosen[row], 0, count))
    skipped, right = rows["n"].to_numpy() == 0, chosen == labels
    missing = draws - votes_for(votes, chosen)
    label_votes = np.where(right, 0, votes_for(votes, labels))
    return np.stack(
        [
            np.where(right, 0, chosen + 1),
            np.where(skipped, draws + 1, missing),
            np.where(skipped, 0, missing - second),
            label_votes,
        ]
    )


def packed(columns: Sequence[NDArray[np.int64]], width: int) -> str:
    """Return numbers of at most ``width`` bytes as text: byte by byte, the low ones of all first,
    deflated, base64.
    """
    whole = np.stack(columns, axis=1).astype("<u8")  # (4, results, images)
    planes = [(whole >> np.uint64(8 * byte)).astype(np.uint8).tobytes() for byte in range(width)]
    return base64.b64encode(zlib.compress(b"".join(planes), 9)).decode()


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
        tiles = [
            _small(images.pixels(index).mul(255).byte().permute(1, 2, 0).numpy())
            for index in range(len(images))
        ]
        pixels = np.stack([np.atleast_3d(tile).transpose(2, 0, 1) for tile in tiles])
        return cls(images.meta.classes, images.fingerprint, pixels)

    def sheet(self, indices: Sequence[int]) -> dict[str, Any] | None:
        """Return the images of these numbers side by side, or as many of the first as
        :data:`MAX_SHEET` has room for.

        Returns:
            ``url``, of the sheet as data; ``columns``, and ``count``, the images in it. ``None`` if
            there are none.
        """
        if self.pixels is None:
            return None
        tiles = [_small(image) for image in self.pixels[list(indices)].transpose(0, 2, 3, 1)]
        while len(url := _url(_side_by_side(tiles))) > MAX_SHEET:
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
    lines = [
        np.concatenate(whole[start : start + COLUMNS], axis=1)
        for start in range(0, len(whole), COLUMNS)
    ]
    return Image.fromarray(np.concatenate(lines))


def _url(sheet: Image.Image) -> str:
    lossless = _encoded(sheet, "PNG")
    return lossless if len(lossless) <= MAX_SHEET else _encoded(sheet, "JPEG")


def _encoded(sheet: Image.Image, form: str) -> str:
    data = io.BytesIO()
    sheet.save(data, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
