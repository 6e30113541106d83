"""Where a training run starts: the weights of the network, and which of them are trained."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import nn

from rs.data.meta import Meta
from rs.errors import InputError
from rs.methods.loss import Loss
from rs.models import architectures, checkpoint
from rs.models.backend import copy_network
from rs.models.checkpoint import ModelCard
from rs.models.denoised import DENOISER_METHODS
from rs.runtime.streams import Stream, derived_seed, seeded
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import LogitsOnly, user_code
from rs.smoothing.noise import noisy_pair
from rs.storage.probe import are_close
from rs.training.recipe import Recipe, RunOptions


def weights_file(weights: str, seed: int) -> Path:
    """Return the file of weights, or that of a model folder; ``{seed}`` stands for ``seed``."""
    path = Path(weights.replace("{seed}", str(seed)))
    return path / checkpoint.WEIGHTS if path.is_dir() else path


def initial(card: ModelCard, weights: str | None, options: RunOptions) -> nn.Sequential:
    """Build the network of a card with the weights that its training starts from.

    All parameters that are not trainable are frozen.

    Args:
        card: Of the model to train.
        weights: A safetensors file of the network's ``state_dict``, or the folder of a model that
            ``rs train`` made, as for :func:`weights_file`; ``None`` for the weights that it is
            built with.
        options: ``seed`` of random weights, ``from_scratch`` and ``trainable``.
    Raises:
        InputError: If the file does not fit, weights cannot be drawn again, nothing is left to
            train, or a user's network is not one function of each image.
    """
    if options.from_scratch and weights is not None:
        raise InputError(f"give --from-scratch or --weights, got both, with {weights}; omit one")
    if options.from_scratch and card.method in DENOISER_METHODS:
        raise InputError(
            f"--from-scratch must not be given with {card.method}, which would then train for a "
            "classifier of random weights; leave it out"
        )
    model = card.build(derived_seed(options.seed, Stream.INITIAL))
    if weights is not None:
        _fill(model, card, weights_file(weights, options.seed))
    if options.from_scratch:
        _draw_anew(model, derived_seed(options.seed, Stream.INITIAL))
    trainable = _trainable(model, options.trainable)
    for name, parameter in model.named_parameters():
        if name not in trainable:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        count = len(list(model.parameters()))
        raise InputError(
            f"{card.architecture} must have parameters to train, but none of its {count} is "
            f"trainable with --trainable {options.trainable}; choose another"
        )
    if card.architecture in architectures.USER_NETWORKS:
        images = noisy_pair(card.shape, torch.device("cpu"))
        check_deterministic(model.get_submodule("network"), images)
        rebuilt = card.build().eval()
        rebuilt.load_state_dict(model.state_dict())
        logits = checkpoint.probe(rebuilt, card.shape)
        if not are_close(logits, checkpoint.probe(copy_network(model).eval(), card.shape)):
            raise InputError(
                f"{card.architecture} must be decided by its state_dict, which is all that is "
                "saved, but rebuilt with the same one it gives other logits; register its layers "
                "(nn.ModuleList) and buffers"
            )
    return model


def _fill(model: nn.Sequential, card: ModelCard, path: Path) -> None:
    """Fill a model with the weights in a file: of a model, or of the user's network."""
    is_denoiser = card.method in DENOISER_METHODS
    classifier = model.get_submodule("network.network" if is_denoiser else "network")
    state = checkpoint.read_state(path)
    network: nn.Module = model
    if path.name != checkpoint.WEIGHTS or not (path.parent / checkpoint.CARD).is_file():
        network = classifier
        if isinstance(classifier, LogitsOnly):
            network = classifier.network
    elif is_denoiser and checkpoint.read_card(path.parent).method not in DENOISER_METHODS:
        network = classifier
        state = {name.removeprefix("network."): value for name, value in state.items()}
    checkpoint.fill(network, state, str(path), card.architecture)


def check_trainable(model: nn.Module, recipe: Recipe, meta: Meta, options: RunOptions) -> None:
    """Check that a copy of a user's network can take a step of the last epoch.

    That step may need gradients in images.

    Args:
        model: On ``options.device``.
        recipe: How it is trained.
        meta: Of the images.
        options: Of the training.
    Raises:
        InputError: From the error that the network raises.
    """
    images = noisy_pair(meta.shape, options.device)
    classes = meta.num_classes
    labels = torch.zeros(len(images), dtype=torch.long, device=images.device)
    targets = torch.full((len(images), classes), 1 / classes, device=images.device)
    loss = Loss(recipe.method, options.sigma, bounds=None)
    epoch = recipe.training.epochs - 1
    with user_code(f"{recipe.architecture} must be trainable by {recipe.name}"), seeded(0):
        trained = copy_network(model).train()
        loss(trained, images, labels, epoch=epoch, targets=targets).loss.backward()


def _draw_anew(model: nn.Module, seed: int) -> None:
    """Draw all weights as torch's layers do when they are made."""
    with seeded(seed):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(module.parameters(recurse=False), None) is not None:
                raise InputError(
                    f"--from-scratch must be able to draw all weights, but {name}, a "
                    f"{type(module).__name__}, has no method reset_parameters; leave it out, and "
                    "return a network of random weights"
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
            f"{pattern!r}: {error}; the first name is {names[0]}"
        ) from error
