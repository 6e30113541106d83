"""Portable arithmetic uses no operation of torch whose last bits depend on the maker of the
processor.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rs.certification.certify_pool import PoolSettings, certify_pool
from rs.methods import METHODS
from rs.runtime.arithmetic import PORTABLE
from rs.smoothing.settings import SmoothingOptions
from tests.support.helpers import generator, trainer
from tests.support.tiny_pool import CERTIFICATION, CPU, solve

PROCESSOR_DEPENDENT = ("sqrt", "log10", "atan", "tan")
"""Operations of torch that code must not use under portable arithmetic.

``log`` in float64 and ``x ** 0.5`` are not allowed either. On a CPU they call the vector functions
of MKL. Even where ``MKL_CBWR`` is ``COMPATIBLE``, these begin with the instruction RSQRTPS or
RCPPS, whose result differs between Intel and AMD. Norms, the layers of a network, ``rsqrt``, and
``log`` in float32 do not take this path.
"""


def is_processor_dependent(operation, arguments):
    """Whether the last bits of an operation of torch differ between Intel and AMD.

    Its name is ``sqrt``, ``sqrt_`` or ``_foreach_sqrt``; its first argument is a tensor or a list
    of tensors.
    """
    name = operation.removeprefix("_foreach_").rstrip("_")
    if name == "log":
        tensors = arguments[0] if isinstance(arguments[0], list | tuple) else [arguments[0]]
        return any(tensor.dtype == torch.float64 for tensor in tensors)
    if name == "pow":
        return abs(float(arguments[1])) == 0.5
    return name in PROCESSOR_DEPENDENT


class WatchedOperations(TorchDispatchMode):
    """Collects the operations that run, in forward and backward passes, and depend on the
    processor.
    """

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if is_processor_dependent(function.overloadpacket.__name__, args):
            self.found.add(str(function))
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def portable(monkeypatch):
    """Code that asks finds portable arithmetic; which operations run does not depend on the
    libraries' kernels.
    """
    for name, value in PORTABLE.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("method", METHODS)
def test_no_step_of_a_method_depends_on_the_processor(method):
    made = trainer(method, eval_every=1, clip_norm=1.0, ema_decay=0.9, epochs=1)
    with WatchedOperations() as watched:
        made.run()
    assert watched.found == set()


@pytest.mark.usefixtures("pool_here")
def test_no_pool_of_ensembles_depends_on_the_processor():
    certification = replace(CERTIFICATION, n=20, subset={"first": 2})
    with WatchedOperations() as watched:
        solve("again")
        certify_pool(
            Path("ensembles"), Path("again"), Path("data"), PoolSettings(timed=0), certification,
            SmoothingOptions(device=CPU), out=Path("rows"), times=Path("times"),
        )  # fmt: skip
    assert watched.found == set()


X = torch.rand(8, generator=generator()) + 0.5


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: torch.sqrt(x, out=torch.empty_like(x)),
        lambda x: x**-0.5,
        lambda x: x.double().log(),
        lambda x: torch._foreach_sqrt([x]),
    ],
)
def test_a_processor_dependent_operation_is_found_in_any_form(operation):
    with WatchedOperations() as watched:
        operation(X)
    assert len(watched.found) == 1
