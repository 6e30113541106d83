"""Networks that are quantized to int8 after training, which OpenVINO runs on a CPU.

MODEL/quantized.xml, .bin     the network in int8: its graph, and its weights and scales
MODEL/quantized.json          what it was made from

Nothing is computed in bfloat16, not even where a processor has it, and no more threads are used
than torch has.

A quantized network is another function than the network in float32, and its certificates are about
itself. Sums of products of integers are exact in any order, so its logits should not depend on the
batch and the number of threads. With two threads OpenVINO violated this in 3 of 544 compiled
networks; the cause is unknown. So a compiled network is checked before it is used and while it
certifies (``rs.smoothing.determinism``); if it is refused, the same command compiles it again.

Its weights have 7 bits, of the int8 that holds them: 2 * 255 * 64 < 2^15, so that processors
without VNNI, which add pairs of products in 16 bits, do not saturate and give the same sums as
others. They are calibrated on noisy training images.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from rs.data.images import load_images
from rs.data.prepared import Images
from rs.errors import InputError, install_command
from rs.models import checkpoint
from rs.models.backend import split_normalization
from rs.models.fingerprint import model_fingerprint
from rs.params import Count, Positive, validated
from rs.runtime import arithmetic
from rs.runtime.streams import Stream
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import evaluating
from rs.smoothing.noise import certification_noise, noisy_pair
from rs.storage import files

GRAPH, WEIGHTS, CARD = "quantized.xml", "quantized.bin", "quantized.json"

CALIBRATION_IMAGES = 300
"""Noisy training images that calibrate a network (benchmarks/results/int8.md compares numbers)."""

MAX_CONSTANTS = 1000
"""Most values in a constant that a network may read in Python, such as the standard deviations of a
normalization."""

SEED = 0
"""Seed of the noise of calibration images."""


class SerializedNetwork(NamedTuple):
    """A network as OpenVINO stores it."""

    graph: bytes
    weights: bytes

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the length of the graph, the graph, and the weights."""
        return hashlib.sha256(b"%d\n" % len(self.graph) + self.graph + self.weights).hexdigest()


@cache
def library(name: str) -> Any:
    """Import a library of the extra ``int8``, without its telemetry."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"engine quantized needs OpenVINO and NNCF ({error}); {install_command('int8')}"
        ) from error


@cache
def runtime() -> Any:
    """Return OpenVINO's runtime, the one of this process, which lives as long as the process does.

    A runtime installs an alternate signal stack, and restores the previous one when it is
    destroyed. If that belonged to a destroyed runtime, its memory is freed, and the next signal
    with a handler ends the process. So the first runtime is kept: whatever comes after it, NNCF's
    own too, restores a valid stack.
    """
    core = library("openvino").Core()
    core.get_versions("CPU")  # loads the part that does so
    return core


def convert(network: nn.Module, sample: Tensor) -> Any:
    """Convert a network in eval mode to a model of OpenVINO, for batches like ``sample``.

    Args:
        network: Images (N, C, H, W) -> logits (N, K).
        sample: One image, (1, C, H, W).

    Raises:
        InputError: If the extra is not installed, or OpenVINO cannot convert the network, as where
            its path depends on the image.
    """
    openvino = library("openvino")
    runtime()
    try:
        with warnings.catch_warnings():
            # of torch, that its tracer has a successor, and keeps one path
            warnings.simplefilter("ignore")
            model = openvino.convert_model(
                network, example_input=sample, input=[-1, *sample.shape[1:]]
            )
    except Exception as error:  # of a network of the user's, which may be anything
        raise InputError(
            f"the network must be one that OpenVINO converts, but: {type(error).__name__}: "
            f"{error}; use engine folded"
        ) from error
    _check_one_path(network, sample)
    return model


def _check_one_path(network: nn.Module, sample: Tensor) -> None:
    """Refuse a network that reads values of an image in Python.

    Conversion keeps its path for the sample alone. Torch's tracer does not warn of ``torch.equal``,
    and warns of shapes too.
    """
    raised_limit = mock.patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", MAX_CONSTANTS)
    try:
        with raised_limit, FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
            network(mode.from_tensor(sample))  # an image that has a shape and no values
    except Exception as error:  # whatever a network of the user's makes of it
        raise InputError(
            "the network must take the same path for every image to be converted, but it reads "
            f"values of the image ({type(error).__name__}: {error}); use engine folded"
        ) from error


def serialize(model: Any) -> SerializedNetwork:
    """Serialize a model, with names that do not depend on what else was made in the process.

    Raises:
        InputError: If there is no room for it among temporary files, where OpenVINO writes it
            first.
    """
    model.set_friendly_name("network")
    for number, operation in enumerate(model.get_ordered_ops()):
        operation.set_friendly_name(f"{operation.get_type_name()}_{number}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.xml")
        try:
            library("openvino").save_model(model, path, compress_to_fp16=False)
        except RuntimeError as error:  # of a stream of C++, which does not say why
            raise InputError(
                f"{folder} must have room for a network, but OpenVINO could not write it "
                f"({error}); make room there, or name another folder with TMPDIR"
            ) from error
        return SerializedNetwork(path.read_bytes(), path.with_suffix(".bin").read_bytes())


def _compiled(content: SerializedNetwork) -> Any:
    """Compile a network for this CPU: in int8 and float32, with torch's number of threads.

    There is one stream per thread, because OpenVINO 2026.4.1 can return logits that differ from
    call to call if two threads share one evaluation.
    """
    threads = torch.get_num_threads()
    options = {
        "EXECUTION_MODE_HINT": "ACCURACY",
        "INFERENCE_PRECISION_HINT": "f32",  # or bfloat16 where a CPU has it
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": threads,
        "ENABLE_CPU_PINNING": False,
    }
    return runtime().compile_model(runtime().read_model(*content), "CPU", options)


@validated
class QuantizedCard:
    """What a quantized network was made from; stored next to it as ``quantized.json``."""

    classifier: str  # rs.models.fingerprint.model_fingerprint of the model in float32
    dataset: str
    images: str  # fingerprint of the training split
    sigma: Positive  # noise of the calibration images, in pixels of [0, 1]
    calibration: Count  # how many of these images were asked for; all, if there are fewer
    network: str  # SHA-256 of graph, weights and scales
    arithmetic: arithmetic.Arithmetic
    versions: dict[str, str]


class Quantized(NamedTuple):
    """A quantized network as it lies on disk."""

    content: SerializedNetwork
    card: QuantizedCard


class QuantizedNetwork(nn.Module):
    """A network in int8, with logits in float32; ``fingerprint`` is its only identity."""

    # not in __dict__, so that fingerprints do not describe them
    __slots__ = ("_compiled", "_requests")

    def __init__(self, quantized: Quantized) -> None:
        super().__init__()
        self.fingerprint = quantized.content.fingerprint
        self.calibration = quantized.card.calibration
        self._compiled = _compiled(quantized.content)
        streams = self._compiled.get_property("NUM_STREAMS")
        self._requests = [self._compiled.create_infer_request() for _ in range(streams)]

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of normalized images (N, C, H, W), split among the threads."""
        shares = x.contiguous().chunk(len(self._requests))
        requests = self._requests[: len(shares)]
        for request, share in zip(requests, shares, strict=True):
            request.start_async([share.numpy()], share_inputs=True)
        for request in requests:
            request.wait()
        logits = [torch.from_numpy(request.get_output_tensor().data) for request in requests]
        return torch.cat(logits)

    @property
    def instructions(self) -> str:
        """The widest vector instructions that it runs with."""
        runs_with = str(self._compiled.get_property("RUNTIME_REQUIREMENTS"))
        return dict(part.split("=", 1) for part in runs_with.split(";"))["isa"]


@dataclass(frozen=True)
class Calibration:
    """Where quantized networks come from."""

    folders: Sequence[str]  # model folders of the members, in their order; empty if they have none
    data: Path | None  # the prepared data set whose training images calibrate new networks
    sigma: float  # noise of the training, in pixels of [0, 1]


NO_CALIBRATION = Calibration((), None, 0.0)


def quantized_members(
    members: Sequence[nn.Module], calibration: Calibration, shape: Sequence[int]
) -> list[nn.Module]:
    """Return the quantized networks of classifiers: read from their folders, or made.

    Args:
        members: Models on the CPU.
        calibration: Where they come from; its data set is needed if a network is not on disk.
        shape: (C, H, W) of an image.
    Raises:
        InputError: If the extra ``int8`` is not installed, a network on disk is of another model or
            noise, there is neither a network nor a calibration, or it cannot be converted.
    """
    networks: list[nn.Module] = []
    folders = calibration.folders or [""] * len(members)
    for member, folder in zip(members, folders, strict=True):
        if folder and Path(folder, CARD).exists():
            quantized = _read_for(member, Path(folder), calibration.sigma)
        elif calibration.data is not None:
            images = load_images(calibration.data, "train")
            quantized = quantize(member, images, calibration.sigma, CALIBRATION_IMAGES)
        else:
            raise InputError(
                "engine quantized needs a quantized network next to a model folder, or training "
                "images to calibrate one; make it with rs quantize MODEL (--data or --images), "
                "or give --data in place of --images"
            )
        networks.append(quantized_classifier(member, quantized, shape))
    return networks


def _read_for(member: nn.Module, folder: Path, sigma: float) -> Quantized:
    """Read the network in a folder, and check that it is of this model and noise."""
    quantized = read_quantized(folder)
    remedy = f"run rs quantize {folder} again"
    if quantized.card.classifier != model_fingerprint(member):
        raise InputError(
            f"{folder / CARD} must describe the model next to it, but that has changed; {remedy}"
        )
    if quantized.card.sigma != sigma:
        raise InputError(
            f"{folder / CARD} must be for noise {sigma}, as in training, but is for "
            f"{quantized.card.sigma}; {remedy}"
        )
    return quantized


def quantized_classifier(
    module: nn.Module, quantized: Quantized, shape: Sequence[int]
) -> nn.Module:
    """Return the normalization of ``module``, in float32, and then the network in int8."""
    normalize, _ = split_normalization(module)
    classifier = nn.Sequential(normalize, QuantizedNetwork(quantized)).eval()
    check_deterministic(classifier, noisy_pair(shape, torch.device("cpu")))
    return classifier


def quantize(
    module: nn.Module, images: Images, sigma: float, count: int = CALIBRATION_IMAGES
) -> Quantized:
    """Quantize a network after training, by NNCF.

    Activations have 8 bits, and weights 7 with a scale for each channel.

    Args:
        module: Images (N, C, H, W) -> logits (N, K), on the CPU; left as it is.
        images: The training split.
        sigma: Noise of the calibration images, in pixels of [0, 1].
        count: How many of them, evenly spread over the split; all, if it has fewer.
    Raises:
        InputError: If the extra ``int8`` is not installed, or OpenVINO cannot convert the network.
    """
    noisy = calibration_images(images, sigma, count)
    normalize, network = split_normalization(module)
    with torch.no_grad(), evaluating(module), redirect_stdout(io.StringIO()):  # progress bars
        normalized = normalize(noisy)
        model = convert(network, normalized[:1])  # before NNCF makes a runtime of its own
        nncf = library("nncf")
        advanced = library("nncf.quantization.advanced_parameters")
        seven_bits = advanced.AdvancedQuantizationParameters(
            overflow_fix=advanced.OverflowFix.ENABLE
        )
        calibration = nncf.Dataset([image[None].numpy() for image in normalized])
        model = nncf.quantize(
            model, calibration, subset_size=len(normalized), advanced_parameters=seven_bits
        )
        content = serialize(model)
    versions = checkpoint.library_versions()
    for name in ("openvino", "nncf"):
        versions[name] = library(name).__version__
    card = QuantizedCard(
        classifier=model_fingerprint(module),
        dataset=images.meta.name,
        images=images.fingerprint,
        sigma=sigma,
        calibration=count,
        network=content.fingerprint,
        arithmetic=arithmetic.current(),
        versions=versions,
    )
    return Quantized(content, card)


def calibration_images(images: Images, sigma: float, count: int) -> Tensor:
    """Return noisy training images (count, C, H, W), evenly spread over the split; always the same.

    Their noise is keyed by ``Stream.CALIBRATE``: no certificate and no training draws it.
    """
    count = min(count, len(images))
    indices = torch.linspace(0, len(images) - 1, count).round().long().tolist()
    x = torch.stack([images.pixels(index) for index in indices])
    shape = x.shape[1:]
    noise = certification_noise(range(count), shape, sigma, SEED, Stream.CALIBRATE, device="cpu")
    return x + noise


def write_quantized(folder: Path, quantized: Quantized) -> None:
    """Write a quantized network next to its model; equal networks make equal bytes."""
    (folder / CARD).unlink(missing_ok=True)  # without it nothing loads the others
    files.write_bytes(folder / GRAPH, quantized.content.graph)
    files.write_bytes(folder / WEIGHTS, quantized.content.weights)
    files.write_json(folder / CARD, asdict(quantized.card))


def read_quantized(folder: Path) -> Quantized:
    """Read the quantized network next to a model.

    Raises:
        InputError: If a file is missing or damaged.
    """
    remedy = f"run rs quantize {folder} again"
    card = files.read_as(QuantizedCard, folder / CARD, "the card of a quantized network", remedy)
    try:
        content = SerializedNetwork((folder / GRAPH).read_bytes(), (folder / WEIGHTS).read_bytes())
    except OSError as error:
        raise InputError(
            f"{folder} must hold {GRAPH} and {WEIGHTS} next to {CARD}, but: {error}; {remedy}"
        ) from error
    if content.fingerprint != card.network:
        raise InputError(
            f"{folder / GRAPH} and {WEIGHTS} must be those of {CARD}, but they changed; {remedy}"
        )
    return Quantized(content, card)


def quantized_identity(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """Return what a sidecar states about the quantized networks in classifiers; empty without."""
    networks: list[QuantizedNetwork] = []
    for module in modules:
        networks += [part for part in module.modules() if isinstance(part, QuantizedNetwork)]
    if not networks:
        return {}
    fingerprint = networks[0].fingerprint
    if len(networks) > 1:
        hashes = " ".join(network.fingerprint for network in networks)
        fingerprint = hashlib.sha256(hashes.encode()).hexdigest()
    return {
        "precision": "int8",
        "quantized": fingerprint,
        "calibration": networks[0].calibration,
        "instructions": networks[0].instructions,
        "versions": checkpoint.library_versions() | {"openvino": library("openvino").__version__},
    }
