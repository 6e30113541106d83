"""The pictures on the page of a study: every image in its place, and no more of them than there is
room for.
"""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from rs.data import prepared
from rs.errors import InputError
from rs.reporting import page_data
from rs.reporting.page_data import COLUMNS, SIDE, Pictures


def some(count, channels=3, side=8):
    """Images of noise, which no format makes much smaller."""
    pixels = np.random.default_rng(0).integers(
        0, 256, (count, channels, side, side), dtype=np.uint8
    )
    return Pictures(("a", "b"), "0" * 64, pixels)


def tile(sheet, place, side=8):
    """The image at a place of a sheet, (H, W) or (H, W, 3)."""
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet["url"].partition(",")[2]))))
    line, column = divmod(place, sheet["columns"])
    return image[line * side : (line + 1) * side, column * side : (column + 1) * side]


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_stands_in_its_place_unchanged(channels):
    one, indices = some(COLUMNS + 9, channels), [*range(COLUMNS + 8, 2, -1)]
    sheet = one.sheet(indices)
    assert sheet["url"].startswith("data:image/png;base64,")
    assert sheet["count"] == len(indices) > sheet["columns"]
    for place, index in enumerate(indices):
        assert (tile(sheet, place) == one.pixels[index].transpose(1, 2, 0).squeeze()).all()


def test_a_sheet_that_is_too_large_is_a_jpeg_and_then_has_fewer_images(monkeypatch):
    one = some(4 * COLUMNS, side=16)
    whole = one.sheet(range(4 * COLUMNS))["url"]
    monkeypatch.setattr(page_data, "MAX_SHEET", len(whole) - 1)
    lossy = one.sheet(range(4 * COLUMNS))
    assert lossy["url"].startswith("data:image/jpeg;base64,")
    assert lossy["count"] == 4 * COLUMNS
    monkeypatch.setattr(page_data, "MAX_SHEET", len(lossy["url"]) - 1)
    fewer = one.sheet(range(4 * COLUMNS))
    assert fewer["count"] == 2 * COLUMNS
    assert len(fewer["url"]) < len(lossy["url"])


def test_large_images_are_made_smaller():
    image = Image.open(
        io.BytesIO(base64.b64decode(some(1, side=100).sheet([0])["url"].partition(",")[2]))
    )
    assert image.size == (COLUMNS * SIDE, SIDE)


def test_a_data_set_is_read_with_its_classes_and_its_test_images(tmp_path):
    one = some(6)
    splits = {split: (one.pixels, np.array([0, 1] * 3)) for split in ("train", "test")}
    prepared.save_images(tmp_path / "tiny", "tiny", splits, ["cat", "dog"])
    read = Pictures.read(tmp_path / "tiny")
    assert (read.classes, read.fingerprint) == (
        ("cat", "dog"),
        prepared.read_meta(tmp_path / "tiny").sha256["test"],
    )
    assert (read.pixels == one.pixels).all()
    prepared.save_images(tmp_path / "untested", "tiny", {"train": splits["train"]}, ["cat", "dog"])
    with pytest.raises(InputError, match=r"test\.npz must be a file"):
        Pictures.read(tmp_path / "untested")


def test_images_that_are_not_packed_have_no_pictures_but_classes():
    assert Pictures(("a", "b"), "0" * 64, None).sheet([0, 1]) is None
