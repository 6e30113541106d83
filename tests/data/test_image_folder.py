import errno
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rs.data import image_folder, readers, sources
from rs.data import images as data
from rs.data.pictures import Conversion
from rs.data.prepared import EpochPlan
from rs.errors import InputError
from tests.support.helpers import refuses


def class_folders(root, *names, each=1):
    """Folders of classes with random pictures of several heights; return ``root``."""
    rng = np.random.default_rng(0)
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 256, (12 + i, 10, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture
def root(tmp_path):
    class_folders(tmp_path / "raw" / "train", "cat", "dog", each=3)
    class_folders(tmp_path / "raw" / "val", "cat", "dog", each=2)
    return tmp_path / "raw"


@pytest.fixture
def folder(root, tmp_path):
    return prepared(root, tmp_path / "set")


def prepared(root, folder, **changes):
    """A lazy data set of the images under ``root``."""
    values = {"source": "folder", "root": str(root), "lazy": True, "resize": 8, "crop": 6}
    constants = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    sources.settings(values | constants | changes, "datasets.tiny").prepare("tiny", folder)
    return folder


def epoch(images, *, crop=1, flip=True, seed=0, epoch=0, size=4, workers=0, **process):
    chosen = EpochPlan(seed=seed, number=epoch, size=size, crop=crop, flip=flip, **process)
    x, y = zip(
        *images.batches(data.epoch_order(len(images), chosen), chosen, "cpu", workers), strict=True
    )
    return torch.cat(x), torch.cat(y)


def test_pixels_are_the_central_crop_of_the_resized_image(folder, root):
    images = data.load_images(folder, "test")
    assert images.labels.tolist() == [0, 0, 1, 1]
    with Image.open(
        root / "val" / "cat" / "0.png"
    ) as raw:  # 10 wide, 12 high: the shorter side becomes 8
        resized = np.asarray(raw.resize((8, 12 * 8 // 10), Image.Resampling.BILINEAR))
    top = round((resized.shape[0] - 6) / 2)
    expected = resized[top : top + 6, 1:7].transpose(2, 0, 1) / np.float32(255)
    x = images.pixels(0)
    assert x.dtype == torch.float32
    np.testing.assert_allclose(
        x.numpy(), expected, rtol=2**-22
    )  # 1/255 and the product are each rounded once


def test_without_augmentation_an_epoch_is_the_test_pixels_in_a_new_order(folder):
    images = data.load_images(folder, "train")
    x, y = epoch(images, crop=0, flip=False)
    order = data.epoch_order(6, EpochPlan(seed=0, number=0, size=4)).tolist()
    assert torch.equal(x, torch.stack([images.pixels(index) for index in order]))
    assert y.tolist() == images.labels[order].tolist()


@pytest.mark.parametrize("crop", [0, 1])
def test_gray_pictures_that_are_no_squares_keep_color_and_shape_in_training(tmp_path, crop):
    for name, gray in (("cat", 51), ("dog", 204)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((6, 9), gray, np.uint8)).save(tmp_path / name / "0.png")
    images = image_folder.read_pictures(image_folder.listed(tmp_path), (1, 6, 9), Conversion())
    x, y = epoch(images, crop=crop)
    assert torch.equal(x, torch.tensor([0.2, 0.8])[y].view(2, 1, 1, 1).expand(2, 1, 6, 9))


# torch starts worker processes with fork, and Python >= 3.12 warns of it in any process with
# threads.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_batches_are_the_same_for_any_number_of_workers_and_any_global_seed_which_they_leave_alone(
    folder,
):
    images, state = data.load_images(folder, "train"), torch.get_rng_state()
    x, y = epoch(images)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(17)
    other_x, other_y = epoch(images, workers=2)
    assert torch.equal(x, other_x)
    assert torch.equal(y, other_y)


def test_an_image_is_augmented_the_same_in_any_batch_and_differently_in_each_epoch(
    folder, monkeypatch
):
    images = data.load_images(folder, "train")
    assert torch.equal(epoch(images, size=1)[0], epoch(images)[0])
    epochs = [epoch(images, seed=s, epoch=e)[0] for s, e in ((0, 0), (0, 1), (1, 0))]
    assert len(torch.cat(epochs).unique(dim=0)) == 18
    one = images.image(0)
    monkeypatch.setattr(images, "image", lambda index: one)
    assert len(epoch(images)[0].unique(dim=0)) == 6


@pytest.mark.parametrize("change", [{"resize": 9}, {"crop": 5}])
def test_other_conversions_of_the_same_files_have_other_fingerprints(
    folder, root, tmp_path, change
):
    other = prepared(root, tmp_path / "other", **change)
    before = data.load_images(folder, "train").fingerprint
    assert data.load_images(other, "train").fingerprint != before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "train" / "cat" / "0.png").unlink(),
        lambda root: (root / "train" / "cat").rename(root / "train" / "cow"),
        lambda root: (root / "train").rename(root / "training"),
    ],
)
def test_files_that_changed_since_they_were_prepared_are_refused(folder, root, change):
    change(root)
    with pytest.raises(InputError):
        data.load_images(folder, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"crop": None}, "needs resize, crop"),
        ({"crop": 9}, "at most resize"),
        ({"lazy": False}, "for lazy folders"),
        ({"validation_share": 0.1}, "must be 0 for a lazy folder"),
        ({"mean": [0.5]}, "each of 3 channels"),
        ({"test_folder": "../val"}, "must be a name in the root, got '../val'"),
    ],
)
def test_lazy_settings_that_do_not_fit_are_refused(root, tmp_path, change, message):
    with refuses(message):
        prepared(root, tmp_path / "set", **change)
    assert not (tmp_path / "set").exists()


SERVICE_FILES = (
    ".ipynb_checkpoints/0-checkpoint.png",
    "cat/@eaDir/0.png",
    "__MACOSX/cat/0.png",
    "cat/._0.png",
    "Thumbs.db",
)
"""What notebooks, file servers and operating systems put among pictures."""


@pytest.fixture
def classes(tmp_path):
    """A folder with a picture in each of two class folders."""
    return class_folders(tmp_path / "photos", "cat", "dog")


def copy_into(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((root / "dog" / "0.png").read_bytes())


@pytest.mark.parametrize("name", SERVICE_FILES)
def test_what_a_system_puts_among_pictures_is_left_out_and_counted(classes, name):
    before = image_folder.listed(classes)
    copy_into(classes, name)
    tree = image_folder.listed(classes)
    assert (tree.classes, tree.samples) == (before.classes, before.samples)
    assert dict(tree.left_out) == {readers.HIDDEN: 1}
    assert len(list(readers.images_in(classes))) == 2


def test_a_folder_that_may_not_be_read_is_named(classes, monkeypatch):
    """Permissions do not stop the tests where they run as root."""
    closed = str(classes / "dog")
    scandir = os.scandir

    def denied(path):
        if str(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with refuses(f"{closed} must be a folder that can be read, but: Permission denied; correct"):
        image_folder.listed(classes)


def test_files_that_are_no_pictures_are_counted_by_extension(classes):
    for name in ("cat/a.jfif", "cat/deep/b.GIF", "dog/c.gif", "notes", "0.png", "cat/deep/d.JPG"):
        copy_into(classes, name)
    tree = readers.list_class_folders(classes)
    assert len(tree.samples) == 3
    assert dict(tree.left_out) == {".jfif": 1, ".gif": 2, "no extension": 1, ".png": 1}


@pytest.mark.parametrize(
    "names",
    [
        ("train", "val"),
        ("Training", "validation"),
        ("train_images", "images-test", "extra"),
        ("ILSVRC2012_img_train", "ILSVRC2012_img_val"),
        ("dev", "eval2017"),
    ],
)
def test_the_root_of_splits_is_refused_with_the_folders_to_give(tmp_path, names):
    root = tmp_path / "photos"
    for name in names:
        class_folders(root / name, "cat", "dog")
    with refuses("split") as error:
        image_folder.listed(root)
    for name in names:
        assert str(root / name) in str(error.value)
        assert image_folder.listed(root / name).classes == ("cat", "dog")


def test_classes_may_have_names_of_splits_if_they_are_named(tmp_path):
    root = class_folders(tmp_path / "photos", "test", "train")
    assert image_folder.listed(root, ("train", "test")).classes == ("train", "test")
    class_folders(root, "plane")
    assert image_folder.listed(root).classes == ("plane", "test", "train")
    words = class_folders(tmp_path / "words", "valid", "invalid")
    assert image_folder.listed(words).classes == ("invalid", "valid")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_of_classes_are_compared_in_one_unicode_form(tmp_path, form):
    name = unicodedata.normalize(form, "café")
    root = class_folders(tmp_path / "photos", name, "cafz")
    composed = ("cafz", "café")  # the order of the text in NFC
    assert image_folder.listed(root).classes == composed
    other = "NFD" if form == "NFC" else "NFC"
    names = (unicodedata.normalize(other, "café"), "cafz")
    tree = image_folder.listed(root, names)
    assert tree.classes == names
    assert [label for _, label in tree.samples] == [1, 0]
    # A byte-order mark is no part of the first name.
    (tmp_path / "names.txt").write_text("\n".join(names), encoding="utf-8-sig")
    assert readers.class_names(tmp_path / "names.txt") == ("café", "cafz")


def test_class_folders_whose_names_look_the_same_are_refused(tmp_path):
    class_folders(tmp_path / "photos", "cafe\u0301", "caf\u00e9")
    with refuses("different names"):
        image_folder.listed(tmp_path / "photos")


def test_a_class_folder_whose_name_is_not_utf_8_is_refused(classes):
    os.rename(classes / "cat", os.fsencode(classes) + b"/c\xe4t")
    with refuses(r"must have names in UTF-8, got 'c\\udce4t'; rename"):
        image_folder.listed(classes)


def test_the_name_of_a_folder_that_is_not_utf_8_becomes_text_that_can_be_stored(classes):
    root = Path(os.fsdecode(os.fsencode(classes.parent) + b"/ph\xf6tos"))
    classes.rename(root)
    found = image_folder.read_pictures(image_folder.listed(root), (3, 12, 10), Conversion())
    assert found.meta.name.startswith(r"ph\udcf6tos")
    assert found.meta.name.encode()
