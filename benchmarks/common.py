"""What the measurements share: networks, the machine they ran on, timing side by side."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

CLASSES, SIGMA, N0, ALPHA = 10, 0.25, 100, 0.001
ROUNDS = 3
"""Default number of rounds, of which the median is taken."""

ENGINES = [
    ("plain", "float32"),
    ("folded", "float32"),
    ("compiled", "float32"),
    ("plain", "bfloat16"),
    ("folded", "bfloat16"),
    ("compiled", "bfloat16"),
    ("quantized", "int8"),
]
"""Engines and their precisions."""


def engines_on(device: torch.device) -> list[tuple[str, str]]:
    """Return the engines that a device has, with their precisions."""
    if device.type == "cpu":
        return list(ENGINES)
    return [(engine, precision) for engine, precision in ENGINES if precision != "int8"]


def unpack_rows(archives: Path, folder: Path) -> None:
    """Unpack the committed rows of each study into a folder of its name."""
    for path in sorted(archives.glob("*/*.tar.xz")):
        shutil.unpack_archive(path, folder / path.parent.name, filter="data")


Name = TypeVar("Name", bound=Hashable)


class Architecture(StrEnum):
    """Networks that are measured, each with its shape of images."""

    smallnet = "smallnet"
    resnet8 = "resnet8"
    fastnet = "fastnet"
    resnet20 = "resnet20"
    resnet110 = "resnet110"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image."""
        return (1, 8, 8) if self == Architecture.smallnet else (3, 32, 32)


def network(
    architecture: Architecture, device: torch.device, seed: int = 0
) -> tuple[nn.Module, Tensor]:
    """Return an untrained network, whose batch norms have seen noisy images, and an image."""
    import torch

    from rs.models import architectures

    channels = architecture.shape[0]
    model = architectures.build(
        architecture, architecture.shape, CLASSES, [0.5] * channels, [0.25] * channels, seed
    )
    rng = torch.Generator().manual_seed(0)
    seen = torch.rand(256, *architecture.shape, generator=rng)
    with torch.no_grad():
        for part in seen.split(64):
            model(part + SIGMA * torch.randn(part.shape, generator=rng))
    return model.eval().to(device), seen[0].to(device)


def markdown_line(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def evenly(count: int, size: int) -> list[int]:
    """Return ``count`` indices, spread evenly over ``size`` images; all if there are fewer."""
    count = min(count, size)
    return [round(number * size / count) for number in range(count)]


@contextmanager
def torchs_defaults() -> Iterator[None]:
    """Compute convolutions as torch does by default on a GPU: in TF32, as in the standard code."""
    import torch

    conv = torch.backends.cudnn.conv
    ours = conv.fp32_precision
    conv.fp32_precision = "tf32"
    try:
        yield
    finally:
        conv.fp32_precision = ours


def side_by_side(
    ways: Mapping[Name, Callable[[], object]], rounds: int, device: str = "cpu"
) -> dict[Name, float]:
    """Return the median seconds of each way over rounds in which all ways take turns."""
    seconds: dict[Name, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(timed(way, device))
    return {name: median(values) for name, values in seconds.items()}


def timed(way: Callable[[], object], device: str = "cpu") -> float:
    """Return the seconds of one call, until the device has finished."""
    wait(device)
    begun = time.perf_counter()
    way()
    wait(device)
    return time.perf_counter() - begun


def wait(device: str) -> None:
    """Wait until the device has finished."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def processor() -> str:
    """Return the name of the CPU, and its instructions for vectors and bfloat16 matrices."""
    info = Path("/proc/cpuinfo")
    fields = {}
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    known = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags]
    return ", ".join([name, *known])


def machine(device: str = "cpu") -> str:
    """Return one line: the machine, versions and date of a measurement."""
    import torch

    name = torch.cuda.get_device_name() if device != "cpu" else processor()
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{name}; {threads}; {versions}; {date.today()}"
