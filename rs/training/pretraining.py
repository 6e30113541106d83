"""Short trainings by ``gaussian`` that come before a training, in the same cell.

A warm start gives the training its first weights; the votes of a target network are the targets of
its images. A stop in any of them continues, because a finished one is its last checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from rs.data.prepared import Images
from rs.models.backend import copy_network
from rs.models.checkpoint import ModelCard
from rs.runtime import processes
from rs.training import start
from rs.training.image_votes import image_targets
from rs.training.recipe import Pretraining, RunOptions, Targets
from rs.training.trainer import Trainer


def pretrained(
    model: nn.Module,
    pretraining: Pretraining,
    train: Images,
    options: RunOptions,
    checkpoint: Path | None,
) -> tuple[nn.Module, float]:
    """Return a copy of a model after its pretraining, and the seconds that this took.

    Args:
        model: On ``options.device``; it is not changed.
        pretraining: How to train.
        train: The training split.
        options: Of the training that follows.
        checkpoint: Where to continue from, and what to write; ``None`` in all processes but one.
    """
    options = replace(options, sigma=pretraining.sigma, seconds=None, on_epoch=None)
    network = copy_network(model)
    trainer = Trainer(network, pretraining.method, train, train, pretraining.training, options)
    progress = trainer.run(checkpoint)
    return trainer.trained, progress.seconds


def make_targets(
    targets: Targets,
    weights: str | None,
    card: ModelCard,
    train: Images,
    options: RunOptions,
    unfinished: Path | None,
) -> tuple[Tensor, float]:
    """Return the targets of training images, float32 (N, K), and the seconds that they took.

    They do not depend on the noise level and the seed of the training, unless it starts from given
    weights. The first of several processes counts the votes.

    Args:
        targets: How to make them.
        weights: That the training starts from, as for :func:`rs.training.start.initial`.
        card: Of the model to train.
        train: The training split.
        options: Of the training.
        unfinished: Folder of unfinished work; ``None`` in all processes but one.
    """
    settings = targets.settings
    if weights is not None:  # of the training's own seed
        weights = str(start.weights_file(weights, options.seed))
    of_targets = replace(options, seed=settings["seed"])
    model = start.initial(card, weights, of_targets).to(options.device)
    checkpoint = None if unfinished is None else unfinished / "target-network.pt"
    network, seconds = pretrained(model, targets.network, train, of_targets, checkpoint)
    counted = None
    if unfinished is not None:
        counted = image_targets(network, train, settings, options.device, unfinished)
    shares, seconds_of_votes = processes.from_first_process(counted, options.device)
    return shares, seconds + seconds_of_votes
