"""Short training runs by ``gaussian`` that come before another one, in the same cell.

A warm start gives the training its first weights; the votes of a target network are the targets of
its images. A stop in any of them continues, because a finished one is its last checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from torch import Tensor, nn

from rs.data.prepared import Images
from rs.methods.base import NeedsTargets
from rs.models.backend import copy_network
from rs.models.checkpoint import ModelCard
from rs.runtime import processes
from rs.training import start
from rs.training.image_votes import image_targets
from rs.training.recipe import Recipe, RunOptions
from rs.training.trainer import Trainer


def pretrain(
    model: nn.Module, recipe: Recipe, train: Images, options: RunOptions, checkpoint: Path
) -> Trainer:
    """Train a copy of a model, and return its finished training.

    Args:
        model: On ``options.device``; it is not changed.
        recipe: How to train.
        train: The training split.
        options: Of the training that follows.
        checkpoint: Where to continue from, and what to write.
    """
    options = replace(options, sigma=recipe.sigma, seconds=None, on_epoch=None)
    network = copy_network(model)
    trainer = Trainer(network, recipe.method, train, train, recipe.training, options)
    trainer.run(checkpoint)
    return trainer


def make_targets(
    recipe: Recipe, card: ModelCard, train: Images, options: RunOptions, unfinished: Path
) -> tuple[Tensor | None, float]:
    """Return the targets of training images, float32 (N, K), and the seconds that they took.

    The targets are ``None`` for a method that needs none.

    They do not depend on the noise level and the seed of the training, unless it starts from given
    weights. The first of several processes counts the votes.

    Args:
        recipe: Of the training.
        card: Of the model to train.
        train: The training split.
        options: Of the training.
        unfinished: Folder of unfinished work.
    """
    if recipe.targets is None:
        return None, 0.0
    settings = cast(NeedsTargets, recipe.method).targets
    weights = recipe.weights
    if weights is not None:  # of the training's own seed
        weights = str(start.weights_file(weights, options.seed))
    of_targets = replace(options, seed=settings["seed"])
    model = start.initial(card, weights, of_targets).to(options.device)
    trainer = pretrain(model, recipe.targets, train, of_targets, unfinished / "target-network.pt")
    counted = None
    if processes.is_first_process():
        counted = image_targets(trainer.trained, train, settings, options.device, unfinished)
    shares, seconds = processes.from_first_process(counted, options.device)
    return shares, trainer.progress.seconds + seconds
