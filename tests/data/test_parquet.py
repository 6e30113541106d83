import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.support.helpers import refuses
from tests.support.raw_images import damage, image_bytes, pixels, prepare, refused, write_parquet


def at(root):
    """Settings of parquet files in a folder."""
    return {"source": "parquet", "root": str(root)}


def test_parquet_shards_are_read_in_order_with_the_hubs_class_names(hub, tmp_path):
    train, test = prepare(tmp_path, **at(hub))
    assert np.array_equal(
        np.concatenate([train.images, test.images]), pixels(6).transpose(0, 3, 1, 2)
    )
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 0, 1], [1, 0])
    assert train.meta.classes == ("x", "y")


def test_gray_images_have_one_channel_and_other_names_are_understood(tmp_path):
    """Of columns, of a split, and of classes."""
    images = pixels(3, (4, 5))
    cells = [image_bytes(image) for image in images]
    names = {"image": "image", "label": "fine_label"}
    for split in ("train", "validation"):
        write_parquet(tmp_path / "raw" / f"{split}.parquet", cells, [0, 2, 1], **names)
    train, _ = prepare(tmp_path, **at(tmp_path / "raw"))
    assert np.array_equal(train.images, images[:, None])
    assert train.meta.classes == ("0", "1", "2")
    train, _ = prepare(tmp_path, **at(tmp_path / "raw"), classes=["a", "b", "c"])
    assert train.meta.classes == ("a", "b", "c")


GOOD = image_bytes(pixels(1)[0])
HASHED = "train-00000-of-00002-b42a775f407cee45.parquet"


@pytest.mark.parametrize(
    ("cells", "labels", "message"),
    [
        ([GOOD, b"no image"], [0, 1], r"train.parquet row 1 must be an image"),
        ([GOOD, GOOD], [0, None], "row 1 must have the bytes"),
        (
            [GOOD, image_bytes(pixels(1, (5, 5, 3))[0])],
            [0, 1],
            r"one shape .* \(3, 4, 5\) .* row 1 has \(3, 5, 5\)",
        ),
        ([GOOD, GOOD], [0, 2], r"labels must lie in 0..1"),
        (
            [GOOD, GOOD],
            pa.array(["x", "y"]).dictionary_encode(),
            "whole-number column label.* label: dictionary<values=string",
        ),
    ],
)
def test_bad_rows_are_refused(tmp_path, cells, labels, message):
    write_parquet(tmp_path / "raw" / "train.parquet", cells, labels, names=["x", "y"])
    write_parquet(tmp_path / "raw" / "test.parquet", [GOOD, GOOD], [0, 1], names=["x", "y"])
    refused(tmp_path, message, **at(tmp_path / "raw"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage("test-00000-of-00001.parquet", Path.unlink), "must hold test.parquet or"),
        (damage(HASHED, Path.unlink), "all shards of train, got 1 of 2"),
        (damage(HASHED, lambda path: path.write_bytes(b"PAR1")), "must be a parquet file"),
        (
            damage("test.parquet", lambda path: write_parquet(path, [GOOD], [0], names=["x", "z"])),
            "name the same classes",
        ),
        (
            lambda root: pq.write_table(
                pa.table({"img": ["a"], "label": [0]}), root / "test.parquet"
            ),
            "struct",
        ),
        (
            lambda root: write_parquet(root / "test.parquet", [GOOD], [0], label="y"),
            "column label or fine_label",
        ),
    ],
)
def test_a_bad_folder_of_parquet_files_is_refused(hub, tmp_path, change, message):
    change(hub)
    refused(tmp_path, message, **at(hub))


def test_a_folder_as_the_hub_has_it_is_read_from_its_root(hub, tmp_path):
    expected = [images.fingerprint for images in prepare(tmp_path, **at(hub))]
    for name in ("data", "plain_text"):
        inner = hub / name
        inner.mkdir()
        for path in hub.rglob("*.parquet"):
            path.rename(inner / path.name)
        found = prepare(tmp_path, **at(hub))
        assert [images.fingerprint for images in found] == expected
        assert {*found[0].meta.raw} == {f"{name}/{path.name}" for path in inner.iterdir()}


def test_a_folder_for_each_split_is_read(hub, tmp_path):
    """As in the branch of the hub that holds converted files: ``default/train/0000.parquet``."""
    expected = [images.fingerprint for images in prepare(tmp_path, **at(hub))]
    for path in [*hub.iterdir()]:
        split, number, *_ = path.name.split("-")
        folder = hub / "default" / split
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(folder / f"{number[1:]}.parquet")
    found = prepare(tmp_path, **at(hub))
    assert [images.fingerprint for images in found] == expected
    assert len(found[0].meta.raw) == 3


def test_files_of_two_data_sets_are_not_mixed(hub, tmp_path):
    for path in [*hub.glob("*.parquet")]:
        for name in ("fine", "coarse"):
            (hub / name).mkdir(exist_ok=True)
            (hub / name / path.name).write_bytes(path.read_bytes())
        path.unlink()
    refused(tmp_path, "must hold one data set", **at(hub))
    prepare(tmp_path, **at(hub / "fine"))


def test_where_labels_of_the_test_split_are_unknown_another_can_be_named(hub, tmp_path):
    test = hub / "test-00000-of-00001.parquet"
    test.rename(hub / "validation-00000-of-00001.parquet")
    write_parquet(test, [image_bytes(image) for image in pixels(2)], [-1, -1], names=["x", "y"])
    values = at(hub)
    refused(tmp_path, "test_split: NAME .* often validation", **values)
    _, found = prepare(tmp_path, **values, test_split="validation")
    assert found.labels.tolist() == [1, 0]
    assert "test-00000-of-00001.parquet" not in found.meta.raw
    for name in ("../validation", "*"):
        with refuses("test_split"):
            prepare(tmp_path, **values, test_split=name)


def test_images_of_several_modes_are_converted_where_the_settings_say_so(tmp_path):
    image = pixels(1)[0]
    cells = [image_bytes(image, mode=mode) for mode in ("RGB", "L", "RGBA")]
    for name, few in (("train", cells[:1] * 3), ("test", cells)):
        write_parquet(tmp_path / "raw" / f"{name}.parquet", few, [0, 1, 0])
    values = at(tmp_path / "raw")
    refused(tmp_path, "convert: RGB", **values)
    gray = np.asarray(Image.fromarray(image).convert("L"))
    rgb = [image.transpose(2, 0, 1), np.stack([gray] * 3), image.transpose(2, 0, 1)]
    for convert, expected in [("RGB", rgb), ("gray", [gray[None]] * 3)]:
        _, test = prepare(tmp_path, **values, convert=convert)
        assert np.array_equal(test.images, expected)


def test_unnamed_classes_must_be_numbered_without_a_gap(tmp_path):
    for split in ("train", "test"):
        write_parquet(tmp_path / "raw" / f"{split}.parquet", [GOOD, GOOD], [1, 2])
    refused(tmp_path, r"labels must be 0, 1, 2", **at(tmp_path / "raw"))


@pytest.mark.parametrize(
    "text", ["[1]", json.dumps({"info": {"features": {"label": {"names": [1, 2]}}}})]
)
def test_a_description_of_another_kind_than_the_hubs_is_refused(hub, tmp_path, text):
    for path in hub.glob("*.parquet"):
        pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": text}), path)
    refused(tmp_path, "must describe its features as the hub does", **at(hub))
