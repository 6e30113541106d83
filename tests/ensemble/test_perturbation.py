import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from rs.ensemble.member_outputs import (
    WeightSettings,
    perturbed_parameters,
    perturbed_probabilities,
)
from rs.runtime.streams import Stream
from tests.support.helpers import smallnet, tiny_images

SIGMA = 0.5
PERTURBATION = WeightSettings(noises=3, copies=4, share=0.3, scale=0.2, draws=1, images=1, seed=5)
SETTINGS = {"settings": PERTURBATION, "sigma": SIGMA}


def images(*indices):
    return torch.stack([tiny_images().pixels(index) for index in indices])


def changes(share, scale, **key):
    """What a perturbation adds to each of 430,992 parameters (all 0 beforehand, so without
    rounding).
    """
    model = nn.Linear(656, 656)
    for parameter in model.parameters():
        parameter.data.zero_()
    made = perturbed_parameters(model, share, scale, **{"seed": 0, "member": 0, "copy": 0, **key})
    return torch.cat([value.flatten() for value in made.values()]).double().numpy()


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_the_share_of_changed_parameters_is_binomial(share):
    changed = changes(share, 1.0) != 0
    assert stats.binomtest(int(changed.sum()), len(changed), share).pvalue > 1e-6


@pytest.mark.parametrize("scale", [0.01, 2.0])
def test_changes_are_normal_with_the_given_standard_deviation(scale):
    made = changes(0.5, scale)
    made = made[made != 0] / scale
    low, high = stats.chi2.isf([1 - 5e-7, 5e-7], len(made))
    assert low < (made**2).sum() < high
    assert stats.kstest(made, "norm").pvalue > 1e-6


def test_perturbations_are_named_by_seed_member_and_copy():
    made = [changes(0.3, 1.0, **key) for key in ({}, {}, {"seed": 1}, {"member": 1}, {"copy": 1})]
    assert (made[0] == made[1]).all()
    for other in made[2:]:
        shared = (
            (made[0] != 0) & (other != 0)
        ).sum()  # independent choices meet in share^2 of the parameters
        assert stats.binomtest(int(shared), len(other), 0.09).pvalue > 1e-6


def test_every_parameter_is_perturbed_whether_or_not_it_is_trained_and_no_buffer():
    model = smallnet()
    model.network.fc.weight.requires_grad_(False)
    made = perturbed_parameters(model, 1.0, 1.0, 0, 0, 0)
    assert list(made) == [name for name, _ in model.named_parameters()]
    assert not any(
        torch.equal(made[name], parameter) for name, parameter in model.named_parameters()
    )


def test_no_two_random_streams_are_one(monkeypatch):
    keys = []

    def recorded(seed, *key):
        keys.append((seed, *key))
        return np.random.SeedSequence(len(keys))

    for module in ("rs.smoothing.noise", "rs.runtime.streams"):
        monkeypatch.setattr(f"{module}.seed_sequence", recorded)
    perturbed_probabilities(
        [smallnet(0), smallnet(1)], images(0, 1, 2), indices=[0, 1, 2], **SETTINGS
    )
    assert len(set(keys)) == len(keys) == 3 + 2 * PERTURBATION.copies
    assert {key[1] for key in keys} == {Stream.WEIGHTS}
