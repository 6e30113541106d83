"""The stage ``train``: train a model into its folder."""

from __future__ import annotations

import inspect
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from rs.data import images
from rs.data.prepared import Images
from rs.errors import InputError
from rs.methods import EVERY_METHOD
from rs.models import architectures, checkpoint
from rs.models.backend import copy_network
from rs.models.checkpoint import ModelCard
from rs.models.denoised import DENOISER_METHODS
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint, processes, scratch
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.progress import duration, say
from rs.statistics.certificate import UNLABELED
from rs.storage import files
from rs.training import start, warnings
from rs.training.attack_backend import has_trained_norm
from rs.training.pretraining import make_targets, pretrain
from rs.training.recipe import Recipe, RunOptions
from rs.training.record import check_finished, check_logs, inputs_of, write_logs
from rs.training.trainer import Trainer


def splits(recipe: Recipe, folder: Path) -> tuple[Images, Images]:
    """Return the images to train on and those of the quick ACR, never test images of a user.

    Args:
        recipe: What to train, and how.
        folder: A prepared data set.
    """
    train = images.load_images(folder, "train")
    if "validation" in train.meta.sizes:
        return train, images.load_images(folder, "validation")
    if not recipe.training.eval_every:
        return train, train
    if recipe.architecture in architectures.USER_NETWORKS:
        return train.split(images.VALIDATION_SHARE)
    # the ACRs of a study's curves are of test images, because nothing is chosen by them
    return train, images.load_images(folder, "test")


def train_model(
    recipe: Recipe,
    train: Images,
    evaluation: Images,
    options: RunOptions,
    *,
    out: Path,
    log: Path,
    restart: bool = False,
) -> None:
    """Train a recipe on the images ``train``; quick ACRs are of ``evaluation``.

    Writes the model into ``out`` (a function of the parameters and the number of processes, on one
    kind of device), and into ``log`` its ``history.csv``, its ``timing.csv`` (training seconds so
    far; the line of epoch 0 is of what comes before the first epoch) and ``provenance.json``
    (model, git commit, seconds). A training run that was killed continues from its last checkpoint.
    Under torchrun the processes train one model together; the first one reads the checkpoint and
    writes.

    Args:
        recipe: What to train, and how.
        train: The training split, as :func:`splits` returns it.
        evaluation: The split of the quick ACRs.
        options: Noise level, seed and device. With a limit of seconds the model depends on the
            machine, and its card says how many epochs it had.
        out: A new folder, or that of an earlier training of the same method, data set, noise and
            seed.
        log: A folder, new or of such an earlier training.
        restart: Whether a finished model in ``out`` is replaced. Otherwise nothing is done if it
            has the same settings, start and images.
    Raises:
        InputError: If something else would be overwritten, or for any reason of the functions
            that this one calls.
    """
    limit_threads(train.meta.shape)
    _check_labels(recipe, train)
    is_first_process = processes.is_first_process()
    is_own = recipe.architecture in architectures.USER_NETWORKS
    if is_own:
        warnings.warn_of_imbalance(train)
        if recipe.training.eval_every:
            warnings.warn_of_copies(train, evaluation)
    card = _card(recipe, train, options)
    checkpoint.check_model_folder(out, card)
    if recipe.weights is not None:
        weights = start.weights_file(recipe.weights, options.seed)
        files.check_output(out, "a folder without --weights", True, inputs=[weights])
    check_logs(log, card)
    model = start.initial(card, recipe.weights, options)
    inputs = inputs_of(train, options, model)
    identity = _identity(card, inputs, model)
    unfinished = scratch.path_of(identity)
    if (out / checkpoint.WEIGHTS).is_file() and not restart:
        is_unfinished = unfinished.is_dir()
        check_finished(out, log, card, inputs, is_unfinished)
        if not is_unfinished:
            if is_first_process:
                checkpoint.load_model(out)  # refuses a network that has changed
                say(f"already complete: {out}")
            return
    with ExitStack() as stack:
        if is_first_process:
            stack.enter_context(scratch.sole_writer(out))
            stack.enter_context(scratch.sole_writer(log))
            stack.enter_context(scratch.scratch_folder(identity))
            for line in _what_runs(recipe, model, train, evaluation, options):
                say(line, sys.stderr)
        backend = "nccl" if options.device.type == "cuda" else "gloo"
        stack.enter_context(processes.process_group(backend))
        model = model.to(options.device)
        if is_own:
            start.check_trainable(model, recipe, train.meta, options)
        trainer, seconds_before = _trained(
            model, recipe, card, train, evaluation, options, unfinished
        )
        if is_first_process:
            progress = trainer.progress
            _save(out, trainer.trained, card, progress.epoch)
            identity = {
                "model": checkpoint.origin(asdict(card)),
                "classifier": model_fingerprint(trainer.trained),
                "inputs": inputs,
            }
            write_logs(log, identity, progress, seconds_before, options.device)


def _trained(
    model: nn.Module,
    recipe: Recipe,
    card: ModelCard,
    train: Images,
    evaluation: Images,
    options: RunOptions,
    unfinished: Path,
) -> tuple[Trainer, float]:
    """Train a model. A warm start and the targets of its method come first, if there are any.

    Returns:
        The trainer, and the seconds of what came first, which count toward a limit of seconds.
    """
    seconds_before = 0.0
    if recipe.warm_start is not None:
        warm_start_file = unfinished / "warm-start.pt"
        warm = pretrain(model, recipe.warm_start, train, options, warm_start_file)
        model.load_state_dict(warm.trained.state_dict())
        seconds_before = warm.progress.seconds
    targets, seconds = make_targets(recipe, card, train, options, unfinished)
    seconds_before += seconds
    if options.seconds is not None:
        options = replace(options, seconds=max(options.seconds - seconds_before, 0.0))
    trainer = Trainer(model, recipe.method, train, evaluation, recipe.training, options, targets)
    trainer.run(unfinished / "checkpoint.pt")
    return trainer, seconds_before


def _check_labels(recipe: Recipe, train: Images) -> None:
    """Check that the images have the labels that a method needs."""
    is_unlabeled = bool((train.labels == UNLABELED).any())
    if is_unlabeled and (recipe.name not in DENOISER_METHODS or recipe.training.eval_every):
        raise InputError(
            f"{recipe.name} must have images with labels, got images without; put the pictures of "
            f"each class into a subfolder, or train {DENOISER_METHODS[0]} without an ACR"
        )


def _what_runs(
    recipe: Recipe, model: nn.Module, train: Images, evaluation: Images, options: RunOptions
) -> list[str]:
    """Return lines that say what a training run does."""
    settings = recipe.training
    length = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
    if options.seconds is not None:
        length = duration(options.seconds)
    acr = "no quick ACR"
    if settings.eval_every:
        count = min(settings.eval_images, len(evaluation))
        every = "epoch" if settings.eval_every == 1 else f"{settings.eval_every} epochs"
        acr = f"quick ACR on {count:,} images every {every} and at the end"
    lines = [
        f"training {recipe.name} for {length} on {len(train):,} images with {settings.optimizer}, "
        f"learning rate {settings.learning_rate:g}, batch {settings.batch}",
        f"  {acr}",
    ]
    if settings.micro_batch is not None:
        line = f"  {settings.micro_batch} noisy images at a time"
        if has_trained_norm(model):
            line += ", which batch norm normalizes by, not by whole steps"
        lines.append(line)
    return lines


def _save(out: Path, model: nn.Module, card: ModelCard, epochs: int) -> None:
    """Write a trained model with its card, which says how many epochs it had."""
    training = card.training | {"epochs": epochs}  # which --seconds decides
    card = replace(card, epochs=epochs, training=training)
    if card.architecture in architectures.USER_NETWORKS:
        trained = copy_network(model).cpu().eval()
        card = replace(card, probe=checkpoint.probe(trained, card.shape))
    checkpoint.save(out, model, card)


def _identity(card: ModelCard, inputs: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Return what names unfinished work.

    Another start, images, settings, code or number of processes do not continue it.
    """
    code = code_fingerprint.code_hash(
        "rs/training/run.py",
        "rs/methods/gaussian.py",  # of what may come before a training run
        method=EVERY_METHOD[card.method],
    )
    return {"train": asdict(card), "code": code, **inputs, **_sources_in_main(model)}


def _sources_in_main(model: nn.Module) -> dict[str, str]:
    """Return the sources of the layers that a script or notebook defines, which no card has."""
    layers = {type(layer) for layer in model.modules() if type(layer).__module__ == "__main__"}
    sources = {}
    for layer in layers:
        with suppress(OSError, TypeError):  # it was typed into an interpreter
            sources[layer.__qualname__] = inspect.getsource(layer)
    return sources


def _card(recipe: Recipe, train: Images, options: RunOptions) -> ModelCard:
    meta = train.meta
    code = architectures.USER_NETWORKS.get(recipe.architecture)
    is_own = code is not None  # a user's network has its own normalization
    training = recipe.training.card()
    training["precision"] = precision_on(options.device, recipe.training.precision)
    if recipe.weights is not None:
        weights = start.weights_file(recipe.weights, options.seed)
        training["start"] = f"sha256 {files.sha256(weights)}"
    if options.from_scratch:
        training["start"] = "random"
    if recipe.warm_start is not None:
        training["warm_start"] = recipe.warm_start.pretraining_card()
    if recipe.targets is not None:
        training["targets"] = recipe.targets.pretraining_card()
    if options.trainable != "all":
        training["trainable"] = options.trainable
    if is_own:
        training["kept"] = "last epoch"
    return ModelCard(
        architecture=recipe.architecture,
        shape=list(meta.shape),
        classes=list(meta.classes),
        mean=[0.0] * len(meta.mean) if is_own else list(meta.mean),
        std=[1.0] * len(meta.std) if is_own else list(meta.std),
        dataset=meta.name,
        method=recipe.name,
        hyperparameters=recipe.hyperparameters,
        training=training,
        sigma=options.sigma,
        seed=options.seed,
        epochs=recipe.training.epochs,
        device=options.device.type,
        arithmetic=arithmetic.current(),
        versions=checkpoint.library_versions(),
        code=code or {},
        bounds=options.bounds,
    )
