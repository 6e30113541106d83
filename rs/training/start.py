"""Where a training starts: the weights of the network, and which of them are trained."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rs.errors import InputError
from rs.methods.loss import Loss
from rs.models import architectures, checkpoint
from rs.models.checkpoint import ModelCard
from rs.models.denoised import DENOISER_METHODS
from rs.runtime.streams import Stream, derived_seed, seeded
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import LogitsOnly, user_code
from rs.smoothing.noise import noisy_pair
from rs.storage import files
from rs.training.recipe import Recipe, RunOptions


def run_details(weights: str | None, options: RunOptions) -> dict[str, Any]:
    """Return what a card says of a run beyond its recipe, by name: another start, the targets and
    what is trained.
    """
    start = (
        {}
        if weights is None
        else {"start": f"sha256 {files.sha256(weights_file(weights, options.seed))}"}
    )
    if options.from_scratch:
        start = {"start": "random"}
    if options.targets is not None:
        start |= {"targets": f"sha256 {files.sha256(options.targets)}"}
    return start | ({} if options.trainable == "all" else {"trainable": options.trainable})


def weights_file(weights: str, seed: int) -> Path:
    """Return the file of weights: itself, or that of a model folder; ``{seed}`` in its name stands
    for ``seed``.
    """
    path = Path(weights.replace("{seed}", str(seed)))
    return path / checkpoint.WEIGHTS if path.is_dir() else path


def initial(card: ModelCard, weights: str | None, options: RunOptions) -> nn.Sequential:
    """Build the network of a card with the weights that its training starts from; others than
    trainable are constant.

    Args:
        card: Of the model to train.
        weights: A safetensors file of the network's ``state_dict``, or the folder of a model that
            ``rs train`` made, as for :func:`weights_file`; ``None`` for the weights that it is
            built with.
        options: ``seed`` of random weights, ``from_scratch`` and ``trainable``.
    Raises:
        InputError: If the file does not fit, weights cannot be drawn anew, nothing is left to
            train, or a network of the user's is not one function of each image.
    """
    if options.from_scratch and weights is not None:
        raise InputError(f"give --from-scratch or --weights, got both, with {weights}")
    if options.from_scratch and card.method in DENOISER_METHODS:
        raise InputError(
            f"--from-scratch would train {card.method} for a classifier of random weights; leave "
            "it out"
        )
    model = card.build(derived_seed(options.seed, Stream.INITIAL))
    if weights is not None:
        path = weights_file(weights, options.seed)
        network: Any = model
        if not (
            path.name == checkpoint.WEIGHTS and (path.parent / checkpoint.CARD).is_file()
        ):  # else all of a model
            network = (
                network.network.network if card.method in DENOISER_METHODS else network.network
            )
            network = network.network if isinstance(network, LogitsOnly) else network
        checkpoint.fill(network, checkpoint.read_state(path), str(path), card.architecture)
    if options.from_scratch:
        _draw_anew(model, derived_seed(options.seed, Stream.INITIAL))
    trainable = _trainable(model, options.trainable)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name in trainable)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(
            f"{card.architecture} must have parameters to train, but none of its "
            f"{len([*model.parameters()])} is "
            f"trainable with --trainable {options.trainable}"
        )
    if card.architecture in architectures.USER_NETWORKS:
        check_deterministic(
            model.get_submodule("network"), noisy_pair(tuple(card.shape), torch.device("cpu"))
        )
    return model


def check_trainable(
    model: nn.Module,
    recipe: Recipe,
    shape: Sequence[int],
    options: RunOptions,
    targets: Tensor | None,
) -> None:
    """Check that a copy of a user's network takes a step of the last epoch, which may need
    gradients in images.

    Args:
        model: On ``options.device``.
        recipe: How it is trained.
        shape: (C, H, W) of an image.
        options: Of the training.
        targets: As for :class:`rs.training.trainer.Trainer`.
    Raises:
        InputError: From what the network raises.
    """
    images, device = noisy_pair(tuple(shape), options.device).clone(), options.device
    labels = torch.zeros(len(images), dtype=torch.long, device=device)
    pair = None if targets is None else targets[: len(images)].to(device)
    with user_code(f"{recipe.architecture} must be trainable by {recipe.name}"), seeded(0):
        loss, epoch = Loss(recipe.method, options.sigma), recipe.training.epochs - 1
        loss(
            copy.deepcopy(model).train(), images, labels, epoch=epoch, targets=pair
        ).loss.backward()


def _draw_anew(model: nn.Module, seed: int) -> None:
    """Draw all weights as torch's layers do when they are made."""
    with seeded(seed):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(module.parameters(recurse=False), None) is not None:
                raise InputError(
                    f"--from-scratch must find a way to draw all weights, but {name}, a "
                    f"{type(module).__name__}, has "
                    "no method reset_parameters; leave it out, and return a network of random "
                    "weights"
                )


def _trainable(model: nn.Module, pattern: str) -> set[str]:
    """Return the names of the parameters that are trained."""
    names = [name for name, _ in model.named_parameters()]
    if pattern == "all":
        return set(names)
    if pattern == "head":
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        return {name for name in names if linear and name.startswith(f"{linear[-1]}.")}
    try:
        return {name for name in names if re.search(pattern, name)}
    except re.error as error:
        raise InputError(
            "--trainable must be all, head, or a regular expression of parameters' names, got "
            f"{pattern!r}: {error}; "
            f"names here are like {names[0]}"
        ) from error
