"""Networks that OpenVINO runs on a CPU: converting and compiling them, in float32 or in int8.

Nothing is computed in bfloat16, not even where a processor has it, and no more threads are used than torch has.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rs.errors import InputError, install

GRAPH, WEIGHTS = "network.xml", "network.bin"


class Content(NamedTuple):
    """A network as OpenVINO stores it."""

    graph: bytes
    weights: bytes

    @property
    def fingerprint(self) -> str:
        """SHA-256 of graph and weights, after the length of the graph, without which two contents could share one."""
        return hashlib.sha256(b"%d\n" % len(self.graph) + self.graph + self.weights).hexdigest()


class OpenVinoNetwork(nn.Module):
    """A network that OpenVINO runs, with logits in float32; ``fingerprint`` says all that is known of it."""

    __slots__ = ("_logits",)  # what runs it is no attribute, so that a description of the module passes over it

    def __init__(self, content: Content) -> None:
        super().__init__()
        self.fingerprint = content.fingerprint
        self._logits = _compiled(content)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W), normalised -> logits (N, K)."""
        return torch.from_numpy(self._logits(x.contiguous().numpy())[0])

    @property
    def instructions(self) -> str:
        """The widest vector instructions that it runs with."""
        runs_with = str(self._logits.get_property("RUNTIME_REQUIREMENTS"))
        return dict(part.split("=", 1) for part in runs_with.split(";"))["isa"]


@cache
def library(name: str) -> Any:
    """Import a library of the extra, without the part that reports its use to its maker."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"engines openvino and quantized need OpenVINO and NNCF ({error}); {install('int8')}"
        ) from error


@cache
def runtime() -> Any:
    """Return OpenVINO's runtime, the one of this process, which lives as long as the process does.

    A runtime gives the thread an alternate stack for signals, and when it is destroyed brings back the one before. If
    that was of a runtime that is gone too, so is its memory, and the next signal with a handler ends the process. The
    first one is kept, so that whatever comes and goes after it, NNCF's own too, has something to bring back.
    """
    core = library("openvino").Core()
    core.get_versions("CPU")  # loads the part that does so
    return core


def converted(network: nn.Module, sample: Tensor) -> Any:
    """Convert a network in eval mode to a model of OpenVINO, for any batch of images like ``sample`` (1, C, H, W).

    Raises:
        InputError: If the extra is not installed, or OpenVINO cannot convert the network, as where its path depends on
            the image.
    """
    openvino, _ = library("openvino"), runtime()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, that its tracer has a successor, and keeps one path
            model = openvino.convert_model(network, example_input=sample, input=[-1, *sample.shape[1:]])
    except Exception as error:  # of a network of the user's, which may be anything
        raise InputError(
            f"the network must be one that OpenVINO converts, but: {type(error).__name__}: {error}; use engine folded"
        ) from error
    _check_one_path(network, sample)
    return model


def _check_one_path(network: nn.Module, sample: Tensor) -> None:
    """Refuse a network that reads values of an image in Python, because conversion keeps its path for the sample alone.

    Torch's tracer does not warn of ``torch.equal``, and warns of shapes too.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
            network(mode.from_tensor(sample))  # an image that has a shape and no values
    except Exception as error:  # whatever a network of the user's makes of it
        raise InputError(
            "the network must take the same path for every image to be converted, but it reads values of the image "
            f"({type(error).__name__}: {error}); use engine folded"
        ) from error


def content(model: Any) -> Content:
    """Serialise a model, with names that do not depend on what else was made in the process.

    Raises:
        InputError: If there is no room for it among temporary files, where OpenVINO writes it first.
    """
    model.set_friendly_name("network")
    for number, operation in enumerate(model.get_ordered_ops()):
        operation.set_friendly_name(f"{operation.get_type_name()}_{number}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, GRAPH)
        try:
            library("openvino").save_model(model, path, compress_to_fp16=False)
        except RuntimeError as error:  # of a stream of C++, which does not say why
            raise InputError(
                f"{folder} must have room for a network, but OpenVINO could not write it ({error}); make room there, "
                "or name another folder with TMPDIR"
            ) from error
        return Content(path.read_bytes(), Path(folder, WEIGHTS).read_bytes())


def _compiled(content: Content) -> Any:
    """Compile a network for this CPU: nothing but int8 and float32, no more threads than torch has, none pinned."""
    options = {
        "EXECUTION_MODE_HINT": "ACCURACY",
        "INFERENCE_PRECISION_HINT": "f32",  # or bfloat16 where a CPU has it
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    return runtime().compile_model(runtime().read_model(*content), "CPU", options)
