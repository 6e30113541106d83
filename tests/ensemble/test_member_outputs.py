"""Outputs of the members of a pool on noisy images: ``rs.ensemble.member_outputs``."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.member_outputs import NOISE, perturbed_parameters
from rs.ensemble.spec import read
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import gaussian_block
from tests.support import tiny_pool
from tests.support.helpers import SHAPE, smallnet
from tests.support.tiny_pool import SIGMA, load_outputs, load_split

in_pool = pytest.mark.usefixtures("pool_here")

NAMES = (2083373446, 927593077, 1078903523)
"""CRC-32 of gaussian-0, macer-0 and macer-1, which key their perturbations."""


def slow_probabilities(name, member, index, settings, repeat):
    """Softmax outputs (m n, K) by loops over perturbed copies and noisy images.

    Of the first copies and noisy images, or of those that follow ``repeat`` times as many.
    """
    x = load_split("test").pixels(index)
    key = (settings.seed, Stream.WEIGHTS, NOISE, index)
    noise = gaussian_block(0, SHAPE, SIGMA, *key, device="cpu")
    first_copy = repeat * settings.copies
    first_draw = repeat * settings.noises
    probabilities = []
    for copy in range(first_copy, first_copy + settings.copies):
        perturbation = (settings.share, settings.scale, settings.seed, name, copy)
        parameters = perturbed_parameters(member, *perturbation)
        for draw in range(first_draw, first_draw + settings.noises):
            noisy = (x + noise[draw])[None]
            with torch.no_grad():
                logits = functional_call(member, parameters, (noisy,))
            probabilities.append(torch.softmax(logits[0].double(), dim=0).numpy())
    return probabilities


@in_pool
@pytest.mark.parametrize("repeat", [0, 1])
@pytest.mark.parametrize("is_perturbed", [True, False])
def test_outputs_are_those_of_a_slow_loop(is_perturbed, repeat):
    outputs = load_outputs()
    if not is_perturbed:
        outputs = outputs.unperturbed(12)
    indices = [3, 7]
    probabilities = outputs.probabilities(load_split("test"), indices, repeat=repeat)
    members = tiny_pool.pool_members()
    for of_image, index in zip(probabilities, indices, strict=True):
        for of_member, name, member in zip(of_image, NAMES, members, strict=True):
            expected = slow_probabilities(name, member, index, outputs.settings, repeat)
            np.testing.assert_array_equal(of_member, expected)


@in_pool
def test_selected_classes_are_those_of_the_n0_draws_of_certificates():
    """On gray images, of which a draw shows any class."""
    test = load_split("test")
    gray = replace(test, images=np.full_like(test.images, 120))
    spec = read(Path("ensembles", f"{tiny_pool.ALL}.per-image.json"))
    settings = replace(tiny_pool.CERTIFICATION, n0=1)

    classes = load_outputs().selected_classes(spec, gray, list(range(10)), settings)

    average = Ensemble(tiny_pool.pool_members(), SoftmaxAverage())
    classifier = SmoothedClassifier(average, 3, SIGMA)
    budget = (settings.n0, settings.n, settings.alpha)
    for index, selected in enumerate(classes):
        x = gray.pixels(index)
        certificate = classifier.certify(x, *budget, seed=settings.seed, index=index)
        assert certificate.counts0[selected] == 1
    assert len(set(classes)) > 1


@in_pool
@pytest.mark.parametrize(("numbers", "sizes"), [(1, [1] * 5), (600, [2, 2, 1])])
def test_chunks_hold_every_image_once_and_say_the_same_in_any_size(monkeypatch, numbers, sizes):
    """An image takes 3 members x 16 draws x 3 classes + 8 noisy copies x 16 pixels = 272 numbers;
    600 hold two.
    """
    monkeypatch.setattr("rs.ensemble.member_outputs.NUMBERS_AT_ONCE", numbers)
    test = load_split("test")
    outputs = load_outputs()
    indices = np.array([0, 2, 3, 7, 9])
    chunks = list(outputs.chunks(test, indices))
    labels = np.concatenate([chunk.labels for chunk in chunks])
    probabilities = np.concatenate([chunk.probabilities for chunk in chunks])
    expected = outputs.probabilities(test, indices.tolist())
    assert [len(chunk.indices) for chunk in chunks] == sizes
    np.testing.assert_array_equal(labels, indices % 3)
    np.testing.assert_array_equal(probabilities, expected)


# -------------------------------------------------------------------------------------------------
# perturbed parameters


def changes(share, scale, seed=0, member=0, copy=0):
    """What a perturbation adds to each of 430,992 parameters (all 0 beforehand, so without
    rounding).
    """
    model = nn.Linear(656, 656)
    for parameter in model.parameters():
        parameter.data.zero_()
    perturbed = perturbed_parameters(model, share, scale, seed, member, copy)
    return parameters_to_vector(perturbed.values()).double().numpy()


def test_changes_are_normal_in_a_binomial_share_of_the_parameters():
    added = changes(0.3, 2.0)
    nonzero = added[added != 0]
    assert stats.binomtest(len(nonzero), len(added), 0.3).pvalue > 1e-6
    assert stats.kstest(nonzero / 2, "norm").pvalue > 1e-6


def test_perturbations_are_named_by_seed_member_and_copy():
    usual = changes(0.3, 1.0)
    others = [changes(0.3, 1.0, **{part: 1}) for part in ("seed", "member", "copy")]
    assert (changes(0.3, 1.0) == usual).all()
    for first, second in itertools.combinations([usual, *others], 2):
        shared = np.count_nonzero((first != 0) & (second != 0))
        # Independent choices meet in share^2 of the parameters.
        assert stats.binomtest(shared, len(first), 0.09).pvalue > 1e-6


def test_every_parameter_is_perturbed_whether_or_not_it_is_trained_and_no_buffer():
    model = smallnet()
    model.network.fc.weight.requires_grad_(False)
    perturbed = perturbed_parameters(model, 1.0, 1.0, 0, 0, 0)
    before = dict(model.named_parameters())
    assert list(perturbed) == list(before)
    for name, parameter in before.items():
        assert not torch.equal(perturbed[name], parameter)
