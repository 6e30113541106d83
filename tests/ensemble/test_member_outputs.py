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

from rs.data.images import load_images
from rs.ensemble.base import Ensemble, SoftmaxAverage
from rs.ensemble.member_outputs import NOISE, perturbed_parameters
from rs.ensemble.spec import read
from rs.runtime.streams import Stream
from rs.smoothing.classifier import SmoothedClassifier
from rs.smoothing.noise import gaussian_block
from tests.support import tiny_pool
from tests.support.helpers import SHAPE, smallnet
from tests.support.tiny_pool import SIGMA, load_outputs


def images():
    return load_images(Path("data"), "test")


NAMES = (2083373446, 927593077, 1078903523)
"""CRC-32 of gaussian-0, macer-0 and macer-1, which key their perturbations."""


def slow_probabilities(name, member, index, settings, repeat):
    """Softmax outputs (m n, K) by loops over perturbed copies and noisy images.

    Of the first copies and noisy images, or of those that follow ``repeat`` times as many.
    """
    x = images().pixels(index)
    key = (settings.seed, Stream.WEIGHTS, NOISE, index)
    noise = gaussian_block(0, SHAPE, SIGMA, *key, device="cpu")
    found = []
    for copy in range(repeat * settings.copies, (repeat + 1) * settings.copies):
        how = (settings.share, settings.scale, settings.seed)
        changed = perturbed_parameters(member, *how, name, copy)
        for draw in range(repeat * settings.noises, (repeat + 1) * settings.noises):
            with torch.no_grad():
                logits = functional_call(member, changed, ((x + noise[draw])[None],))
            found.append(torch.softmax(logits[0].double(), dim=0).numpy())
    return found


@pytest.mark.usefixtures("pool_here")
@pytest.mark.parametrize("repeat", [0, 1])
@pytest.mark.parametrize("is_perturbed", [True, False])
def test_outputs_are_those_of_a_slow_loop(is_perturbed, repeat):
    outputs = load_outputs() if is_perturbed else load_outputs().unperturbed(12)
    found = outputs.probabilities(images(), [3, 7], repeat=repeat)
    members = list(zip(NAMES, tiny_pool.pool_members(), strict=True))
    for row, index in enumerate((3, 7)):
        for number, (name, member) in enumerate(members):
            expected = slow_probabilities(name, member, index, outputs.settings, repeat)
            np.testing.assert_array_equal(found[row, number], expected)


@pytest.mark.usefixtures("pool_here")
def test_selected_classes_are_those_of_the_n0_draws_of_certificates():
    """On gray images, of which a draw shows any class."""
    gray = replace(images(), images=np.full_like(images().images, 120))
    spec = read(Path("ensembles", f"{tiny_pool.ALL}.per-image.json"))
    how = replace(tiny_pool.CERTIFICATION, n0=1)
    found = load_outputs().selected_classes(spec, gray, list(range(10)), how)
    average = Ensemble(tiny_pool.pool_members(), SoftmaxAverage())
    classifier = SmoothedClassifier(average, 3, SIGMA)
    for index, chosen in enumerate(found):
        x = gray.pixels(index)
        made = classifier.certify(x, how.n0, how.n, how.alpha, seed=how.seed, index=index)
        assert made.counts0[chosen] == 1
    assert len(set(found)) > 1


@pytest.mark.usefixtures("pool_here")
@pytest.mark.parametrize(("numbers", "sizes"), [(1, [1] * 5), (600, [2, 2, 1])])
def test_chunks_hold_every_image_once_and_say_the_same_in_any_size(monkeypatch, numbers, sizes):
    """An image takes 3 members x 16 draws x 3 classes + 8 noisy copies x 16 pixels = 272 numbers;
    600 hold two.
    """
    monkeypatch.setattr("rs.ensemble.member_outputs.NUMBERS_AT_ONCE", numbers)
    outputs, indices = load_outputs(), np.array([0, 2, 3, 7, 9])
    chunks = list(outputs.chunks(images(), indices))
    assert [len(chunk.indices) for chunk in chunks] == sizes
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), indices % 3)
    together = np.concatenate([chunk.probabilities for chunk in chunks])
    np.testing.assert_array_equal(together, outputs.probabilities(images(), indices.tolist()))


# -------------------------------------------------------------------------------------------------
# perturbed parameters


def changes(share, scale, seed=0, member=0, copy=0):
    """What a perturbation adds to each of 430,992 parameters (all 0 beforehand, so without
    rounding).
    """
    model = nn.Linear(656, 656)
    for parameter in model.parameters():
        parameter.data.zero_()
    made = perturbed_parameters(model, share, scale, seed, member, copy)
    return torch.cat([value.flatten() for value in made.values()]).double().numpy()


def test_changes_are_normal_in_a_binomial_share_of_the_parameters():
    made = changes(0.3, 2.0)
    changed = made[made != 0]
    assert stats.binomtest(len(changed), len(made), 0.3).pvalue > 1e-6
    assert stats.kstest(changed / 2, "norm").pvalue > 1e-6


def test_perturbations_are_named_by_seed_member_and_copy():
    made = [changes(0.3, 1.0, **key) for key in ({}, {}, {"seed": 1}, {"member": 1}, {"copy": 1})]
    assert (made[0] == made[1]).all()
    for one, other in itertools.combinations(made[1:], 2):
        shared = ((one != 0) & (other != 0)).sum()
        # independent choices meet in share^2 of the parameters
        assert stats.binomtest(int(shared), len(other), 0.09).pvalue > 1e-6


def test_every_parameter_is_perturbed_whether_or_not_it_is_trained_and_no_buffer():
    model = smallnet()
    model.network.fc.weight.requires_grad_(False)
    made = perturbed_parameters(model, 1.0, 1.0, 0, 0, 0)
    assert list(made) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        assert not torch.equal(made[name], parameter)
