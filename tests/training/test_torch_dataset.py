"""``rs.train`` on data sets of torch whose items are random."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import rs
from tests.support.helpers import refuses

COUNT = 12


class Counting(Dataset):
    """Images of one gray level, which a random number shifts; counts how often each is read."""

    def __init__(self, shift, label_shift=0):
        self.shift = shift
        self.label_shift = label_shift
        self.reads = [[] for _ in range(COUNT)]

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        level = 20 * index + self.shift()
        label = (index + self.label_shift * len(self.reads[index])) % 2
        self.reads[index].append(level)
        return torch.full((1, 4, 4), level, dtype=torch.uint8), label


def torch_shift():
    return int(torch.randint(20, ()))


def numpy_shift():
    return int(np.random.randint(20))  # noqa: NPY002


def python_shift():
    return random.randrange(20)


def no_shift():
    return 0


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def train(dataset, epochs=3, **settings):
    return rs.train(build, dataset, sigma=0.25, method="gaussian", epochs=epochs, **settings)


@pytest.mark.parametrize("shift", [torch_shift, numpy_shift, python_shift])
def test_random_items_are_read_again_in_every_epoch_and_reproducibly(shift):
    first = Counting(shift)
    trained = train(first).module.state_dict()
    reads = [len(levels) for levels in first.reads]
    # One of each class is held out; the check of two readings stops at the first difference.
    held_out = [count for count in reads[2:] if count == 1]
    trained_on = [count for count in reads[2:] if count == 4]
    assert len(held_out) + len(trained_on) == COUNT - 2
    assert len(trained_on) >= COUNT - 4
    assert any(len(set(levels[-3:])) == 3 for levels in first.reads)
    second = Counting(shift)
    again = train(second).module.state_dict()
    assert first.reads == second.reads
    assert all(torch.equal(trained[name], again[name]) for name in trained)


def test_items_that_never_change_are_read_once_and_a_second_time_to_see_it():
    dataset = Counting(no_shift)
    train(dataset)
    assert [len(levels) for levels in dataset.reads] == [2] * COUNT


@pytest.mark.parametrize("shift", [numpy_shift, python_shift])
def test_a_training_leaves_the_global_generators_alone(shift):
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    expected = [shift(), shift()]
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    found = [shift()]
    train(Counting(shift), epochs=1)
    assert [*found, shift()] == expected


def test_an_item_whose_label_changes_between_readings_is_refused():
    with refuses("must keep its shape and label"):
        train(Counting(torch_shift, label_shift=1))


PAIRS = [(torch.full((1, 4, 4), 20 * index, dtype=torch.uint8), index % 2) for index in range(12)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(PAIRS)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([(x, y, 7) for x, y in PAIRS], r"\(image, label\), got a tuple of \(Tensor, int, int\)"),
        (
            [{"image": x, "label": y} for x, y in PAIRS],
            r"\(image, label\), got a dict with the keys image, label",
        ),
        (Stream(), r"__len__ and __getitem__, got Stream; .* list\(...\)"),
        (DataLoader(PAIRS), r"got a DataLoader; give its \.dataset"),
    ],
)
def test_a_data_set_that_is_not_clear_is_refused(images, message):
    with refuses(message):
        train(images)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": torch.zeros(2, dtype=torch.int64)}, "a data set has its own labels"),
        ({"validation": [(torch.rand(1, 2, 2), 0)]}, r"validation must be \(images, labels\)"),
        ({"validation": (torch.rand(2, 1, 2, 2),)}, r"validation must be \(images, labels\)"),
    ],
)
def test_labels_beside_a_data_set_and_other_kinds_of_validation_are_refused(changes, said):
    data = torch.utils.data.TensorDataset(torch.rand(2, 1, 2, 2), torch.tensor([0, 1]))
    with refuses(said):
        rs.train(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), data, sigma=0.25, **changes)
