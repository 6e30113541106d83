"""Training and certifying the tiny model, from files to files."""

from dataclasses import replace

import torch

from rs.certification.certify_model import certify_model
from rs.certification.load import load
from rs.data.images import load_images
from rs.training.recipe import RunOptions, training_recipe
from rs.training.run import splits, train_model
from tests.support.helpers import METHOD_PARAMETERS, tiny_params

CPU = torch.device("cpu")
EPOCHS = {
    "epochs": 6,
    "milestones": [3],
    "checkpoint_every": 2,
    "eval_every": 2,
    "crop": 1,
    "flip": True,
}


def train_tiny(folder, out):
    own = {**METHOD_PARAMETERS["advmacer"], "training": EPOCHS}
    recipe = training_recipe(tiny_params(advmacer=own), "tiny", "advmacer", 0.25)
    train_model(
        recipe,
        *splits(recipe, folder),
        RunOptions(sigma=0.25, seed=1, device=CPU),
        out=out / "model",
        log=out / "log",
    )


def certify_folder(model, folder, settings, options, out):
    """Certify a model, by its path or name, on the test split of a prepared data set."""
    images = load_images(folder, "test")
    certify_model(
        load(model, images.meta), images, settings, replace(options, calibration=folder), out=out
    )
