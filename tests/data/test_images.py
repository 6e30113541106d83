import hashlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rs.data import images as data
from rs.data import prepared
from rs.runtime.streams import Stream, stream
from tests.support.folders import contents
from tests.support.helpers import refuses, update_json


def arrays(n=11, shape=(3, 4, 5), seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 3, n)


X, Y = arrays()
SPLITS = {"train": (X, Y), "test": arrays(5, seed=1)}


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "set")


def saved(folder, splits=SPLITS, name="tiny", **constants):
    prepared.save_images(folder, name, splits, ["a", "b", "c"], **constants)
    return folder


def images_without_file(images):
    """Images in memory, with the labels 0, 1, ..."""
    return data.PackedImages(None, images, np.arange(len(images)))


def epoch(images, size, *, seed=0, number=0, **changes):
    """The batches of an epoch."""
    plan = prepared.EpochPlan(seed=seed, number=number, size=size, **changes)
    order = data.epoch_order(len(images), plan)
    return list(images.batches(order, plan, "cpu"))


def slow_augment(x, crop, flip, rng):
    """Image by image and pixel by pixel, with the draws in the documented order."""
    count, _, height, width = x.shape
    shifts = torch.zeros(2, count, 1, dtype=torch.long)
    if crop:
        shifts = torch.randint(2 * crop + 1, shifts.shape, generator=rng) - crop
    is_mirrored = torch.zeros(count)
    if flip:
        is_mirrored = torch.rand(count, generator=rng) < 0.5
    augmented = torch.zeros_like(x)
    for number, i, j in itertools.product(range(count), range(height), range(width)):
        row = i + shifts[0, number, 0]
        column = j + shifts[1, number, 0]
        target = width - 1 - j if is_mirrored[number] else j
        if 0 <= row < height and 0 <= column < width:
            augmented[number, :, i, target] = x[number, :, row, column]
    return augmented


@given(
    shape=st.tuples(*[st.integers(1, 5)] * 4),
    crop=st.integers(0, 3),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_augmentation_is_a_zero_padded_shift_and_a_mirror_of_each_image(shape, crop, flip, seed):
    x = torch.rand(shape, generator=stream(seed, 1))
    augmented = data.augment(x, crop, flip, stream(seed))
    assert torch.equal(augmented, slow_augment(x, crop, flip, stream(seed)))


def test_order_depends_on_seed_and_epoch_and_on_nothing_else():
    images = images_without_file(np.zeros((50, 1, 1, 1), np.uint8))

    def order(size=7, **changes):
        batches = epoch(images, size, seed=2, number=1, **changes)
        return torch.cat([labels for _, labels in batches])

    assert torch.equal(order(), torch.randperm(50, generator=stream(2, Stream.ORDER, 1)))
    assert torch.equal(order(), order(13, crop=1))


@given(n=st.integers(1, 40), size=st.integers(1, 9), world_size=st.integers(1, 5))
def test_processes_share_out_an_epoch_which_holds_every_image_once(n, size, world_size):
    images = images_without_file(np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1))
    order = torch.cat([labels for _, labels in epoch(images, size)])
    assert sorted(order.tolist()) == list(range(n))
    shares = [epoch(images, size, rank=rank, world_size=world_size) for rank in range(world_size)]
    shared = n // world_size * world_size  # nobody waits for a batch that never comes
    batches = order[:shared].split(size * world_size)
    for batch, *parts in zip(batches, *shares, strict=True):
        in_turn = torch.stack([labels for _, labels in parts], dim=1)
        assert torch.equal(in_turn.flatten(), batch)
        for x, labels in parts:
            assert (x.dtype, labels.dtype) == (torch.float32, torch.int64)
            assert torch.equal((x.flatten() * 255).round().long(), labels)


def test_what_was_written_is_what_is_read(folder):
    train = data.load_images(folder, "train")
    meta = train.meta
    assert np.array_equal(train.images, X)
    assert np.array_equal(train.labels, Y)
    assert meta.name == "tiny"
    assert meta.classes == ("a", "b", "c")
    assert meta.shape == (3, 4, 5)
    assert meta.sizes == {"train": 11, "test": 5}
    assert train.fingerprint == meta.sha256["train"] == prepared.images_fingerprint(X, Y)
    assert torch.equal(train.pixels(3), torch.tensor(X[3] / np.float32(255)))


def test_normalization_comes_from_the_train_split_unless_given(tmp_path, folder):
    scaled = X / 255
    meta = data.read_meta(folder)
    np.testing.assert_allclose(meta.mean, scaled.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(meta.std, scaled.std((0, 2, 3)), rtol=1e-12)
    other = saved(tmp_path / "b", {"test": arrays()}, mean=[0.5] * 3, std=[0.25] * 3)
    given = data.read_meta(other)
    assert given.mean == (0.5,) * 3
    assert given.std == (0.25,) * 3


def test_two_writes_give_equal_bytes(tmp_path, folder):
    assert contents(saved(tmp_path / "again")) == contents(folder)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": (X / 255, Y)}, "uint8"),
        ({"train": (X[:, 0], Y)}, "1 or 3, H, W"),
        ({"train": (X[:0], Y[:0])}, "at least one image"),
        ({"train": (X, Y + 1)}, r"0\.\.2"),
        ({"train": (X, Y), "test": arrays(shape=(1, 4, 5))}, r"must have shape \(3, 4, 5\)"),
        ({"test": (X, Y)}, "there is no train split to compute them"),
    ],
)
def test_a_bad_split_is_refused_and_nothing_is_written(tmp_path, splits, message):
    with refuses(message):
        saved(tmp_path / "set", splits)
    assert list(tmp_path.iterdir()) == []


def test_constants_of_other_channels_are_refused(tmp_path):
    with refuses("each of 3 channels"):
        saved(tmp_path / "set", mean=[0.5], std=[0.5])


def test_an_older_data_set_is_replaced_but_other_things_are_not(folder):
    train = {"train": arrays(3)}
    saved(folder, train)
    assert contents(folder).keys() == {"meta.json", "train.npz"}
    with refuses("must be new or an older data set other, but holds the data set tiny"):
        saved(folder, train, name="other")
    (folder / "thesis.tex").touch()
    before = contents(folder)
    with refuses("must be new or an older data set tiny, but holds meta"):
        saved(folder, train)
    assert contents(folder) == before


def edit(**changes):
    """Return a function that changes values of ``meta.json``."""
    return lambda folder: update_json(folder / "meta.json", **changes)


def replace(images):
    """Return a function that writes other images of training."""
    return lambda folder: np.savez_compressed(folder / "train.npz", images=images, labels=Y)


OUTSIDE = {"root": "/", "folders": {"train": "a/../../etc"}, "resize": 4}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "meta.json").unlink(), "no meta.json"),
        (lambda folder: (folder / "train.npz").unlink(), "train.npz must be a file"),
        (lambda folder: (folder / "train.npz").write_bytes(b"PK no zip"), "must hold the arrays"),
        (replace(arrays(seed=9)[0]), "sha256"),
        (replace(np.array([{}])), "pickle"),
        (
            replace(np.broadcast_to(0.0, (10**5, 3, 4, 5))),
            "images have 48,000,128 bytes where meta.json says at most",
        ),
        (
            edit(lazy=OUTSIDE),
            "folders must be names of folders in the root, got 'a/../../etc'",
        ),
        (edit(sha256={}), "sha256 must have the splits of sizes, train"),
    ],
)
def test_a_damaged_data_set_is_refused_in_one_line(folder, damage, message):
    damage(folder)
    with refuses(message):
        data.load_images(folder, "train")


def test_the_sum_of_a_split_is_that_of_its_types_shapes_and_bytes():
    images = np.arange(12, dtype=np.uint8).reshape(2, 1, 2, 3)
    labels = np.array([2, 1], ">i8")
    text_of_images = b"|u1 (2, 1, 2, 3)\n" + bytes(range(12))
    text_of_labels = b"<i8 (2,)\n\x02" + bytes(7) + b"\x01" + bytes(7)
    expected = hashlib.sha256(text_of_images + text_of_labels).hexdigest()
    for order in ("C", "F"):
        in_order = np.asarray(images, order=order)
        assert prepared.images_fingerprint(in_order, labels) == expected


def test_processes_augment_their_images_differently():
    """All images are equal, so that batches differ by their shifts and mirrors alone."""
    image, _ = arrays(1, (1, 8, 8))
    images = images_without_file(np.tile(image, (64, 1, 1, 1)))

    def first_batch(**process):
        return epoch(images, 16, crop=3, flip=True, **process)[0][0]

    alone = first_batch()
    batches = [first_batch(rank=rank, world_size=3) for rank in range(3)]
    assert torch.equal(batches[0], alone)
    for batch, other in itertools.combinations(batches, 2):
        assert not torch.equal(batch, other)
