"""Published checkpoints, as model folders of this project."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rs.data.prepared import Meta
from rs.errors import InputError
from rs.models import Normalisation, checkpoint
from rs.models.checkpoint import ModelCard

PREFIX = re.compile(r"^(1\.module\.|module\.|1\.)")
"""In published files the network is the second child of a container, wrapped for GPUs, or both."""


def import_checkpoint(
    path: Path,
    meta: Meta,
    architecture: str,
    normalisation: Normalisation,
    sigma: float,
    out: Path,
    force: bool = False,
) -> None:
    """Write the network of a published checkpoint as a model folder.

    Reads ``checkpoint.pth.tar`` (Cohen, Salman, Jeong and others: ``state_dict``) and MACER's
    ``EPOCH.pth`` (``net``), without executing anything in them. None of them holds the
    normalisation, and a wrong one loads cleanly: Cohen's and Jeong's networks take ``mean-std``,
    MACER's ``none``, Salman's CIFAR-10 networks mostly ``centre``.

    Args:
        path: The checkpoint.
        meta: The data set it classifies.
        architecture: A key of ``rs.models.architectures.ARCHITECTURES``.
        normalisation: First layer: (x - mean) / std, x - mean, or x.
        sigma: Noise it was trained with, in pixels of [0, 1].
        out: The model folder.
        force: Whether an earlier import of a checkpoint of this name is replaced.
    Raises:
        InputError: If the file is not such a checkpoint, does not fit the architecture, or ``out``
            must not be replaced.
    """
    channels = meta.shape[0]
    card = ModelCard(
        architecture=architecture,
        shape=list(meta.shape),
        classes=list(meta.classes),
        mean=list(meta.mean) if normalisation != "none" else [0.0] * channels,
        std=list(meta.std) if normalisation == "mean-std" else [1.0] * channels,
        dataset=meta.name,
        method="imported",
        hyperparameters={"checkpoint": path.name, "normalisation": normalisation},
        training={},
        sigma=sigma,
        seed=0,
        epochs=0,
        device="unknown",
        arithmetic="native",
        versions={},
    )
    checkpoint.check_model_folder(out, card, force)
    model = card.build()
    checkpoint.fill(
        model, _complete(read_network(path), model.state_dict()), str(path), architecture
    )
    checkpoint.save(out, model, card)


def read_network(path: Path) -> dict[str, Tensor]:
    """Read the weights of a checkpoint, under the network's own names."""
    if not path.is_file():
        raise InputError(f"{path} must be a checkpoint file, but there is none")
    try:
        _check_stored(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of any bytes makes torch raise anything
        raise InputError(
            f"{path} must be a checkpoint of tensors and plain values, but: {_reason(error)}"
        ) from error
    state = None
    if isinstance(content, dict):
        state = content.get("state_dict", content.get("net"))
    if not isinstance(state, dict) or not all(map(_is_named_tensor, state.items())):
        held = type(content).__name__
        if isinstance(content, dict) and state is None:
            keys = [str(key)[:40] for key in content]
            held = f"a dict with {', '.join(keys[:3]) or 'nothing'}"
        raise InputError(
            f"{path} must hold a dict with state_dict or net, of tensors by name, got {held}"
        )
    return {PREFIX.sub("", key): value for key, value in state.items() if not key.startswith("0.")}


def _is_named_tensor(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _reason(error: Exception) -> str:
    """Say in a few words why torch cannot read a file, without its advice to run the code in it."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, pickle.UnpicklingError):
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code:
            return f"it needs {code[1]}, and code in a file is not run here"
    return f"torch.save did not write it, or it is damaged ({type(error).__name__})"


def _check_stored(path: Path) -> None:
    """Check that a checkpoint is not compressed, since a small file could fill the memory.

    Raises:
        ValueError: If something in it is; ``torch.save`` compresses nothing.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(
                    f"{entry.filename} in it is compressed, which torch.save does not do"
                )


def _complete(network: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the model, with the batch-norm counters that old files lack."""
    counters = [key for key in expected if key.endswith("num_batches_tracked")]
    state = {key: expected[key] for key in counters}
    for key, value in network.items():
        state[f"network.{key}"] = value
    return state
