import hashlib
import shutil
from collections import Counter
from pathlib import Path

import pytest

from rs.data import images, readers, sources
from tests.support.helpers import refuses
from tests.support.raw_images import damage, image_bytes, pixels, write_parquet

DIGITS = {"source": "sklearn", "test_share": 0.2, "split_seed": 0}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cifar10", {"source": "http"}, "got 'http'"),
        ("cifar10", {"source": "torchvision", "rot": "x"}, "datasets.cifar10.rot"),
        ("mine", {"source": "torchvision"}, "one of cifar10, cifar100, svhn, got 'mine'"),
        ("mine", DIGITS, "only the data set digits"),
        ("digits", DIGITS | {"validation_share": 1e-4}, "some of 1438"),
        ("digits", DIGITS | {"mean": [0.5]}, "both mean and std"),
        ("digits", DIGITS | {"mean": [78.0], "std": [0.4]}, "datasets.digits.mean.0: .* got 78"),
        ("digits", DIGITS | {"mean": [0.3], "std": [96.0]}, "datasets.digits.std.0: .* got 96"),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_key(tmp_path, name, values, message):
    with refuses(message):
        sources.settings(values, f"datasets.{name}").prepare(name, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "root", "message"),
    [
        (None, Path("raw"), "--root is not a known key"),
        ("folder", None, "--root is missing"),
        ("floder", None, "--source must be one of "),
    ],
)
def test_what_an_option_says_is_named_by_the_option(source, root, message):
    with refuses(f"^{message}"):
        sources.settings(DIGITS, "datasets.digits", source, root)


def test_another_source_replaces_the_section_but_for_its_constants():
    own = {"mean": [0.5], "std": [0.2], "validation_share": 0.1}
    section = own | {"source": "torchvision", "root": "a", "download": False}
    other = sources.settings(section, "datasets.x", source="parquet", root=Path("b"))
    assert other == sources.Parquet(source="parquet", root="b", **own)
    same = sources.settings(section, "datasets.x", source="torchvision", root=Path("b"))
    assert same == sources.Torchvision(source="torchvision", root="b", download=False, **own)


def test_a_share_of_each_class_of_the_train_split_is_kept_back():
    raw = sources.Digits(source="sklearn", test_share=0.2, split_seed=0).read("digits")
    parts = readers.split_validation(raw, 0.1).splits
    assert parts["test"] is raw.splits["test"]
    for label, size in Counter(raw.splits["train"][1].tolist()).items():
        assert (parts["validation"][1] == label).sum() == round(0.1 * size)
    whole = listed(raw.splits["train"])
    kept, rest = listed(parts["validation"]), listed(parts["train"])
    assert Counter(kept + rest) == Counter(whole)
    for part in (kept, rest):
        remaining = iter(whole)
        assert all(one in remaining for one in part)  # in the order of the whole


def listed(split):
    return [(label, image.tobytes()) for image, label in zip(*split, strict=True)]


def made(tmp_path, **values):
    """A source, prepared into the folder ``set``; its fingerprint then."""
    source = sources.settings(values, "datasets.digits")
    source.prepare("digits", tmp_path / "set")
    return source, sources.raw_fingerprint(source, tmp_path / "set")


def test_what_is_prepared_says_what_it_was_made_of_and_that_counts_where_the_raw_data_is_not(
    tree, tmp_path
):
    source = sources.settings({"source": "folder", "root": str(tree)}, "datasets.digits")
    before = sources.raw_fingerprint(source, tmp_path / "set")
    source, after = made(tmp_path, source="folder", root=str(tree))
    assert before == after == source.sums() == images.read_meta(tmp_path / "set").raw
    shutil.rmtree(tree)
    assert source.sums() == {}
    assert sources.raw_fingerprint(source, tmp_path / "set") == before
    assert sources.raw_fingerprint(source, tmp_path / "never") == {"raw": "absent"}


def test_raw_data_that_is_here_counts_whatever_was_prepared(tree, tmp_path):
    source, before = made(tmp_path, source="folder", root=str(tree))
    (tree / "train" / "ape" / "0.png").write_bytes(image_bytes(pixels(1, seed=1)[0]))
    assert sources.raw_fingerprint(source, tmp_path / "set") != before
    (tmp_path / "set" / "meta.json").write_text("{")
    assert sources.raw_fingerprint(source, tmp_path / "set") == source.sums()


FOLDER_CHANGES = {
    "new images": lambda root: shutil.copytree(root / "train/ape", root / "train/bee/deep"),
    "new name": lambda root: (root / "val/bee/1.png").rename(root / "val/bee/3.png"),
    "other size": lambda root: (root / "train/ape/0.png").write_bytes(b"other"),
    "other bytes": damage(
        "train/ape/0.png", lambda path: path.write_bytes(path.read_bytes()[::-1])
    ),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("change", FOLDER_CHANGES)
def test_a_changed_folder_has_other_sums_but_for_bytes_of_images_that_stay_where_they_are(
    tree, change, lazy
):
    more = (
        {"lazy": True, "resize": 4, "crop": 4, "mean": [0.5] * 3, "std": [0.2] * 3} if lazy else {}
    )
    source = sources.settings({"source": "folder", "root": str(tree), **more}, "datasets.x")
    before = source.sums()
    assert set(before) == {"train", "val"}
    for name in ("train/notes.txt", "train/0.png"):
        (tree / name).write_text("no image of a class")
    assert source.sums() == before
    FOLDER_CHANGES[change](tree)
    assert (source.sums() == before) == (lazy and change == "other bytes")


def test_the_sums_of_parquet_files_are_those_of_the_files_that_are_read(hub, tmp_path):
    source, before = made(tmp_path, source="parquet", root=str(hub))
    assert before == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in hub.glob("*.parquet")
    }
    write_parquet(hub / "validation.parquet", [image_bytes(pixels(1)[0])], [0])
    assert source.sums() == before
    for path in hub.glob("test-*"):
        path.unlink()
    (hub / "validation.parquet").unlink()
    assert source.sums() == {}
