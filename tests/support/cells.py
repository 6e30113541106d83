"""Training and certifying on the tiny data set, from files to files."""

import signal

import torch

from rs.certification.certify_model import certification_settings, certify_cell
from rs.training.recipe import training_recipe
from rs.training.run import train_cell
from tests.support.helpers import tiny_params

CPU = torch.device("cpu")
EPOCHS = {"epochs": 6, "milestones": [3], "checkpoint_every": 2, "eval_every": 2, "crop": 1, "flip": True}


def train_tiny(folder, out, method="advmacer", sigma=0.25, seed=1):
    own = {**tiny_params()["recipes"]["tiny"][method], "training": EPOCHS}
    recipe = training_recipe(tiny_params(**{method: own}), "tiny", method, sigma)
    train_cell(recipe, folder, sigma=sigma, seed=seed, device=CPU, out=out / "model", log=out / "log")


def die_at(step):
    """Kill this process in the middle of a training, as nothing can be caught."""
    import os

    from rs.training.trainer import Trainer

    steps, take = iter(range(1, step + 1)), Trainer._step

    def mortal(self, *arguments):
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return take(self, *arguments)

    Trainer._step = mortal


def certify_tiny(model, folder, out, sigma=None, **chosen):
    settings = certification_settings(tiny_params(), "tiny", chosen)
    certify_cell(str(model), folder, settings, sigma=sigma, device=CPU, batch=None, out=out)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reproducible(folder):
    return {name: text for name, text in contents(folder).items() if "timing" not in name and "provenance" not in name}
