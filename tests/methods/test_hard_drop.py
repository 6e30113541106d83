"""Discarded images and sampling weights of hard-drop; test_losses.py has its loss."""

import numpy as np
import pytest
import torch
from scipy import stats

from rs import params
from rs.data.images import epoch_order
from rs.data.prepared import EpochPlan
from rs.methods.hard_drop import HardDrop, weights_of_accuracies
from tests.support.helpers import method_parameters, refuses

EQUAL = torch.full((5,), 0.2, dtype=torch.float64)
SHARES = torch.tensor([0.1, 0.5, 0.75, 0.875, 1.0], dtype=torch.float64)


def method(**changes):
    values = method_parameters("hard-drop") | {
        "defer": 2,
        "threshold": 0.5,
        "discard_draws": 100,
        "every": 3,
    }
    return params.validate(HardDrop, values | changes, "hard-drop")


def measured(numbers, draws):
    return SHARES[numbers]


def test_weights_are_those_of_the_published_counts():
    found = weights_of_accuracies(torch.tensor([0, 11, 12, 13, 14, 15, 16]) / 16)
    assert found.tolist() == pytest.approx(
        [0.15370] * 3 + [0.32862, 0.52565, 0.76488, 1.10751], abs=5e-6
    )
    assert (found / found[2])[3:].tolist() == pytest.approx([2.138, 3.420, 4.976, 7.206], abs=5e-4)


def test_nothing_is_weighed_before_the_end_of_the_deferral():
    assert method().image_weights(1, EQUAL, measured) is None


def test_images_below_the_threshold_are_discarded_once_and_the_others_weighed_anew():
    calls = []

    def accuracies(numbers, draws):
        calls.append((numbers.tolist(), draws))
        return SHARES[numbers]

    first = method().image_weights(2, EQUAL, accuracies)
    assert calls == [([0, 1, 2, 3, 4], 100), ([1, 2, 3, 4], 16)]
    expected = np.array([0, 0.15370, 0.15370, 0.52565, 1.10751])
    assert first.numpy() == pytest.approx(expected / expected.sum(), abs=1e-5)
    assert torch.equal(method().image_weights(3, first, accuracies), first)
    assert len(calls) == 2
    later = method().image_weights(5, first, lambda numbers, _: torch.ones(len(numbers)).double())
    assert later.tolist() == pytest.approx([0, 0.25, 0.25, 0.25, 0.25])


def test_a_threshold_that_leaves_no_image_is_one_line():
    with refuses(r"threshold must leave an image to train on, got 1.0; lower it"):
        method(threshold=1.0).image_weights(
            2, EQUAL, lambda numbers, draws: torch.zeros(len(numbers)).double()
        )


def test_an_epoch_names_no_discarded_image_and_the_others_by_their_weights():
    shares = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    counts = torch.zeros(5)
    for number in range(400):
        plan = EpochPlan(seed=3, number=number, size=2, weights=shares)
        counts += epoch_order(5, plan).bincount(minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 3, 4]], [1000, 600, 400]).pvalue > 1e-6


def test_without_new_weights_the_kept_images_are_equally_likely():
    assert method(every=0).image_weights(2, EQUAL, measured).tolist() == [0, 0.25, 0.25, 0.25, 0.25]
