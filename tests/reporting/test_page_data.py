"""The images on the report page: every picture in its place, and what rows say of each image."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from rs.data import prepared
from rs.reporting.page_data import COLUMNS, Pictures, image_table
from rs.reporting.results import Result
from tests.support.helpers import refuses
from tests.support.tiny_study import N0, N, make_rows


def some(count, channels=3, side=8):
    """Images of noise, which no format makes much smaller."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8)
    return Pictures(("a", "b"), "0" * 64, pixels)


def read(url):
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_stands_in_its_place_unchanged(channels):
    one, indices = some(COLUMNS + 9, channels), [*range(COLUMNS + 8, 2, -1)]
    url = one.sheet(indices)
    assert url.startswith("data:image/png;base64,")
    sheet = np.asarray(read(url))
    for place, index in enumerate(indices):
        line, column = divmod(place, COLUMNS)
        tile = sheet[line * 8 : line * 8 + 8, column * 8 : column * 8 + 8]
        assert (tile == one.pixels[index].transpose(1, 2, 0).squeeze()).all()


def test_a_data_set_is_read_with_its_classes_and_its_test_images(tmp_path):
    one = some(6)
    splits = {split: (one.pixels, np.array([0, 1] * 3)) for split in ("train", "test")}
    prepared.save_images(tmp_path / "tiny", "tiny", splits, ["cat", "dog"])
    read = Pictures.read(tmp_path / "tiny")
    assert read.classes == ("cat", "dog")
    assert read.fingerprint == prepared.read_meta(tmp_path / "tiny").sha256["test"]
    assert (read.pixels == one.pixels).all()
    prepared.save_images(tmp_path / "untested", "tiny", {"train": splits["train"]}, ["cat", "dog"])
    with refuses(r"test\.npz must be a file"):
        Pictures.read(tmp_path / "untested")


def test_images_that_are_not_packed_have_no_pictures_but_classes():
    assert Pictures(("a", "b"), "0" * 64, None).sheet([0, 1]) is None


def test_each_image_has_its_prediction_radius_and_votes():
    right = {"predict": 0, "correct": 1, "label": 0, "radius": 0.51, "counts": f"0:{N - 9},1:9"}
    wrong = right | {"predict": 1, "correct": 0, "counts": f"1:{N}"}
    abstains = wrong | {"predict": -1, "radius": 0.0, "counts": "0:60,1:120,2:20"}
    skipped = wrong | {"n": 0, "radius": 0.0, "counts0": f"1:{N0}", "counts": "-"}
    rows = make_rows(0.5, 0)[:4]
    for number, values in enumerate([right, wrong, abstains, skipped]):
        rows.loc[number, list(values)] = list(values.values())
    result = Result(name="certified", sigma=0.5, seed=0, rows=rows, subset="all")
    pictures = Pictures(("cat", "<dog>"), "0" * 64, None)
    titles, cells = image_table({"certified": result}, pictures)
    assert titles == ["Image", "Label", "certified: prediction", "radius", "votes"]
    texts = [[cell.replace("&nbsp;", " ") for cell in row] for row in cells]
    dog = "&lt;dog&gt;"
    mistake = f'<span class="wrong">{dog} (wrong)</span>'
    assert texts == [
        ["0", "cat", "cat", "0.510", f"cat: {N - 9}, {dog}: 9"],
        ["1", "cat", mistake, "0.510", f"{dog}: {N}"],
        ["2", "cat", "abstains", "0.000", f"{dog}: 120, cat: 60, no class: 20"],
        ["3", "cat", mistake, "0.000", f"{dog}: {N0} of the first {N0}"],
    ]
