"""Raw data sets that several modules read."""

import hashlib
import pickle

import numpy as np
import pytest

from tests.support.raw_images import image_bytes, pixels, write_parquet


@pytest.fixture
def hub(tmp_path):
    """Four train images in two shards and two test images."""
    images = [image_bytes(image) for image in pixels(6)]
    root = tmp_path / "raw"
    write_parquet(
        root / "train-00000-of-00002-b42a775f407cee45.parquet",
        images[:3],
        [0, 1, 0],
        names=["x", "y"],
    )
    write_parquet(root / "train-00001-of-00002.parquet", images[3:4], [1], names=["x", "y"])
    write_parquet(root / "test-00000-of-00001.parquet", images[4:], [1, 0], names=["x", "y"])
    return root


@pytest.fixture
def tree(tmp_path):
    images = iter(pixels(8))
    for split in ("train", "val"):
        for name in ("ape", "bee"):
            (tmp_path / "raw" / split / name).mkdir(parents=True)
            for i in range(2):
                (tmp_path / "raw" / split / name / f"{i}.png").write_bytes(
                    image_bytes(next(images))
                )
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
    for i, name in enumerate([row[0] for row in CIFAR10.train_list + CIFAR10.test_list]):
        (base / name).write_bytes(
            pickle.dumps({"data": rows[2 * i : 2 * i + 2], "labels": [i, 9 - i]})
        )
        sums[name] = _md5(base / name)
    (base / "batches.meta").write_bytes(
        pickle.dumps({"label_names": [f"class{i}" for i in range(10)]})
    )
    for key in ("train_list", "test_list"):
        monkeypatch.setattr(CIFAR10, key, [[name, sums[name]] for name, _ in getattr(CIFAR10, key)])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": _md5(base / "batches.meta")})
    return tmp_path / "raw"
