"""Outputs of the members of a pool on noisy images: ``rs.ensemble.member_outputs``."""

from pathlib import Path

import numpy as np
import pytest

from rs.data import images as data
from rs.ensemble.declare import read_pool
from rs.ensemble.member_outputs import MemberOutputs
from tests.support import tiny_pool

pytestmark = pytest.mark.usefixtures("pool_here")


def load(ensembles="ensembles", folder="data", batch=1):
    pool, _ = read_pool(Path(ensembles))
    meta = data.load_images(Path(folder), "test").meta
    return MemberOutputs.load(
        pool, Path(ensembles, "pool.json"), meta, tiny_pool.SETTINGS, tiny_pool.CPU, batch
    )


@pytest.fixture
def images():
    return data.load_images(Path("data"), "test")


def test_outputs_of_a_member_do_not_depend_on_its_company(images):
    """``alone`` holds the third member and another; neither stands where it stood."""
    pair = {"members": {"macer": [2, 1]}, "combinations": ["average"]}
    tiny_pool.make_ensembles("alone", [pair], member_seeds=[2, 1])
    some, alone = load(), load("alone")
    assert [(one.method, one.seed) for one in alone.members] == [("macer", 2), ("macer", 1)]
    here, there = (outputs.probabilities(images, [3]) for outputs in (some, alone))
    np.testing.assert_array_equal(there[:, 1], here[:, 2])
    assert not np.isclose(there[:, 0], here[:, 2]).all()


@pytest.mark.parametrize(("numbers", "sizes"), [(1, [1] * 5), (600, [2, 2, 1]), (10**9, [5])])
def test_chunks_hold_every_image_once_and_say_the_same_in_any_size(
    images, monkeypatch, numbers, sizes
):
    """An image takes 3 members x 16 draws x 3 classes + 8 noisy copies x 16 pixels = 272 numbers;
    600 hold two.
    """
    monkeypatch.setattr("rs.ensemble.member_outputs.NUMBERS_AT_ONCE", numbers)
    outputs, indices = load(), np.array([0, 2, 3, 7, 9])
    chunks = list(outputs.chunks(images, indices))
    assert [len(chunk.indices) for chunk in chunks] == sizes
    assert [index for chunk in chunks for index in chunk.indices] == indices.tolist()
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), indices % 3)
    together = np.concatenate([chunk.probabilities for chunk in chunks])
    np.testing.assert_array_equal(together, outputs.probabilities(images, indices.tolist()))
