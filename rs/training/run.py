"""The stage ``train`` from files to files: train a model into its folder."""

from __future__ import annotations

import inspect
import shutil
import subprocess
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rs.data import images
from rs.data.prepared import Images
from rs.errors import InputError
from rs.methods import EVERY_METHOD
from rs.methods.base import NeedsTargets
from rs.models import architectures, checkpoint
from rs.models.checkpoint import ModelCard
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint, processes, scratch
from rs.runtime.device import limit_threads, precision_on
from rs.storage import files
from rs.training import start, warnings
from rs.training.history import HISTORY, TIMING, Progress
from rs.training.image_votes import read_targets
from rs.training.recipe import Recipe, RunOptions
from rs.training.trainer import Trainer

PROVENANCE = "provenance.json"


def train_model(recipe: Recipe, folder: Path, options: RunOptions, *, out: Path, log: Path) -> None:
    """Train a recipe on the data set in ``folder``.

    Writes the model into ``out`` (a function of the parameters and the number of processes, on one
    kind of device), and into ``log`` its ``history.csv``, its ``timing.csv`` (training seconds so
    far) and ``provenance.json`` (model, git commit, seconds). A training that was killed continues
    from its last checkpoint. Under torchrun the processes train one model together; the first one
    reads the checkpoint and writes.

    Args:
        recipe: What to train, and how.
        folder: A prepared data set.
        options: Noise level, seed and device. With a limit of seconds the model depends on the
            machine, and its card says how many epochs it had.
        out: A new folder, or that of an earlier training of the same method, data set, noise and
            seed.
        log: A folder, new or of such an earlier training.
    Raises:
        InputError: If something else would be overwritten, or as what is called says.
    """
    train_on(recipe, *_splits(recipe, folder), options, out=out, log=log)


def train_on(
    recipe: Recipe, train: Images, evaluation: Images, options: RunOptions, *, out: Path, log: Path
) -> None:
    """Train a recipe on the images ``train`` as :func:`train_model` does, with quick ACRs of
    ``evaluation``.
    """
    limit_threads(train.meta.shape)
    if recipe.architecture in architectures.USER_NETWORKS:
        warnings.warn_of_imbalance(train)
        warnings.warn_of_copies(train, evaluation)
    targets = _targets(recipe, train, options)
    card = _card(recipe, train, options)
    checkpoint.check_model_folder(out, card)
    if recipe.weights is not None:
        weights = start.weights_file(recipe.weights, options.seed)
        files.check_output(out, "another folder than that of --weights", True, inputs=[weights])
    if log.resolve() == out.resolve():
        raise InputError(
            f"--log must be another folder than --out, got {log} for both; name another --log"
        )
    _check_logs(log, card)
    first = processes.rank_and_world_size()[0] == 0
    model = start.initial(card, recipe.weights, options)
    work = (
        scratch.scratch_folder(_identity(card, train, options, model)) if first else nullcontext()
    )
    with (
        work as unfinished,
        processes.process_group("nccl" if options.device.type == "cuda" else "gloo"),
    ):
        model = model.to(options.device)
        if recipe.architecture in architectures.USER_NETWORKS:
            start.check_trainable(model, recipe, train.meta.shape, options, targets)
        trainer = Trainer(
            model, recipe.method, train, evaluation, recipe.training, options, targets
        )
        progress = trainer.run(None if unfinished is None else unfinished / "checkpoint.pt")
        if first:
            checkpoint.save(out, trainer.trained, replace(card, epochs=progress.epoch))
            _write_logs(log, card, model_fingerprint(trainer.trained), progress, options.device)


def is_finished(recipe: Recipe, folder: Path, options: RunOptions, *, out: Path) -> bool:
    """Return whether :func:`train_model` with these arguments would make the model in ``out``
    again.

    The device, the arithmetic and the versions of libraries do not count.

    Raises:
        InputError: If the folder holds something that a training would not replace.
    """
    train, _ = _splits(recipe, folder)
    card = _card(recipe, train, options)
    checkpoint.check_model_folder(out, card)
    saved = files.json_values(out / checkpoint.CARD) if (out / checkpoint.WEIGHTS).is_file() else {}
    counted = {
        name: value
        for name, value in asdict(card).items()
        if name not in ("device", "arithmetic", "versions")
    }
    if any(saved.get(name, {}) != value for name, value in counted.items()):
        return False
    model = start.initial(card, recipe.weights, options)
    return not scratch.has_scratch_folder(_identity(card, train, options, model))


def _targets(recipe: Recipe, train: Images, options: RunOptions) -> Tensor | None:
    """Return the targets of the images of a method that needs them; ``None`` for others."""
    if isinstance(recipe.method, NeedsTargets) == (options.targets is not None):
        return None if options.targets is None else read_targets(options.targets, train)
    if options.targets is not None:
        raise InputError(
            f"--targets is for methods that need targets, which {recipe.name} does not; leave it "
            "out"
        )
    raise InputError(
        f"{recipe.name} must have targets of its images; make a file of them by `rs targets MODEL "
        "--dataset ... "
        "--data ... --out FILE` of a Gaussian model at sigma 0.25, and give --targets FILE"
    )


def _splits(recipe: Recipe, folder: Path) -> tuple[Images, Images]:
    """Return the images to train on and those of the quick ACR: of a user's network never test
    images.
    """
    train = images.load_images(folder, "train")
    if "validation" in train.meta.sizes:
        return train, images.load_images(folder, "validation")
    if recipe.architecture in architectures.USER_NETWORKS and recipe.training.eval_every:
        return train.split(images.VALIDATION_SHARE)
    return train, images.load_images(
        folder, "test"
    )  # curves of a study, by which nothing is chosen


def _identity(
    card: ModelCard, train: Images, options: RunOptions, model: nn.Module
) -> dict[str, Any]:
    """Return what names unfinished work: another start, images, settings, code or processes do not
    continue it.
    """
    code = code_fingerprint.code_hash("rs/training/run.py", method=EVERY_METHOD[card.method])
    limit = {} if options.seconds is None else {"seconds": options.seconds}
    _, world_size = processes.rank_and_world_size()
    several = {"processes": world_size} if world_size > 1 else {}
    network: dict[str, Any] = {}
    if card.architecture in architectures.USER_NETWORKS:
        network = {"start": model_fingerprint(model)} | _sources_in_main(model)
    return {
        "train": asdict(card),
        "images": train.fingerprint,
        "code": code,
        **limit,
        **several,
        **network,
    }


def _sources_in_main(model: nn.Module) -> dict[str, str]:
    """Return the sources of the layers that a script or a notebook defines itself, of which a card
    has none.
    """
    layers = {type(layer) for layer in model.modules() if type(layer).__module__ == "__main__"}
    sources = {}
    for layer in layers:
        with suppress(OSError, TypeError):  # it was typed into an interpreter
            sources[layer.__qualname__] = inspect.getsource(layer)
    return sources


def _write_logs(
    log: Path, card: ModelCard, classifier: str, progress: Progress, device: torch.device
) -> None:
    """Write the logs of a training; the first file says whose they are, if a process is killed
    before the others.
    """
    identity = {"model": checkpoint.origin(asdict(card)), "classifier": classifier}
    files.write_json(log / PROVENANCE, identity | _provenance(progress.seconds, device))
    files.write_csv(log / "history.csv", HISTORY, progress.history)
    files.write_csv(log / "timing.csv", TIMING, progress.timing)


def _check_logs(log: Path, card: ModelCard) -> None:
    """Check that the logs of a training may be written into the folder ``log``: it has none of
    another model.
    """
    new, old = checkpoint.origin(asdict(card)), files.json_values(log / PROVENANCE).get("model")
    there = None if old is None else f"that of {old}"
    files.check_output(
        log, f"the log of {new}", old == new or files.is_empty(log), there=there, option="--log"
    )


def _card(recipe: Recipe, train: Images, options: RunOptions) -> ModelCard:
    meta = train.meta
    sources = architectures.USER_NETWORKS.get(recipe.architecture)
    is_own = sources is not None  # a user's network has its own normalisation
    return ModelCard(
        architecture=recipe.architecture,
        shape=list(meta.shape),
        classes=list(meta.classes),
        mean=[0.0] * meta.shape[0] if is_own else list(meta.mean),
        std=[1.0] * meta.shape[0] if is_own else list(meta.std),
        dataset=meta.name,
        method=recipe.name,
        hyperparameters=recipe.hyperparameters,
        training=asdict(recipe.training)
        | {"precision": precision_on(options.device, recipe.training.precision)}
        | start.run_details(recipe.weights, options)
        | ({"kept": "last epoch"} if is_own else {}),
        sigma=options.sigma,
        seed=options.seed,
        epochs=recipe.training.epochs,
        device=options.device.type,
        arithmetic=arithmetic.current(),
        versions=checkpoint.library_versions(),
        sources=sources or {},
    )


def _provenance(seconds: float, device: torch.device) -> dict[str, Any]:
    """Return what may differ between two runs with one card."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    _, world_size = processes.rank_and_world_size()
    return {
        "git_commit": _commit(),
        "training_seconds": seconds,
        "device": name,
        "processes": world_size,
    }


def _commit() -> str | None:
    """Return the git commit of the current folder; ``None`` outside a repository or where there is
    no git.
    """
    if shutil.which("git") is None:
        return None
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip() if git.returncode == 0 else None
