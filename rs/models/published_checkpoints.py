"""Published checkpoints, as model folders of this project."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rs.data.meta import Meta
from rs.errors import InputError, InputWarning, printable
from rs.models import FirstLayer, checkpoint
from rs.models.checkpoint import ModelCard

AVERAGED = re.compile(r"(?<![a-z])(ema|swa|avg|averaged?|shadow|teacher)(?![a-z])")
"""Words in the names of averaged weights."""

NORMALIZER = re.compile(r"(^|\.)_?(?:(means?|mu)|stds?|sds?|sigmas?)$")
"""Ends of the names of a normalizer's tensors; its second group is there for a mean."""

NORMALIZER_TOLERANCE = 0.005
"""Constants that are equal to two decimals agree."""

COUNTER = "num_batches_tracked"
"""End of the name of a batch norm's counter, which no evaluation needs."""

MAX_SHOWN = 5
"""Names of entries that a line shows."""


@dataclass
class Weights:
    """The weights of a network in a checkpoint, and the names of what else it holds."""

    key: str  # dotted, with the prefix of their names, such as "module"; --key takes it
    network: dict[str, Tensor] = field(default_factory=dict)  # by the names of the network
    normalizer: dict[str, Tensor] = field(default_factory=dict)  # by the names in the file
    left: list[str] = field(default_factory=list)
    alternatives: list[str] = field(default_factory=list)  # keys of weights that fit as well

    def __str__(self) -> str:
        """Describe what was taken and what was left.

        >>> print(Weights("state_dict_ema.module", left=["epoch"]))
        took state_dict_ema.module (averaged weights); left epoch
        """
        text = f"took {self.key or 'all tensors'}"
        if AVERAGED.search(self.key):
            text += " (averaged weights)"
        if self.left:
            # averaged weights first, since they are often the better ones
            names = sorted(self.left, key=lambda name: not AVERAGED.search(name))
            text += f"; left {', '.join(names[:MAX_SHOWN])}"
            if len(names) > MAX_SHOWN:
                text += f" and {len(names) - MAX_SHOWN:,} more"
        if self.alternatives:
            text += f"; --key {' or '.join(self.alternatives)} takes other weights"
        return text


def import_checkpoint(
    path: Path,
    meta: Meta,
    architecture: str,
    normalization: FirstLayer,
    sigma: float,
    out: Path,
    force: bool = False,
    key: str | None = None,
) -> Weights:
    """Write the network of a published checkpoint as a model folder.

    Reads dicts of tensors by name, alone or inside another dict, that ``torch.save`` or safetensors
    wrote, without executing anything in them. Few hold the normalization, and a wrong one loads
    cleanly: Cohen's and Jeong's networks take ``mean-std``, MACER's ``none``, Salman's CIFAR-10
    networks mostly ``centre``.

    Args:
        path: The checkpoint.
        meta: The data set it classifies.
        architecture: A key of ``rs.models.architectures.ARCHITECTURES``.
        normalization: First layer: (x - mean) / std, x - mean, or x.
        sigma: Noise it was trained with, in pixels of [0, 1].
        out: The model folder.
        force: Whether an earlier import of a checkpoint of this name is replaced.
        key: Dotted key of the weights in the checkpoint; ``None`` finds them.
    Returns:
        What was taken and what was left.
    Raises:
        InputError: If the file is not such a checkpoint, does not fit the architecture, or ``out``
            must not be replaced.
    Warns:
        InputWarning: If the checkpoint has a normalizer that does not agree with ``normalization``.
    """
    source = {"checkpoint": printable(path.name), "normalization": normalization}
    card = imported_card(architecture, meta, normalization, sigma, source)
    checkpoint.check_model_folder(out, card, force)
    model = card.build()
    network = model.get_submodule("network")
    expected = network.state_dict()
    weights = read_network(path, expected, key)
    for name in expected:
        if name.endswith(COUNTER):  # old files lack them, and averaging makes fractions of them
            weights.network[name] = weights.network.get(name, expected[name]).to(torch.int64)
    checkpoint.fill(network, weights.network, str(path), architecture)
    _check_normalizer(weights.normalizer, card, path)
    checkpoint.save(out, model, card)
    return weights


def imported_card(
    architecture: str,
    meta: Meta,
    normalization: FirstLayer,
    sigma: float,
    hyperparameters: dict[str, Any],
) -> ModelCard:
    """Return the card of a network that another program trained, as :func:`import_checkpoint`."""
    channels = meta.shape[0]
    return ModelCard(
        architecture=architecture,
        shape=list(meta.shape),
        classes=list(meta.classes),
        mean=list(meta.mean) if normalization != "none" else [0.0] * channels,
        std=list(meta.std) if normalization == "mean-std" else [1.0] * channels,
        dataset=meta.name,
        method="imported",
        hyperparameters=hyperparameters,
        training={},
        sigma=sigma,
        seed=0,
        epochs=0,
        device="unknown",
        arithmetic="native",
        versions={},
    )


def read_network(path: Path, names: Collection[str], key: str | None = None) -> Weights:
    """Read the weights of a checkpoint that fit a network best, whatever their prefix.

    Of equally good ones those that are not averaged are taken, then those with the shorter prefix,
    then the first.

    Args:
        path: The checkpoint.
        names: The names of the network's tensors.
        key: Dotted key of the weights; ``None`` finds them.
    Raises:
        InputError: If the file is not a checkpoint, or none of its tensors has such a name.
    """
    content = _load(path)
    parameters = {name for name in names if not name.endswith(COUNTER)}
    candidates = []
    for name, entries in _dicts(content):
        state = {str(key): value for key, value in entries.items() if isinstance(value, Tensor)}
        for prefix, count in _prefixes(state, parameters).items():
            own_key = f"{name}.{prefix}".strip(".")
            rank = (count, not AVERAGED.search(own_key), -len(prefix))
            if key is None or f"{own_key}.".startswith(f"{key}."):
                candidates.append((rank, own_key, name, prefix, state))
    if not candidates:
        raise InputError(
            f"{path} must hold a dict of tensors by the names of the network, such as {min(names)}"
            f"{f', in {key}' if key else ''}; got {_shown(content)}; check --architecture and --key"
        )
    best, own_key, name, prefix, state = max(candidates, key=lambda candidate: candidate[0])
    weights = Weights(own_key)
    for tensor_name, tensor in state.items():
        own_name = tensor_name.removeprefix(prefix)
        is_constant = own_name not in names and _is_constant(tensor)
        if is_constant and NORMALIZER.search(tensor_name):
            weights.normalizer[tensor_name] = tensor
        elif tensor_name.startswith(prefix):
            weights.network[own_name] = tensor
        else:
            weights.left.append(tensor_name)
    weights.left += weights.normalizer
    for entry in content:
        is_around = f"{name}.".startswith(f"{entry}.")
        is_inside = not name and str(entry) in state
        if not (is_around or is_inside):
            weights.left.append(str(entry))
    weights.normalizer |= _stated_constants(content, name)
    for rank, other, *_ in candidates:
        if rank[0] == best[0] and other != own_key:
            weights.alternatives.append(other)
    return weights


def _load(path: Path) -> Any:
    """Read a file of ``torch.save`` or safetensors, without executing anything in it."""
    if not path.is_file():
        raise InputError(f"{path} must be a checkpoint file, but there is none; correct its name")
    if _is_safetensors(path):
        return checkpoint.read_state(path)
    try:
        _check_stored(path)
        with torch.serialization.safe_globals(_number_types()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice is for callers, not users
            with path.open("rb") as file:  # given a path, torch would go by its ending
                return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of any bytes makes torch raise anything
        raise InputError(
            f"{path} must be a checkpoint of tensors and plain values, but: {_reason(error)}"
        ) from error


def _is_safetensors(path: Path) -> bool:
    """Return whether a file starts as safetensors do, with a length and JSON, whatever its name."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _number_types() -> list[Any]:
    """Return what a pickle needs to hold NumPy's numbers; none of it runs code of the file."""
    scalar = np._core.multiarray.scalar  # type: ignore[attr-defined]
    codes = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
    kinds = {type(np.dtype(code)) for code in codes}
    old_name = "numpy.core.multiarray.scalar"  # of NumPy 1
    return [np.dtype, scalar, (scalar, old_name), *kinds]


def _dicts(content: Any, name: str = "", depth: int = 2) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield each dict in a checkpoint, with its dotted key."""
    if not isinstance(content, dict) or depth < 0:
        return
    yield name, content
    for key, value in content.items():
        yield from _dicts(value, f"{name}.{key}".lstrip("."), depth - 1)


def _is_constant(tensor: Tensor) -> bool:
    """Return whether a tensor may be a constant of a normalizer."""
    is_plain = tensor.layout == torch.strided and not tensor.is_meta
    return is_plain and tensor.is_floating_point() and tensor.numel() in (1, 3)


def _stated_constants(content: Any, taken: str) -> dict[str, Tensor]:
    """Return the constants of a normalizer that are stored beside the weights, by dotted key.

    They are lists or tensors. A single number is the noise level rather than a deviation.
    """
    constants = {}
    for prefix, entries in _dicts(content):
        for key, value in entries.items():
            if not NORMALIZER.match(str(key)):
                continue
            if isinstance(value, list | tuple) and all(isinstance(part, float) for part in value):
                constants[f"{prefix}.{key}".lstrip(".")] = torch.tensor(value)
            elif isinstance(value, Tensor) and value.ndim and prefix != taken:
                constants[f"{prefix}.{key}".lstrip(".")] = value
    return {name: value for name, value in constants.items() if _is_constant(value)}


def _prefixes(state: Collection[str], names: Collection[str]) -> Counter[str]:
    """Count the tensors of a state that have a name of the network after each prefix."""
    counts: Counter[str] = Counter()
    for key in state:
        words = key.split(".")
        for start in range(len(words)):
            if ".".join(words[start:]) in names:
                counts["".join(f"{word}." for word in words[:start])] += 1
    return counts


def _shown(content: Any) -> str:
    if not isinstance(content, dict):
        return type(content).__name__
    keys = [str(key)[:40] for key in content]
    return f"a dict with {', '.join(keys[:MAX_SHOWN]) or 'nothing'}"


def _check_normalizer(normalizer: dict[str, Tensor], card: ModelCard, path: Path) -> None:
    """Warn if a normalizer of the checkpoint is not the first layer of the model."""
    for name, tensor in normalizer.items():
        match = NORMALIZER.search(name)
        constants = card.mean if match and match[2] else card.std
        values = tensor.flatten().tolist()
        if not np.allclose(values, constants, rtol=0, atol=NORMALIZER_TOLERANCE):
            warnings.warn(
                f"{path} has its own normalizer, {name} = {_rounded(values)}, which is dropped; "
                f"the model has {_rounded(constants)}, so check --normalization",
                InputWarning,
                stacklevel=2,
            )


def _rounded(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _reason(error: Exception) -> str:
    """Say in a few words why torch cannot read a file, without its advice to run the code in it."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, pickle.UnpicklingError):
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code:
            return (
                f"it needs {code[1]}, and code in a file is not run here; save its weights alone, "
                "torch.save(model.state_dict(), FILE), where you trust it"
            )
    name = type(error).__name__
    return f"neither torch.save nor safetensors wrote it, or it is damaged ({name}); get it again"


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
                    f"{entry.filename} in it is compressed, which torch.save does not do; save "
                    "the weights with torch.save(model.state_dict(), FILE)"
                )
