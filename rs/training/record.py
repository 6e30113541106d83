"""What a training run leaves next to its model: logs, and whether they are those of a command."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rs import params
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.checkpoint import ModelCard
from rs.models.fingerprint import model_fingerprint
from rs.runtime import processes
from rs.storage import files
from rs.training.history import HISTORY, TIMING, Progress
from rs.training.recipe import RunOptions

PROVENANCE = "provenance.json"


def check_finished(
    out: Path, log: Path, card: ModelCard, inputs: dict[str, Any], is_unfinished: bool
) -> None:
    """Check that the finished model in ``out`` is the one of this training.

    A process that was killed before it wrote its logs has left the model without them.

    Raises:
        InputError: If it is another model, or its log is not in ``log``.
    """
    old = settings_of(files.json_values(out / checkpoint.CARD))
    new = settings_of(asdict(card))
    if inputs["seconds"] is not None:  # they decide the epochs
        for settings in (old, new):
            settings.pop("training.epochs", None)
            settings.pop("epochs", None)
    provenance = files.json_values(log / PROVENANCE)
    if not provenance and not is_unfinished and first_difference(old, new) is None:
        raise InputError(
            f"{log} must hold the log of the finished model in {out}, but has no {PROVENANCE}; "
            "name the --log of its training, or give --restart to train it again"
        )
    if provenance:
        recorded = provenance.get("inputs")
        old |= recorded if isinstance(recorded, dict) else {}
        new |= inputs
    difference = first_difference(old, new)
    if difference is not None:
        raise InputError(
            f"{out} must be new or a model with the settings of this command, but holds a finished "
            f"one with {difference}; give --restart (restart=True in Python) to replace it, or "
            "choose another --out"
        )


def settings_of(card: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a card by name; the values of its tables as ``table.key``.

    The device, the arithmetic and the versions of libraries do not count, nor do comments in a
    user's code.
    """
    settings = {"bounds": params.describe_bounds(card.get("bounds", params.PIXELS))}
    for name, value in card.items():
        if name in ("bounds", "device", "arithmetic", "versions", "probe"):
            continue
        if not isinstance(value, dict):
            settings[name] = value
            continue
        for key, item in value.items():
            settings[f"{name}.{key}"] = item
    return settings


def first_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return the first setting in which two models differ, as text; ``None`` if they do not.

    Hashes are shortened.
    """
    for name in old | new:
        if old.get(name) != new.get(name):
            return files.HASH.sub(r"\1", f"{name} {old.get(name)}, not {new.get(name)}")
    return None


def inputs_of(train: Images, options: RunOptions, model: nn.Module) -> dict[str, Any]:
    """Return what a model depends on besides its card: images, start, time and processes."""
    return {
        "images": train.fingerprint,
        "start": model_fingerprint(model),
        "seconds": options.seconds,
        "processes": processes.rank_and_world_size()[1],
    }


def write_logs(
    log: Path,
    identity: dict[str, Any],
    progress: Progress,
    seconds_before: float,
    device: torch.device,
) -> None:
    """Write the logs of a training run.

    The first file says whose they are, in case a process is killed before it writes the others. It
    also says what may differ between two runs with one card.
    """
    provenance = {
        "git_commit": _commit(),
        "training_seconds": progress.seconds + seconds_before,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processes": processes.rank_and_world_size()[1],
    }
    files.write_json(log / PROVENANCE, identity | provenance)
    files.write_csv(log / "history.csv", HISTORY, progress.history)
    timing = []
    if seconds_before:
        timing.append({"epoch": 0, "seconds": seconds_before})
    for row in progress.timing:
        timing.append(row | {"seconds": row["seconds"] + seconds_before})
    files.write_csv(log / "timing.csv", TIMING, timing)


def check_logs(log: Path, card: ModelCard) -> None:
    """Check that the folder ``log`` has no logs of another model."""
    new = checkpoint.origin(asdict(card))
    old = files.json_values(log / PROVENANCE).get("model")
    content = None if old is None else f"that of {old}"
    files.check_output(
        log, f"the log of {new}", old == new or files.is_empty(log), content=content, option="--log"
    )


def _commit() -> str | None:
    """Return the git commit of the current folder; ``None`` without a repository or git."""
    if shutil.which("git") is None:
        return None
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip() if git.returncode == 0 else None
