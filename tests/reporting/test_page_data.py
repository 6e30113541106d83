"""The images on the report page: every picture in its place, and what rows say of each image."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from rs.data import meta, prepared
from rs.reporting.page_data import COLUMNS, Pictures, image_table
from rs.reporting.results import Result
from tests.support.tiny_study import N0, N, make_rows


def some(count, channels=3):
    """Pixels of noise, which no format makes much smaller."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, channels, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_stands_in_its_place_unchanged(channels):
    pixels = some(COLUMNS + 9, channels)
    indices = [*range(COLUMNS + 8, 2, -1)]
    head, text = Pictures((), "", pixels).sheet(indices).split(",")
    assert head == "data:image/png;base64"
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    for place, index in enumerate(indices):
        line, column = divmod(place, COLUMNS)
        tile = sheet[line * 8 : line * 8 + 8, column * 8 : column * 8 + 8]
        assert (tile == pixels[index].transpose(1, 2, 0).squeeze()).all()


def test_a_data_set_is_read_with_its_classes_and_its_test_images(tmp_path):
    pixels = some(6)
    splits = {split: (pixels, np.array([0, 1] * 3)) for split in ("train", "test")}
    prepared.save_images(tmp_path / "tiny", "tiny", splits, ["cat", "dog"])
    read = Pictures.read(tmp_path / "tiny")
    assert read.classes == ("cat", "dog")
    assert read.fingerprint == meta.read_meta(tmp_path / "tiny").sha256["test"]
    assert (read.pixels == pixels).all()


def test_each_image_has_its_prediction_radius_and_votes():
    """Right, wrong, abstaining, and without the n samples."""
    rows = make_rows(0.5, 0)[:4].assign(
        label=0,
        predict=[0, 1, -1, 1],
        correct=[1, 0, 0, 0],
        radius=[0.51, 0.51, 0.0, 0.0],
        n=[N, N, N, 0],
        counts0=f"1:{N0}",
        counts=[f"0:{N - 9},1:9", f"1:{N}", "0:60,1:120,2:20", "-"],
    )
    result = Result(name="certified", sigma=0.5, seed=0, rows=rows, subset="all")
    _, cells = image_table({"certified": result}, Pictures(("cat", "<dog>"), "", None))
    texts = [", ".join(row).replace("&nbsp;", " ") for row in cells]
    dog = "&lt;dog&gt;"
    mistake = f'<span class="wrong">{dog} (wrong)</span>'
    assert texts == [
        f"0, cat, cat, 0.510, cat: {N - 9}, {dog}: 9",
        f"1, cat, {mistake}, 0.510, {dog}: {N}",
        f"2, cat, abstains, 0.000, {dog}: 120, cat: 60, 2: 20",
        f"3, cat, {mistake}, 0.000, {dog}: {N0} of the first {N0}",
    ]
