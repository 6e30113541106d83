"""Checkpoints published by the field, as model folders of this project."""

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
"""In the published files the network is the second child of a container, or wrapped for several
GPUs, or both.
"""


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
        InputError: If the file is not such a checkpoint, or does not fit the architecture, or
            ``out`` holds something that is not replaced.
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
    networks = (
        [content[key] for key in ("state_dict", "net") if key in content]
        if isinstance(content, dict)
        else []
    )
    state = networks[0] if networks else None
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()
    ):
        held = type(content).__name__
        if isinstance(content, dict) and not networks:
            held = f"a dict with {', '.join(str(key)[:40] for key in [*content][:3]) or 'nothing'}"
        raise InputError(
            f"{path} must hold a dict with state_dict or net, of tensors by name, got {held}"
        )
    return {PREFIX.sub("", key): value for key, value in state.items() if not key.startswith("0.")}


def _reason(error: Exception) -> str:
    """Say in a few words why torch cannot read a file, without its advice to run the code in it."""
    if isinstance(error, ValueError):
        return str(error)
    code = (
        re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError)
        else None
    )
    damaged = f"torch.save did not write it, or it is damaged ({type(error).__name__})"
    return f"it needs {code[1]}, and no code of a file is run here" if code else damaged


def _check_stored(path: Path) -> None:
    """Check that nothing in a checkpoint is compressed, as torch writes it: a small file could fill
    the memory.

    Raises:
        ValueError: If something is.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        packed = [
            entry.filename
            for entry in archive.infolist()
            if entry.compress_type != zipfile.ZIP_STORED
        ]
    if packed:
        raise ValueError(f"{packed[0]} in it is compressed, which torch.save does not do")


def _complete(network: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of the model: the network's tensors, and the batch-norm counters that old
    files lack.
    """
    state = {f"network.{key}": value for key, value in network.items()}
    counters = {
        key: value for key, value in expected.items() if key.endswith("num_batches_tracked")
    }
    return {**counters, **state}
