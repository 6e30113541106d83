"""Choosing the device: ``rs.runtime.device``."""

import os
import platform
import resource

import pytest
import torch

from rs.runtime import device
from tests.support.helpers import python, refuses

FAULTS = """
import ctypes, resource, torch
from rs.runtime.device import resolve_device, keep_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages

def faults():  # the fewest, since memory settles as tensors come and go
    found = []
    for _ in range(20):
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)  # 64 MB, more than glibc ever keeps by itself
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
    return min(found)

before = faults()
resolve_device("cpu")
print(before, faults(), keep_memory())
"""


def test_the_cpu_is_the_cpu_and_an_absent_device_is_refused():
    assert device.resolve_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "tpu9", "gpu", "meta"):
        with refuses(
            f"device must be auto, cpu or a CUDA device of this machine, got '{name}'",
        ):
            device.resolve_device(name)


def test_processes_are_dealt_out_over_the_gpus(monkeypatch):
    asked = []

    def zeros(*shape, device):
        asked.append(str(device))
        raise RuntimeError("there is no GPU here")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.zeros", zeros)
    for process in (6, 7):
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        with refuses("device must be auto, cpu or a CUDA device of this machine"):
            device.resolve_device("auto")
    assert asked == ["cuda:0", "cuda:1"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this malloc is not glibc's")
@pytest.mark.trust_only
def test_on_the_cpu_memory_is_kept_for_the_next_tensor(monkeypatch):
    for name in [one for one in os.environ if one.startswith("MALLOC_") or one == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    pages = 2**26 // resource.getpagesize()
    before, after, kept = python("-c", FAULTS).stdout.split()
    assert kept == "True"
    assert int(after) < pages / 100 < pages <= int(before)
