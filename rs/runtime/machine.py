"""What this machine can do, in words."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

import torch

LIBRARIES = ("rs", "torch", "torchvision", "numpy", "scipy")
MATRICES = ("amx_bf16", "avx512_bf16")
"""Instructions of a CPU for matrices in bfloat16 (/proc/cpuinfo)."""


def processor() -> str:
    """Return the name of the CPU, and its instructions for vectors and for matrices in bfloat16."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    pairs = (line.partition(":") for line in lines)
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = set(fields.get("flags", "").split())
    return name + "".join(f", {flag}" for flag in (*MATRICES, "avx512f", "avx2") if flag in flags)


def describe_machine(device: torch.device) -> dict[str, str]:
    """Return what certificates and trainings would run on, and with which versions."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processor": processor(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "compiler": _compiler() or "none",
        "versions": ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
    }


def warnings(device: torch.device) -> list[str]:
    """Return what will be slow or will not work here."""
    lines = []
    if device.type == "cpu" and not any(name in processor() for name in MATRICES):
        lines.append("this CPU has no instructions for bfloat16, which will be slow; use float32")
    if _compiler() is None:
        lines.append("there is no C++ compiler, so the engine compiled runs as folded; install g++ or clang")
    if torch.get_num_threads() > (os.cpu_count() or 1):
        lines.append("there are more threads than cores, which is slow; set OMP_NUM_THREADS")
    return lines


def _compiler() -> str | None:
    """Return the compiler that torch.compile finds: that of CXX, else g++ or clang++."""
    return shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
