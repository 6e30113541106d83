"""What is measured in a process of its own: ``benchmarks.apart``."""

import multiprocessing
import os
import signal

import pytest
import torch

from benchmarks.apart import apart

pytestmark = pytest.mark.trust_only

CPU = torch.device("cpu")


def build(device, word):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    return {
        "where": lambda: (os.getpid(), torch.get_num_threads()),
        7: lambda: f"{device}, {word}",
        "raises": lambda: 1 / 0,
        "dies": die,
    }


def test_ways_run_in_another_process_with_as_many_threads_until_the_end():
    with apart(CPU, build, "word") as ways:
        assert list(ways) == ["where", 7, "raises", "dies"]
        process, threads = ways["where"]()
        assert process == ways["where"]()[0] != os.getpid()
        assert threads == torch.get_num_threads()
        assert ways[7]() == "cpu, word"
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize(("name", "code"), [("raises", 1), ("dies", -9)])
def test_a_process_that_ends_is_an_error_that_leaves_nothing_behind(name, code):
    with (
        pytest.raises(RuntimeError, match=f"must not end, but did, with exit code {code}"),
        apart(CPU, build, "word") as ways,
    ):
        ways[name]()
    assert not multiprocessing.active_children()
