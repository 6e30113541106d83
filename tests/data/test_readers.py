import base64
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from rs.data import pictures, readers, sources
from tests.support.helpers import refuses
from tests.support.raw_images import damage, image_bytes, pixels, prepare, refused


def at(root):
    """Settings of class folders."""
    return {"source": "folder", "root": str(root)}


def test_the_split_of_digits_is_the_one_this_seed_always_gave():
    """Keys of a class come from SeedSequence(0, spawn_key=(class,)), which NumPy never changes."""
    everything = load_digits()
    is_test = np.zeros(1797, bool)
    for label in range(10):
        members = np.flatnonzero(everything.target == label)
        keys = np.random.SeedSequence(0, spawn_key=(label,)).generate_state(len(members), np.uint64)
        is_test[members[np.argsort(keys)[: round(0.2 * len(members))]]] = True
    raw = sources.Digits(source="sklearn", test_share=0.2, split_seed=0).read("digits")
    scaled = np.rint(everything.images * 255 / 16)[:, None]
    for split, chosen in (("train", ~is_test), ("test", is_test)):
        images, labels = raw.splits[split]
        assert np.array_equal(images, scaled[chosen])
        assert np.array_equal(labels, everything.target[chosen])


def test_class_folders_become_classes_in_alphabetical_order(tree, tmp_path):
    train, test = prepare(tmp_path, **at(tree))
    assert np.array_equal(
        np.concatenate([train.images, test.images]), pixels(8).transpose(0, 3, 1, 2)
    )
    assert (train.labels.tolist(), train.meta.classes) == ([0, 0, 1, 1], ("ape", "bee"))


LARGE = image_bytes(pixels(1, (9, 9, 3))[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage("val", lambda path: path.rename(path.with_name("x"))), "folder test or val or "),
        (
            damage("val/bee", lambda path: path.rename(path.with_name("cow"))),
            r"same class folders, but \['bee', 'cow'\]",
        ),
        (damage("test", lambda path: path.symlink_to("train")), "must have different folders"),
        (damage("train/ape/1.png", lambda path: path.write_bytes(b"")), "1.png must be an image"),
        (
            damage("train/ape/x.png", lambda path: path.symlink_to("nowhere")),
            "x.png must be a file",
        ),
        (damage("train/ape/1.png", lambda path: path.write_bytes(LARGE)), "one shape"),
    ],
)
def test_a_bad_folder_of_images_is_refused(tree, tmp_path, change, message):
    change(tree)
    refused(tmp_path, message, **at(tree))


def test_a_data_set_of_one_class_is_refused(tree, tmp_path):
    for split in ("train", "val"):
        shutil.rmtree(tree / split / "bee")
    for lazy in ({}, {"lazy": True, "resize": 4, "crop": 4, "mean": [0.5] * 3, "std": [0.5] * 3}):
        message = "must have two classes or more, got ape; add the others"
        refused(tmp_path, message, **at(tree), **lazy)


def test_torchvisions_cifar10_files_are_read(cifar, tmp_path):
    values = {"source": "torchvision", "dataset": "cifar10", "root": str(cifar), "download": False}
    constants = {"mean": [0.5, 0.4, 0.3], "std": [0.2] * 3}
    train, test = prepare(tmp_path, **values, **constants)
    everything = np.concatenate([train.images, test.images])
    assert np.array_equal(everything.ravel(), np.arange(12 * 3072).astype(np.uint8))
    assert (everything.shape, test.labels.tolist()) == ((12, 3, 32, 32), [5, 4])
    assert (train.meta.classes[9], train.meta.mean) == ("class9", (0.5, 0.4, 0.3))


def test_a_file_with_another_checksum_is_refused_before_it_is_unpickled(cifar, tmp_path):
    marker = tmp_path / "raw" / "executed"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (marker,)

    (cifar / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(Bomb()))
    values = {"source": "torchvision", "root": str(cifar), "download": False}
    refused(tmp_path, "right checksums, but: Dataset not found or corrupted", "cifar10", **values)
    assert not marker.exists()


def test_torchvisions_svhn_is_read_without_its_split_extra(tmp_path, monkeypatch):
    images = pixels(2, (32, 32, 3)).transpose(0, 3, 1, 2)
    splits = {
        "train": SimpleNamespace(data=images[:1], labels=np.array([2])),
        "test": SimpleNamespace(data=images[1:], labels=np.array([9])),
    }
    monkeypatch.setattr("torchvision.datasets.SVHN", lambda _, split, **__: splits[split])
    made = prepare(tmp_path, "svhn", source="torchvision", download=False)
    for split, label, image in zip(made, (2, 9), images, strict=True):
        assert np.array_equal(split.images, [image])
        assert split.labels.tolist() == [label]


@pytest.mark.parametrize(
    "error", [URLError("no route"), RuntimeError("File not found or corrupted.")]
)
def test_a_failed_download_into_torchs_cache_is_one_line(tmp_path, monkeypatch, error):
    from torchvision.datasets import CIFAR100

    def download(self):
        assert Path(self.root) == tmp_path / "raw" / "datasets"
        raise error

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "raw" / "hub"))
    monkeypatch.setattr(CIFAR100, "download", download)
    refused(tmp_path, "allow the download", "cifar100", source="torchvision")


def test_an_image_is_refused_by_its_size_before_it_is_decoded():
    header = image_bytes(np.zeros((1, 1), np.uint8), "BMP")
    huge = header[:18] + (9_000).to_bytes(4, "little") * 2 + header[26:]
    with refuses("must have at most 67,108,864 pixels, got 9000 x 9000"):
        pictures.decode(huge, "a.bmp")


def test_formats_that_run_programs_are_not_opened():
    """Pillow hands PostScript to an interpreter."""
    with refuses(r"a\.png must be an image, but: its format is not one of JPEG, PNG"):
        pictures.decode(
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n", "a.png"
        )


def test_a_link_to_a_folder_that_it_lies_in_is_refused(tree, tmp_path):
    (tree / "train" / "bee" / "more").symlink_to(tree / "val" / "ape")  # this one is followed
    assert len(readers.list_class_folders(tree / "train").samples) == 6
    (tree / "train" / "bee" / "again").symlink_to("..")
    refused(tmp_path, "bee/again must not be a link to a folder that contains it", **at(tree))


@pytest.mark.parametrize("lazy", [True, False])
def test_names_of_files_may_hold_bytes_that_are_no_text(tree, tmp_path, lazy):
    values = at(tree) | {"mean": [0.5] * 3, "std": [0.5] * 3}
    values |= {"lazy": True, "resize": 3, "crop": 3} if lazy else {}
    before = prepare(tmp_path, **values)[0].fingerprint
    (tree / "train" / "ape" / "1.png").rename(tree / "train" / "ape" / os.fsdecode(b"\xff.png"))
    train, _ = prepare(tmp_path, **values)
    assert len(train) == 4
    assert (train.fingerprint == before) == (not lazy)  # which is that of pixels or of names


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pictures_of_unknown_range_are_not_converted_into_white(tmp_path, kind):
    path, how = tmp_path / "a.tif", pictures.Conversion(convert=True)
    path.write_bytes(image_bytes(np.full((4, 4), 20_000, kind), "TIFF"))
    with refuses(
        r"a\.tif must have at most 16 bits per channel to be converted, got mode [IF]",
    ):
        pictures.picture(path, conversion=how)
    with refuses("8-bit gray or RGB") as error:
        pictures.picture(path)
    assert "option convert" not in str(error.value)


def pgm(pixels):
    height, width = pixels.shape
    return b"P5 %d %d 65535\n" % (width, height) + pixels.astype(">u2").tobytes()


GRAY_16_BIT = {
    "PNG": image_bytes,
    "TIFF": lambda pixels: image_bytes(pixels, "TIFF"),
    "big-endian TIFF": lambda pixels: image_bytes(pixels.astype(">u2"), "TIFF"),
    "PGM": pgm,
}


@pytest.mark.parametrize("encoded", GRAY_16_BIT.values(), ids=GRAY_16_BIT.keys())
@pytest.mark.parametrize("channels", [1, 3])
def test_each_16_bit_gray_becomes_the_nearest_8_bit_gray(tmp_path, encoded, channels):
    path = tmp_path / "a.png"
    values = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    path.write_bytes(encoded(values))
    shape = (channels, 256, 256)
    pixels = pictures.picture(path, shape, pictures.Conversion(convert=True))
    nearest = np.rint(values / 65535 * 255)
    assert np.array_equal(pixels, np.broadcast_to(nearest, shape))
    with refuses(r"got mode I.*the option convert"):
        pictures.picture(path)


PNG_OF_16_BIT_COLORS = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABEAIAAADA54+dAAAAD0lEQVR4nGNg+N/w/38D"
    "AAx9A/51oDYmAAAAAElFTkSuQmCC"
)
"""A pixel of 0x00ff, 0x80ff and 0xff80; Pillow writes no such colors."""


@pytest.mark.parametrize(
    "content",
    [
        base64.b64decode(PNG_OF_16_BIT_COLORS),
        b"P6 1 1 65535\n\x00\x00\x80\x80\xff\xff",
        b"P3 1 1 65535\n0 32896 65535\n",
    ],
    ids=["png", "ppm", "plain ppm"],
)
def test_16_bit_colors_are_cut_to_8_bits_only_by_a_conversion_and_with_a_note(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    conversion = pictures.Conversion(convert=True)
    pixels, notes = pictures.picture_with_notes(path, conversion=conversion)
    assert pixels.flatten().tolist() == [0x00, 0x80, 0xFF]
    assert notes == ("16 bits per channel cut to 8",)
    assert np.array_equal(pictures.read_picture(str(path), "RGB"), pixels)
    for read in (pictures.picture, pictures.picture_with_notes, pictures.read_picture):
        with refuses("got 16 bits per channel; convert it, or"):
            read(path)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_pictures_of_other_modes_are_converted(tmp_path, mode):
    path = tmp_path / "a.tif"
    image = Image.fromarray(pixels(1)[0]).convert(mode)
    image.save(path)
    found = pictures.picture(path, conversion=pictures.Conversion(convert=True))
    assert np.array_equal(found.transpose(1, 2, 0), np.asarray(image.convert("RGB")))


def test_files_that_prepare_leaves_out_are_said_for_each_split(tree, tmp_path, capsys):
    (tree / "train" / "ape" / "a.gif").write_bytes(b"")
    (tree / "train" / ".cache").mkdir()
    prepare(tmp_path, **at(tree))
    said = capsys.readouterr().err.splitlines()
    assert said == [f"left out of {tree / 'train'}: 1 .gif, 1 hidden"]


@pytest.mark.parametrize(("convert", "channels"), [("RGB", 3), ("gray", 1)])
def test_a_folder_of_several_color_modes_is_converted_where_the_settings_say_so(
    tree, tmp_path, convert, channels
):
    path = tree / "train" / "ape" / "0.png"
    Image.open(path).convert("L").save(path)
    refused(tmp_path, "convert: RGB", **at(tree))
    found, _ = prepare(tmp_path, **at(tree), convert=convert)
    gray = np.asarray(Image.open(path))
    assert np.array_equal(found.images[0], np.stack([gray] * channels))
