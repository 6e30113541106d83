"""Trainings that are measured: ``benchmarks.steps``."""

import math

import pytest
import torch

from benchmarks.common import SIGMA, Architecture, network
from benchmarks.steps import own_epoch, own_trainer, random_images
from rs.methods import METHODS
from rs.training.recipe import training_recipe
from tests.support.helpers import DEFAULTS

pytestmark = pytest.mark.trust_only

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", METHODS)
def test_an_epoch_of_each_method_takes_its_steps_and_has_a_loss(name):
    method = training_recipe(DEFAULTS, "digits", name, SIGMA).method
    data = random_images(Architecture.smallnet.shape, 8)
    model, _ = network(Architecture.smallnet, CPU)
    trainer = own_trainer(model, method, data, CPU, "plain", "float32", 8)
    assert math.isfinite(own_epoch(trainer)())
    assert trainer.progress.updates == method.steps_per_batch
