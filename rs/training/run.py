"""The stage ``train``, from files to files: train a model into its folder."""

from __future__ import annotations

import inspect
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rs import params
from rs.data import images
from rs.data.prepared import Images
from rs.errors import InputError
from rs.methods import EVERY_METHOD
from rs.models import architectures, checkpoint
from rs.models.checkpoint import ModelCard
from rs.models.fingerprint import model_fingerprint
from rs.runtime import arithmetic, code_fingerprint, processes, scratch
from rs.runtime.device import limit_threads, precision_on
from rs.runtime.progress import say
from rs.storage import files
from rs.training import start, warnings
from rs.training.history import HISTORY, TIMING, Progress
from rs.training.image_votes import read_targets
from rs.training.pretraining import make_targets, pretrained
from rs.training.recipe import Recipe, RunOptions
from rs.training.trainer import Trainer

PROVENANCE = "provenance.json"


def train_model(
    recipe: Recipe,
    folder: Path,
    options: RunOptions,
    *,
    out: Path,
    log: Path,
    restart: bool = False,
) -> None:
    """Train a recipe on the data set in ``folder``.

    Writes the model into ``out`` (a function of the parameters and the number of processes, on one
    kind of device), and into ``log`` its ``history.csv``, its ``timing.csv`` (training seconds so
    far; the line of epoch 0 is of what comes before the first epoch) and ``provenance.json``
    (model, git commit, seconds). A training that was killed continues from its last checkpoint.
    Under torchrun the processes train one model together; the first one reads the checkpoint and
    writes.

    Args:
        recipe: What to train, and how.
        folder: A prepared data set.
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
    train_on(recipe, *_splits(recipe, folder), options, out=out, log=log, restart=restart)


def train_on(
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

    Everything else is as for :func:`train_model`.
    """
    limit_threads(train.meta.shape)
    is_own = recipe.architecture in architectures.USER_NETWORKS
    if is_own:
        warnings.warn_of_imbalance(train)
        warnings.warn_of_copies(train, evaluation)
    targets = _given_targets(recipe, train, options)
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
    model = start.initial(card, recipe.weights, options)
    is_first_process = processes.is_first_process()
    identity = _identity(card, train, options, model)
    inputs = _inputs(train, options, model)
    has_model = (out / checkpoint.WEIGHTS).is_file()
    if has_model and not restart:
        is_unfinished = scratch.has_scratch_folder(identity)
        _check_finished(out, log, card, inputs, is_unfinished)
        if not is_unfinished:
            if is_first_process:
                say(f"complete already: {out}")
            return
    work: AbstractContextManager[Path | None] = nullcontext()
    if is_first_process:
        work = _scratch_folder(identity, out, log)
    backend = "nccl" if options.device.type == "cuda" else "gloo"
    with work as unfinished, processes.process_group(backend):
        model = model.to(options.device)
        if is_own:
            start.check_trainable(model, recipe, train.meta, options)
        seconds_before = 0.0
        if recipe.warm_start is not None:
            file = None if unfinished is None else unfinished / "warm-start.pt"
            warm, seconds = pretrained(model, recipe.warm_start, train, options, file)
            model.load_state_dict(warm.state_dict())
            seconds_before += seconds
        if recipe.targets is not None and targets is None:
            targets, seconds = make_targets(
                recipe.targets, recipe.weights, card, train, options, unfinished
            )
            seconds_before += seconds
        if options.seconds is not None:
            options = replace(options, seconds=max(options.seconds - seconds_before, 0.0))
        trainer = Trainer(
            model, recipe.method, train, evaluation, recipe.training, options, targets
        )
        progress = trainer.run(None if unfinished is None else unfinished / "checkpoint.pt")
        if is_first_process:
            training = card.training | {"epochs": progress.epoch}  # which --seconds decides
            card_of_run = replace(card, epochs=progress.epoch, training=training)
            if is_own:
                logits = checkpoint.probe(trainer.trained, card.shape)
                card_of_run = replace(card_of_run, probe=logits)
            checkpoint.save(out, trainer.trained, card_of_run)
            whose = {
                "model": checkpoint.origin(asdict(card)),
                "classifier": model_fingerprint(trainer.trained),
                "inputs": inputs,
            }
            _write_logs(log, whose, progress, seconds_before, options.device)


@contextmanager
def _scratch_folder(identity: dict[str, Any], out: Path, log: Path) -> Iterator[Path]:
    """Yield the scratch folder of a training, while no other one writes into its outputs."""
    with (
        scratch.sole_writer(out),
        scratch.sole_writer(log),
        scratch.scratch_folder(identity) as unfinished,
    ):
        yield unfinished


def is_finished(recipe: Recipe, folder: Path, options: RunOptions, *, out: Path) -> bool:
    """Return whether :func:`train_model` with these arguments has made the model in ``out``.

    The device, the arithmetic and the versions of libraries do not count.

    Raises:
        InputError: If the folder holds something that a training would not replace.
    """
    train, _ = _splits(recipe, folder)
    card = _card(recipe, train, options)
    checkpoint.check_model_folder(out, card)
    if not (out / checkpoint.WEIGHTS).is_file():
        return False
    saved = _settings(files.json_values(out / checkpoint.CARD))
    if _first_difference(saved, _settings(asdict(card))) is not None:
        return False
    model = start.initial(card, recipe.weights, options)
    return not scratch.has_scratch_folder(_identity(card, train, options, model))


def _check_finished(
    out: Path, log: Path, card: ModelCard, inputs: dict[str, Any], is_unfinished: bool
) -> None:
    """Check that the finished model in ``out`` is the one of this training.

    A process that was killed before it wrote its logs has left the model without them.

    Raises:
        InputError: If it is another model, or its log is not in ``log``.
    """
    old = _settings(files.json_values(out / checkpoint.CARD))
    new = _settings(asdict(card))
    if inputs["seconds"] is not None:  # they decide the epochs
        for settings in (old, new):
            settings.pop("training.epochs", None)
            settings.pop("epochs", None)
    provenance = files.json_values(log / PROVENANCE)
    if not provenance and not is_unfinished and _first_difference(old, new) is None:
        raise InputError(
            f"{log} must hold the log of the finished model in {out}, but has no {PROVENANCE}; "
            "name the --log of its training, or give --restart to train it again"
        )
    if provenance:
        recorded = provenance.get("inputs")
        old |= recorded if isinstance(recorded, dict) else {}
        new |= inputs
    difference = _first_difference(old, new)
    if difference is not None:
        raise InputError(
            f"{out} must be new or a model with the settings of this command, but holds a finished "
            f"one with {difference}; give --restart to replace it, or choose another --out"
        )


def _settings(card: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a card by name; the values of its tables as ``table.key``.

    The device, the arithmetic and the versions of libraries do not count, nor do comments in a
    user's code.
    """
    settings = {"bounds": params.describe_bounds(params.PIXELS)}
    for name, value in card.items():
        if name == "bounds":
            value = params.describe_bounds(value)
        if name in ("device", "arithmetic", "versions", "sources", "probe"):
            continue
        if not isinstance(value, dict):
            settings[name] = value
            continue
        for key, item in value.items():
            settings[f"{name}.{key}"] = item
    return settings


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return the first setting in which two models differ, as text; ``None`` if they do not."""
    for name in old | new:
        if old.get(name) != new.get(name):
            return f"{name} {old.get(name)}, not {new.get(name)}"
    return None


def _given_targets(recipe: Recipe, train: Images, options: RunOptions) -> Tensor | None:
    """Return the targets of the file that is given; ``None`` without a file."""
    if options.targets is None:
        return None
    if recipe.targets is None:
        raise InputError(
            f"--targets is for methods that need targets, which {recipe.name} does not; leave it "
            "out"
        )
    return read_targets(options.targets, train)


def _splits(recipe: Recipe, folder: Path) -> tuple[Images, Images]:
    """Return the images to train on and those of the quick ACR, never test images of a user."""
    train = images.load_images(folder, "train")
    if "validation" in train.meta.sizes:
        return train, images.load_images(folder, "validation")
    if recipe.architecture in architectures.USER_NETWORKS and recipe.training.eval_every:
        return train.split(images.VALIDATION_SHARE)
    # the ACRs of a study's curves are of test images, because nothing is chosen by them
    return train, images.load_images(folder, "test")


def _identity(
    card: ModelCard, train: Images, options: RunOptions, model: nn.Module
) -> dict[str, Any]:
    """Return what names unfinished work.

    Another start, images, settings, code or number of processes do not continue it.
    """
    code = code_fingerprint.code_hash(
        "rs/training/run.py",
        "rs/methods/gaussian.py",  # of what may come before a training
        method=EVERY_METHOD[card.method],
    )
    identity: dict[str, Any] = {
        "train": asdict(card),
        "images": train.fingerprint,
        "code": code,
    }
    if options.seconds is not None:
        identity["seconds"] = options.seconds
    _, world_size = processes.rank_and_world_size()
    if world_size > 1:
        identity["processes"] = world_size
    if card.architecture in architectures.USER_NETWORKS:
        identity["start"] = model_fingerprint(model)
        identity |= _sources_in_main(model)
    return identity


def _inputs(train: Images, options: RunOptions, model: nn.Module) -> dict[str, Any]:
    """Return what a model depends on besides its card: images, start, time and processes."""
    return {
        "images": train.fingerprint,
        "start": model_fingerprint(model),
        "seconds": options.seconds,
        "processes": processes.rank_and_world_size()[1],
    }


def _sources_in_main(model: nn.Module) -> dict[str, str]:
    """Return the sources of the layers that a script or notebook defines, which no card has."""
    layers = {type(layer) for layer in model.modules() if type(layer).__module__ == "__main__"}
    sources = {}
    for layer in layers:
        with suppress(OSError, TypeError):  # it was typed into an interpreter
            sources[layer.__qualname__] = inspect.getsource(layer)
    return sources


def _write_logs(
    log: Path,
    whose: dict[str, Any],
    progress: Progress,
    seconds_before: float,
    device: torch.device,
) -> None:
    """Write the logs of a training.

    The first file says whose they are, in case a process is killed before it writes the others.
    """
    seconds = progress.seconds + seconds_before
    files.write_json(log / PROVENANCE, whose | _provenance(seconds, device))
    files.write_csv(log / "history.csv", HISTORY, progress.history)
    timing = []
    if seconds_before:
        timing.append({"epoch": 0, "seconds": seconds_before})
    for row in progress.timing:
        timing.append(row | {"seconds": row["seconds"] + seconds_before})
    files.write_csv(log / "timing.csv", TIMING, timing)


def _check_logs(log: Path, card: ModelCard) -> None:
    """Check that the folder ``log`` has no logs of another model."""
    new = checkpoint.origin(asdict(card))
    old = files.json_values(log / PROVENANCE).get("model")
    there = None if old is None else f"that of {old}"
    files.check_output(
        log, f"the log of {new}", old == new or files.is_empty(log), there=there, option="--log"
    )


def _card(recipe: Recipe, train: Images, options: RunOptions) -> ModelCard:
    meta = train.meta
    user_code = architectures.USER_NETWORKS.get(recipe.architecture)
    is_own = user_code is not None  # a user's network has its own normalization
    training = recipe.training.card()
    training["precision"] = precision_on(options.device, recipe.training.precision)
    training |= start.run_details(recipe, options)
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
        sources=user_code.sources if user_code else {},
        code=user_code.code if user_code else {},
        bounds=options.bounds,
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
    """Return the git commit of the current folder; ``None`` without a repository or git."""
    if shutil.which("git") is None:
        return None
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip() if git.returncode == 0 else None
