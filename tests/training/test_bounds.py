"""``rs.train`` on inputs that are no images, and the models that it makes."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import rs
from rs.models.checkpoint import read_card
from rs.storage.files import read_json
from tests.support.helpers import generator, refuses, update_json, weights

QUICK = {"sigma": 0.25, "method": "gaussian", "epochs": 2, "batch": 16}


def network(numbers=24, logits=2):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(numbers, logits))


def data(shape=(24,), count=40):
    """Inputs in [-1, 1] of two classes, by the sign of their mean."""
    labels = torch.arange(count) % 2
    noise = torch.rand(count, *shape, generator=generator(1)) - 0.5
    return noise + (labels - 0.5).view(-1, *[1] * len(shape)), labels


def built():
    return network()


NETWORKS = {
    "numbers": ((24,), network),
    "one logit": ((24,), lambda: network(logits=1)),
    "signal": ((1, 24), lambda: nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), network(88))),
    "volume": (
        (1, 2, 3, 4),
        lambda: nn.Sequential(nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), network(24)),
    ),
}


@pytest.mark.parametrize(("shape", "build"), NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("method", ["gaussian", "advmacer"])
def test_a_model_of_any_shape_certifies_what_it_has_learned(shape, build, method, tmp_path):
    x, y = data(shape)
    settings = QUICK | {"method": method, "bounds": (-1, 1), "epochs": 4}
    robust = rs.train(build, x, y, **settings, out=tmp_path / "model")
    assert robust.shape == shape
    smoothed = robust.smooth()
    certificates = smoothed.certify_many(x[:6])
    assert [one.predict for one in certificates] == y[:6].tolist()
    assert min(one.radius for one in certificates) > 0


def test_a_model_of_pixels_records_no_bounds(tmp_path):
    rs.train(built, FRACTIONS, data()[1], out=tmp_path / "model", **QUICK)
    assert "bounds" not in read_json(tmp_path / "model/model.json")
    assert read_card(tmp_path / "model").bounds == (0, 1)


@pytest.mark.parametrize(("bounds", "stored"), [((-1, 1), [-1.0, 1.0]), (None, None)])
def test_a_model_records_its_bounds_and_is_smoothed_within_them(bounds, stored, tmp_path):
    folder = tmp_path / "model"
    rs.train(built, *data(), bounds=bounds, out=folder, **QUICK)
    assert read_json(folder / "model.json")["bounds"] == stored
    loaded = rs.load(folder, network=built)
    assert loaded.bounds == read_card(folder).bounds == bounds
    assert loaded.smooth().bounds == bounds
    with refuses(r"a classifier of images with pixels in \[0, 1\], but"):
        loaded.for_images(loaded.classes, loaded.shape)
    update_json(folder / "model.json", bounds=[1.0, -1.0])
    with refuses("bounds must be the least and the largest value"):
        rs.load(folder, network=built)


PIXELS = torch.randint(256, (40, 24), generator=generator(2)).byte()
FRACTIONS = torch.rand(40, 24, generator=generator(3))


@pytest.mark.parametrize(
    ("images", "others"), [(PIXELS, PIXELS / 255), (PIXELS / 255, PIXELS / 255), (FRACTIONS,) * 2]
)
def test_pixels_and_the_same_numbers_without_bounds_make_the_same_weights(images, others):
    labels = (others.mean(dim=1) > 0.5).long()
    states = []
    for x, bounds in ((images, (0, 1)), (others, None)):
        kept_out = x[:10], labels[:10]
        robust = rs.train(network(), x, labels, bounds=bounds, validation=kept_out, **QUICK)
        states.append(weights(robust.module))
    assert states[0] == states[1]


class Drifting(Dataset):
    """Random inputs in [-1, 1] that leave their bounds after 60 readings."""

    def __init__(self):
        self.x, self.y = data()
        self.readings = 0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        self.readings += 1
        x = (self.x[index] + 0.1 * torch.randn(24)).clamp(-1, 1)
        return x + 2 * (self.readings > 60), int(self.y[index])


def test_tables_of_pandas_make_the_weights_of_their_numbers_whatever_their_index():
    x, y = data()
    index = range(7, 7 + len(y))
    table = pd.DataFrame(x.numpy(), index=index)
    numbers = rs.train(built, x, y, bounds=None, **QUICK)
    robust = rs.train(built, table, pd.Series(y.numpy(), index=index), bounds=None, **QUICK)
    assert weights(robust.module) == weights(numbers.module)


def test_an_input_that_is_read_again_must_keep_its_bounds():
    with refuses(r"item \d+ of the data set must hold .* within \[-1, 1\]"):
        rs.train(network(), Drifting(), bounds=(-1, 1), **QUICK)


def test_crops_and_flips_are_for_images():
    with refuses(r"crop and flip must be off .*; leave them out"):
        rs.train(network(), *data(), bounds=None, training={"crop": 2}, **QUICK)


@pytest.mark.parametrize(
    ("x", "bounds", "message"),
    [
        (2 * data()[0], (-1, 1), r"inputs must hold finite .* within \[-1, 1\]"),
        (np.zeros((40, 24), np.uint8), (-1, 1), r"inputs must hold .* floating-point .*uint8"),
        (data()[0], (1, 0), "bounds must be"),
        ([object()] * 40, None, "images must be an array of numbers, but: .*; convert them"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(x, bounds, message):
    with refuses(message):
        rs.train(network(), x, data()[1], bounds=bounds, **QUICK)
