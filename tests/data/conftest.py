"""Raw data sets that several modules read."""

import hashlib
import itertools
import pickle

import numpy as np
import pytest

from tests.support.raw_images import image_bytes, pixels, write_parquet


@pytest.fixture
def hub(tmp_path):
    """Four train images in two shards and two test images."""
    images = [image_bytes(image) for image in pixels(6)]
    root = tmp_path / "raw"
    for name, cells, labels in (
        ("train-00000-of-00002-b42a775f407cee45", images[:3], [0, 1, 0]),
        ("train-00001-of-00002", images[3:4], [1]),
        ("test-00000-of-00001", images[4:], [1, 0]),
    ):
        write_parquet(root / f"{name}.parquet", cells, labels, names=["x", "y"])
    return root


@pytest.fixture
def tree(tmp_path):
    names = itertools.product(("train", "val"), ("ape", "bee"), ("0.png", "1.png"))
    for image, parts in zip(pixels(8), names, strict=True):
        path = tmp_path.joinpath("raw", *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(image))
    return tmp_path / "raw"


def _md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """A CIFAR-10 of two images a batch, in torchvision's layout; only its table of checksums is
    replaced.
    """
    from torchvision.datasets import CIFAR10

    base = tmp_path / "raw" / CIFAR10.base_folder
    base.mkdir(parents=True)
    rows = np.arange(12 * 3072).reshape(12, 3072).astype(np.uint8)
    sums = {}
    for i, (name, _) in enumerate(CIFAR10.train_list + CIFAR10.test_list):
        batch = {"data": rows[2 * i : 2 * i + 2], "labels": [i, 9 - i]}
        (base / name).write_bytes(pickle.dumps(batch))
        sums[name] = _md5(base / name)
    names = {"label_names": [f"class{i}" for i in range(10)]}
    (base / "batches.meta").write_bytes(pickle.dumps(names))
    for key in ("train_list", "test_list"):
        monkeypatch.setattr(CIFAR10, key, [[name, sums[name]] for name, _ in getattr(CIFAR10, key)])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": _md5(base / "batches.meta")})
    return tmp_path / "raw"
