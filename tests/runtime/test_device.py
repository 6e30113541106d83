"""Choosing the device: ``rs.runtime.device``."""

import os
import platform
import resource
import subprocess
import sys

import pytest
import torch

from rs.errors import InputError
from rs.runtime import device
from tests.support.helpers import ROOT, python

FAULTS = """
import ctypes, resource, torch
from rs.runtime.device import device_named, keep_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages

def faults():  # the fewest, since memory settles as tensors come and go
    found = []
    for _ in range(20):
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)  # 64 MB, more than glibc ever keeps by itself
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
    return min(found)

before = faults()
device_named("cpu")
print(before, faults(), keep_memory())
"""

TAKES = """
import os, sys
from rs.runtime.device import free_gpu

for line in sys.stdin:
    if not os.fork():
        print(free_gpu(line.split()), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """GPUs that other processes see as taken, by the lock files of this one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(device, "_locks", [])
    yield device._locks
    for lock in device._locks:
        os.close(lock)


@pytest.fixture
def in_another_process(tmp_path):
    """The GPU that a process takes which begins then, has taken none before, and ends at once."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", TAKES], env=environment, **pipes) as process:

        def take(*names):
            process.stdin.write(" ".join(names) + "\n")
            return int(process.stdout.readline())

        yield take


def test_the_cpu_is_the_cpu_and_an_absent_device_is_refused():
    assert device.device_named("cpu") == torch.device("cpu")
    for name in ("cuda:99", "tpu9", "gpu", "meta"):
        with pytest.raises(InputError, match=f"device must be auto, cpu or a CUDA device that is here, got '{name}'"):
            device.device_named(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_auto_is_the_cpu():
    assert device.device_named("auto") == torch.device("cpu")


def test_each_process_takes_a_gpu_of_its_own_and_gives_it_back_when_it_ends(taken, in_another_process):
    assert [device.free_gpu("abc") for _ in range(2)] == [0, 1]
    assert in_another_process("a", "b", "c") == 2
    assert in_another_process("a", "b", "c") == 2  # the one before has ended
    assert in_another_process("b", "c") == 1  # which sees two of the GPUs alone
    os.close(taken.pop(0))
    assert in_another_process("a", "b", "c") == 0


def test_where_all_are_taken_processes_are_dealt_out(taken, monkeypatch):
    assert [device.free_gpu("ab") for _ in range(2)] == [0, 1]
    for number in (6, 7):
        monkeypatch.setattr("os.getpid", lambda number=number: number)
        assert device.free_gpu("ab") == number % 2


def test_a_single_gpu_is_shared_without_a_lock(tmp_path, taken):
    assert [device.free_gpu("a"), device.free_gpu("a")] == [0, 0]
    assert taken == [] == list(tmp_path.iterdir())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this malloc is not glibc's")
def test_on_the_cpu_memory_is_kept_for_the_next_tensor_unless_the_environment_tunes_malloc(monkeypatch):
    for name in [one for one in os.environ if one.startswith("MALLOC_") or one == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    pages = 2**26 // resource.getpagesize()
    before, after, kept = python("-c", FAULTS).stdout.split()
    assert kept == "True"
    assert int(after) < pages / 100 < pages <= int(before)
    before, after, kept = python("-c", FAULTS, MALLOC_TOP_PAD_="131072").stdout.split()
    assert kept == "False"
    assert pages <= min(int(before), int(after))


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: pytest.fail("malloc is tuned"))
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert not device.keep_memory()
