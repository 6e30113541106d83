"""Trained models on disk, ``model.safetensors`` and ``model.json``, read without running code."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn

from rs.errors import InputError, InputWarning
from rs.models import architectures
from rs.models.denoised import DENOISER_METHODS, DenoiserSize, with_denoiser
from rs.params import (
    MAX_CLASSES,
    PIXELS,
    Bounds,
    Finite,
    Length,
    NonNegativeCount,
    Positive,
    record,
    validated,
)
from rs.runtime import arithmetic, code_fingerprint
from rs.storage import files
from rs.storage.probe import PROBE_TOLERANCE, are_close

WEIGHTS, CARD = "model.safetensors", "model.json"

PROBE_IMAGES, PROBE_CLASSES = 4, 1000
"""Images of a :func:`probe`, and the most logits of each."""

ORIGIN = ("method", "dataset", "sigma", "seed", "architecture", "hyperparameters")
"""Keys of a card, of this version or another, that say which training it is of."""


@validated
class ModelCard:
    """Description of a model and of its training; written beside the weights as ``model.json``."""

    architecture: str
    shape: Annotated[list[Length], Field(min_length=1)]  # (C, H, W) of an image
    classes: Annotated[list[str], Field(min_length=1, max_length=MAX_CLASSES)]
    # of the normalization layer, per channel, in pixels of [0, 1]; empty without one
    mean: list[Finite]
    std: list[Positive]
    dataset: str
    method: str
    hyperparameters: dict[str, Any]
    training: dict[str, Any]
    sigma: Positive  # noise it was trained with, in the unit of its inputs
    seed: NonNegativeCount
    epochs: NonNegativeCount
    device: str
    arithmetic: arithmetic.Arithmetic
    versions: dict[str, str]
    # hashes of a user's source files, by module, as of ``architectures.USER_NETWORKS``
    code: dict[str, str] = field(default_factory=dict)
    # logits of a user's network for fixed images, as of `probe`
    probe: list[list[Finite]] = field(default_factory=list)
    bounds: Bounds = PIXELS  # of its inputs

    def build(self, seed: int | None = None) -> nn.Sequential:
        """Build the network the card describes, with fresh weights.

        Raises:
            InputError: If it is a user's network that is not registered.
        """
        model = architectures.build(
            self.architecture, self.shape, len(self.classes), self.mean, self.std, seed
        )
        if self.method in DENOISER_METHODS:
            if self.architecture not in architectures.USER_NETWORKS:
                raise InputError(
                    f"{self.method} must have a classifier that is trained already, got the "
                    f"architecture {self.architecture}; give --network"
                )
            size = record(
                DenoiserSize,
                self.hyperparameters,
                f"{self.method} must have a size",
                "train it again",
            )
            model.network = with_denoiser(
                model.get_submodule("network"), self.shape[0], size, self.sigma, seed
            )
        return model

    def changed_code(self) -> dict[str, str | None]:
        """Return the modules whose code has changed since the training, with their new hashes."""
        current = architectures.USER_NETWORKS.get(self.architecture, {})
        changed = {}
        for module, code in sorted(self.code.items()):
            if code != current.get(module):
                changed[module] = current.get(module)
        return changed


def check_model_folder(folder: Path, card: ModelCard, force: bool = True) -> None:
    """Check that the model of ``card`` may be written into ``folder``.

    The folder must be new or hold an earlier run of the same model: a training run of one method on
    one data set at one noise level and seed, or an import of one checkpoint. Its hyperparameters
    and the keys of its card may differ. Without ``force`` the folder must be new, or without
    weights, as a process that was killed may leave it.

    Raises:
        InputError: If it holds another model or something else, which would be lost.
    """
    force = force or not (folder / WEIGHTS).is_file()
    new, values = origin(asdict(card)), files.json_values(folder / CARD)
    old = origin(values) if values.keys() >= {*ORIGIN} else None
    files.check_output(
        folder, f"the model {new}", old == new or files.is_empty(folder), content=old, force=force
    )


def origin(card: Mapping[str, Any]) -> str:
    """Return method, data set, noise, seed and, if it is a user's, network of a card as text."""
    text = f"{card['method']} of {card['dataset']}, sigma {card['sigma']}, seed {card['seed']}"
    network = str(card["architecture"])
    if ":" in network:
        text += f", network {network}"
    hyperparameters = card["hyperparameters"]
    if isinstance(hyperparameters, dict) and hyperparameters.get("checkpoint"):
        text += f", from {hyperparameters['checkpoint']}"
    return text


def save(folder: Path, model: nn.Module, card: ModelCard) -> None:
    """Write card and weights into ``folder``; equal models make equal bytes.

    The card is first: where the weights do not follow, nothing loads it, and
    :func:`check_model_folder` knows whose it is.
    """
    state = {}
    for key, value in model.state_dict().items():
        state[key] = value.detach().cpu().contiguous().clone()  # tensors may share memory
    content = safetensors.torch.save(state)
    (folder / WEIGHTS).unlink(missing_ok=True)
    values = asdict(card)
    for name in ("code", "probe"):  # of users' networks
        if not values[name]:
            del values[name]
    if card.bounds == PIXELS:
        del values["bounds"]
    files.write_json(folder / CARD, values)
    files.write_bytes(folder / WEIGHTS, content)


def read_card(folder: Path) -> ModelCard:
    """Read ``model.json``.

    Raises:
        InputError: If it is missing, is not JSON, or has keys or values that a card cannot have.
    """
    return files.read_as(
        ModelCard,
        folder / CARD,
        "the card of a model",
        "make the model again, into the same folder",
    )


def load_model(folder: Path) -> tuple[nn.Sequential, ModelCard]:
    """Load a model in eval mode, on the CPU, and its card.

    Raises:
        InputError: If a file is missing or damaged, the weights do not fit or are not finite, or
            a user's network gives other logits than when it was trained.
    Warns:
        InputWarning: If that code has changed, but gives the logits of the training.
    """
    card = read_card(folder)
    architectures.check_architecture(card.architecture)
    changed = ", ".join([*card.changed_code()][:5])
    refusal = (
        f"the source of {card.architecture} must be that of the training, but {changed} changed; "
        "restore it, or train again"
    )
    if changed and not card.probe:
        raise InputError(refusal)
    try:
        model = card.build()
        fill(model, read_state(folder / WEIGHTS), str(folder / WEIGHTS), card.architecture)
    except InputError as error:
        if changed:
            raise InputError(f"{refusal} ({error})") from error
        raise
    model.eval()
    if card.probe and not are_close(probe(model, card.shape), card.probe, _tolerance(model)):
        if changed:
            raise InputError(refusal)
        raise InputError(
            f"{card.architecture} must give the same logits as in training, but gives others with "
            f"the weights in {folder}: it depends on something that is not saved, such as a file, "
            "code in a notebook or layers in a plain list; restore it, or register all layers and "
            "train again, with --restart (restart=True in Python)"
        )
    if changed:
        warnings.warn(
            f"{changed} changed since {folder} was trained; the logits of {PROBE_IMAGES} stored "
            "images are the same, so the model is loaded",
            InputWarning,
            stacklevel=2,
        )
    return model, card


def probe(
    model: nn.Module, shape: Sequence[int], device: torch.device | str = "cpu"
) -> list[list[float]]:
    """Return the logits of fixed random images; none if not all are finite.

    They tell models apart whose weights no fingerprint sees: weights in files and caches, in
    variables that its functions read, or in compiled code. Of many classes, those of the first
    :data:`PROBE_CLASSES` are enough.

    Args:
        model: In eval mode; images (N, C, H, W) -> logits (N, K).
        shape: (C, H, W) of an image.
        device: Where the model is.
    """
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(PROBE_IMAGES, *shape, generator=rng, dtype=torch.float32, device="cpu")
    with torch.no_grad():
        logits = model(images.to(device))[:, :PROBE_CLASSES].float()
    return logits.tolist() if logits.isfinite().all() else []


def _tolerance(model: nn.Module) -> float:
    """Return the largest relative difference of logits that count as equal, by dtype of weights."""
    types = {value.dtype for value in model.parameters() if value.is_floating_point()}
    coarsest = max(torch.finfo(dtype).eps for dtype in types | {torch.float32})
    return PROBE_TOLERANCE * math.sqrt(coarsest / torch.finfo(torch.float32).eps)


def read_state(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; train the model first")
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise InputError(
            f"{path} must be a safetensors file, but: {error}; make it again, or write a function "
            "that builds the network and loads this file (docs/certify.md)"
        ) from error


def fill(model: nn.Module, state: dict[str, Tensor], source: str, architecture: str) -> None:
    """Copy a state into a model, after checking that it fits and is finite there.

    Args:
        model: Filled in place.
        state: Tensors by name.
        source: Origin of the tensors, for messages.
        architecture: Name of the network, for messages.
    Raises:
        InputError: If names, shapes or kinds of numbers do not fit, or a tensor holds NaN or
            infinity, or what would become infinity.
    """
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    actual = {key: tuple(value.shape) for key, value in state.items()}
    unlike = []
    for key in sorted(expected | actual):
        if expected.get(key) != actual.get(key):
            shapes = f"expected {expected.get(key, 'none')}, got {actual.get(key, 'none')}"
            unlike.append(f"{key}: {shapes}")
    if unlike:
        raise InputError(
            f"{source} must hold the weights of {architecture}, but {len(unlike)} tensors do not "
            f"fit; first {', '.join(unlike[:3])}; give the architecture it was saved with, and a "
            "data set with its classes and channels"
        )
    converted = {}
    for key, filled in model.state_dict().items():
        value = _as(filled.dtype, state[key], f"{source}: {key}")
        if not value.isfinite().all():
            raise InputError(
                f"{source} must hold finite weights, but {key} has NaN or infinity in "
                f"{value.dtype}; train the model again"
            )
        converted[key] = value
    model.load_state_dict(converted)


def _as(dtype: torch.dtype, value: Tensor, name: str) -> Tensor:
    """Return a tensor in the precision of the model, if it has the same kind of numbers."""
    same_kind = value.is_floating_point() if dtype.is_floating_point else value.dtype == dtype
    if not same_kind or value.layout != torch.strided or value.is_meta or value.is_quantized:
        kind = "floating-point" if dtype.is_floating_point else "int64"
        what = f"{value.dtype}, {value.layout} on {value.device}".replace("torch.", "")
        raise InputError(
            f"{name} must be a dense tensor of {kind} numbers, got {what}; save the weights as "
            "they were trained"
        )
    return value.to(dtype)


def library_versions() -> dict[str, str]:
    """Return the versions that results depend on: Python (without patch), NumPy and torch."""
    python = code_fingerprint.series()["python"]
    return {"python": python, "numpy": np.__version__, "torch": torch.__version__}
