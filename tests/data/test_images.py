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


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "set")


def saved(folder, splits=None, name="tiny", **constants):
    splits = splits or {"train": arrays(), "test": arrays(5, seed=1)}
    prepared.save_images(folder, name, splits, ["a", "b", "c"], **constants)
    return folder


def epoch(images, size, *, seed=0, epoch=0, **changes):
    chosen = prepared.EpochPlan(seed=seed, number=epoch, size=size, **changes)
    return list(images.batches(data.epoch_order(len(images), chosen), chosen, "cpu"))


def slow_augment(x, crop, flip, rng):
    """Image by image and pixel by pixel, with the draws in the documented order."""
    B, _, H, W = x.shape
    shifts = torch.zeros(2, B, 1, dtype=torch.long)
    if crop:
        shifts = torch.randint(2 * crop + 1, (2, B, 1), generator=rng) - crop
    mirrored = torch.rand(B, generator=rng) < 0.5 if flip else torch.zeros(B)
    out = torch.zeros_like(x)
    for b, i, j in itertools.product(range(B), range(H), range(W)):
        row, column = i + shifts[0, b, 0], j + shifts[1, b, 0]
        target = W - 1 - j if mirrored[b] else j
        if 0 <= row < H and 0 <= column < W:
            out[b, :, i, target] = x[b, :, row, column]
    return out


@given(
    shape=st.tuples(*(st.integers(1, 5) for _ in range(4))),
    crop=st.integers(0, 3),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_augmentation_is_a_zero_padded_shift_and_a_mirror_of_each_image(shape, crop, flip, seed):
    x = torch.rand(shape, generator=stream(seed, 1))
    assert torch.equal(
        data.augment(x, crop, flip, stream(seed)), slow_augment(x, crop, flip, stream(seed))
    )


def test_order_depends_on_seed_and_epoch_and_on_nothing_else():
    packed = data.PackedImages(None, np.zeros((50, 1, 1, 1), np.uint8), np.arange(50))

    def order(seed, number, size=7, **changes):
        return torch.cat([y for _, y in epoch(packed, size, seed=seed, epoch=number, **changes)])

    assert torch.equal(order(2, 1), torch.randperm(50, generator=stream(2, Stream.ORDER, 1)))
    assert torch.equal(order(2, 1), order(2, 1, size=13, crop=1))


@given(n=st.integers(1, 40), size=st.integers(1, 9), world_size=st.integers(1, 5))
def test_processes_share_out_an_epoch_which_holds_every_image_once(n, size, world_size):
    packed = data.PackedImages(None, np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1), np.arange(n))
    x, y = (torch.cat(part) for part in zip(*epoch(packed, size), strict=True))
    assert (x.dtype, y.dtype, sorted(y.tolist())) == (torch.float32, torch.int64, list(range(n)))
    shares = [epoch(packed, size, rank=rank, world_size=world_size) for rank in range(world_size)]
    left = n // world_size * world_size  # nobody waits for a batch that never comes
    for batch, *parts in zip(y[:left].split(size * world_size), *shares, strict=True):
        assert torch.equal(torch.stack([y for _, y in parts], dim=1).flatten(), batch)
        assert all(torch.equal((x.flatten() * 255).round().long(), y) for x, y in parts)


def test_what_was_written_is_what_is_read(folder):
    train = data.load_images(folder, "train")
    assert np.array_equal(train.images, X)
    assert np.array_equal(train.labels, Y)
    meta = train.meta
    assert (meta.name, meta.classes, meta.shape) == ("tiny", ("a", "b", "c"), (3, 4, 5))
    assert meta.sizes == {"train": 11, "test": 5}
    assert train.fingerprint == meta.sha256["train"] == prepared.images_fingerprint(X, Y)
    assert torch.equal(train.pixels(3), torch.tensor(X[3] / np.float32(255)))


def test_normalization_comes_from_the_train_split_unless_given(tmp_path, folder):
    scaled = arrays()[0] / 255
    meta = data.read_meta(folder)
    np.testing.assert_allclose(meta.mean, scaled.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(meta.std, scaled.std((0, 2, 3)), rtol=1e-12)
    other = saved(tmp_path / "b", {"test": arrays()}, mean=[0.5] * 3, std=[0.25] * 3)
    meta = data.read_meta(other)
    assert (meta.mean, meta.std) == ((0.5,) * 3, (0.25,) * 3)


def test_two_writes_give_equal_bytes(tmp_path, folder):
    assert contents(saved(tmp_path / "again")) == contents(folder)


X, Y = arrays()


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
    assert {*contents(folder)} == {"meta.json", "train.npz"}
    with refuses("must be new or an older data set other, but holds the data set tiny"):
        saved(folder, train, name="other")
    (folder / "thesis.tex").touch()
    before = contents(folder)
    with refuses("must be new or an older data set tiny, but holds meta"):
        saved(folder, train)
    assert contents(folder) == before


def edit(folder, **changes):
    update_json(folder / "meta.json", **changes)


def replace(folder, images):
    """Write other images of training."""
    np.savez_compressed(folder / "train.npz", images=images, labels=Y)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "meta.json").unlink(), "no meta.json"),
        (lambda folder: (folder / "train.npz").unlink(), "train.npz must be a file"),
        (
            lambda folder: (folder / "train.npz").write_bytes(b"PK not a zip"),
            "must hold the arrays",
        ),
        (lambda folder: replace(folder, arrays(seed=9)[0]), "sha256"),
        (lambda folder: replace(folder, np.array([{}])), "pickle"),
        (
            lambda folder: replace(folder, np.zeros((10**5, 3, 4, 5))),
            "images have 48,000,128 bytes where meta.json says at most",
        ),
        (
            lambda folder: edit(
                folder, lazy={"root": "/", "folders": {"train": "a/../../etc"}, "resize": 4}
            ),
            "folders must be names of folders in the root, got 'a/../../etc'",
        ),
        (lambda folder: edit(folder, sha256={}), "sha256 must have the splits of sizes, train"),
    ],
)
def test_a_damaged_data_set_is_refused_in_one_line(folder, damage, message):
    damage(folder)
    with refuses(message):
        data.load_images(folder, "train")


def test_the_sum_of_a_split_is_that_of_its_types_shapes_and_bytes():
    images, labels = np.arange(12, dtype=np.uint8).reshape(2, 1, 2, 3), np.array([2, 1], ">i8")
    expected = (
        b"|u1 (2, 1, 2, 3)\n" + bytes(range(12)) + b"<i8 (2,)\n\x02" + bytes(7) + b"\x01" + bytes(7)
    )
    for order in ("C", "F"):
        fingerprint = prepared.images_fingerprint(np.asarray(images, order=order), labels)
        assert fingerprint == hashlib.sha256(expected).hexdigest()


def test_processes_augment_their_images_differently():
    """All images are alike, so that batches differ by their shifts and mirrors alone."""
    packed = data.PackedImages(None, np.tile(arrays(1, (1, 8, 8))[0], (64, 1, 1, 1)), np.arange(64))
    changes = {"crop": 3, "flip": True}
    first, second, third = (
        epoch(packed, 16, rank=rank, world_size=3, **changes)[0][0] for rank in range(3)
    )
    assert torch.equal(first, epoch(packed, 16, **changes)[0][0])  # what one alone draws
    assert not torch.equal(first, second)
    assert not torch.equal(first, third)
    assert not torch.equal(second, third)
