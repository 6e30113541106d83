"""Networks in int8: quantised after training, calibrated on noisy training images, run by OpenVINO on a CPU.

MODEL/quantized.xml, .bin     the network: its graph, and its weights and scales
MODEL/quantized.json          what it was made from

A quantised network is another function than the network in float32, and a certificate of it is about it. It is one
function of each image, whatever the batch and the number of threads: sums of products of integers are exact in any
order. Its weights have 7 bits, of the int8 that holds them: 2 * 255 * 64 < 2^15, so that processors without VNNI, which
add pairs of products in 16 bits, do not saturate and give the same sums as others.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rs.certification.inference import split_normalization
from rs.certification.openvino_network import Content, OpenVinoNetwork, content, converted, library
from rs.data import images as data
from rs.data.prepared import Images
from rs.errors import InputError
from rs.models import checkpoint
from rs.models.fingerprint import model_fingerprint
from rs.params import Count, Positive, validated
from rs.runtime import arithmetic
from rs.runtime.streams import Stream
from rs.smoothing.attack import evaluating
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.noise import certification_noise, noisy_pair
from rs.storage import files

GRAPH, WEIGHTS, CARD = "quantized.xml", "quantized.bin", "quantized.json"

CALIBRATION = 300
"""Noisy training images that networks are quantised with (benchmarks/results/int8.md compares 100, 300 and 1,000)."""

SEED = 0
"""Of the noise of calibration images."""


@validated
class QuantizedCard:
    """What a quantised network was made from; written beside it as ``quantized.json``."""

    classifier: str  # rs.models.fingerprint.model_fingerprint of the model in float32
    dataset: str
    images: str  # fingerprint of the training split
    sigma: Positive  # noise of the calibration images, in pixels of [0, 1]
    calibration: Count  # how many of these images were asked for; all, if there are fewer
    network: str  # SHA-256 of graph, weights and scales
    arithmetic: arithmetic.Arithmetic
    versions: dict[str, str]


class Quantized(NamedTuple):
    """A quantised network as it lies on disk."""

    content: Content
    card: QuantizedCard


class QuantizedNetwork(OpenVinoNetwork):
    """A network in int8."""

    def __init__(self, quantized: Quantized) -> None:
        super().__init__(quantized.content)
        self.calibration = quantized.card.calibration


def quantized_members(
    members: Sequence[nn.Module],
    folders: Sequence[str],
    calibration: Path | None,
    sigma: float,
    shape: Sequence[int],
) -> list[nn.Module]:
    """Return the quantised networks of classifiers: those beside them on disk, or new ones.

    Args:
        members: Models on the CPU.
        folders: Their model folders, in the same order; empty if they have none.
        calibration: The prepared data set whose training split calibrates new ones, by CALIBRATION noisy images; needed
            where there is none on disk.
        sigma: Noise of the calibration images: that of the training.
        shape: (C, H, W) of an image.
    Raises:
        InputError: If the extra ``int8`` is not installed, a network on disk is of another model or noise, there
            is neither a network nor a calibration, or it cannot be converted.
    """
    made = []
    for member, folder in zip(members, map(Path, folders) if folders else repeat(None, len(members)), strict=True):
        quantized = _found(member, folder, sigma) or _new(member, folder, calibration, sigma)
        made.append(quantized_classifier(member, quantized, shape))
    return made


def _new(member: nn.Module, folder: Path | None, calibration: Path | None, sigma: float) -> Quantized:
    if calibration is None and folder is None:
        raise InputError(
            "engine quantized needs training images to calibrate a model without a folder, as of module:function, for "
            "which there is no rs quantize; give --data, a prepared data set, or another engine"
        )
    if calibration is None:
        raise InputError(
            "engine quantized needs a quantised network beside the model, or training images to calibrate one; make it "
            "with rs quantize MODEL --data DATA, or give --data"
        )
    return quantize(member, data.load_images(calibration, "train"), sigma, CALIBRATION)


def _found(member: nn.Module, folder: Path | None, sigma: float) -> Quantized | None:
    """Return the network on disk, after checking that it is the one that is asked for."""
    if folder is None or not (folder / CARD).exists():
        return None
    quantized, again = read_quantized(folder), f"run rs quantize {folder} again"
    if quantized.card.classifier != model_fingerprint(member):
        raise InputError(f"{folder / CARD} must be of the model beside it, but that has changed; {again}")
    if quantized.card.sigma != sigma:
        raise InputError(
            f"{folder / CARD} must be of noise {sigma}, that of the training, but is of {quantized.card.sigma}; {again}"
        )
    return quantized


def quantized_classifier(module: nn.Module, quantized: Quantized, shape: Sequence[int]) -> nn.Module:
    """Return the quantised classifier: the normalisation of ``module``, in float32, and the network in int8."""
    made = nn.Sequential(split_normalization(module)[0], QuantizedNetwork(quantized)).eval()
    check_deterministic(made, noisy_pair(tuple(shape), torch.device("cpu")))
    return made


def quantize(module: nn.Module, images: Images, sigma: float, count: int = CALIBRATION) -> Quantized:
    """Quantise a network after training, by NNCF: activations to 8 bits, weights to 7 with a scale for each channel.

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
        made = _quantized(network, normalize(noisy))
    return Quantized(made, _card(module, images, sigma, count, made.fingerprint))


def _card(module: nn.Module, images: Images, sigma: float, count: int, network: str) -> QuantizedCard:
    return QuantizedCard(
        classifier=model_fingerprint(module),
        dataset=images.meta.name,
        images=images.fingerprint,
        sigma=sigma,
        calibration=count,
        network=network,
        arithmetic=arithmetic.current(),
        versions=quantization_versions(),
    )


def calibration_images(images: Images, sigma: float, count: int) -> Tensor:
    """Return noisy training images (count, C, H, W), evenly spread over the split; always the same.

    Their noise is keyed by ``Stream.CALIBRATE``: no certificate and no training draws it.
    """
    chosen = torch.linspace(0, len(images) - 1, min(count, len(images))).round().long().tolist()
    x = torch.stack([images.pixels(index) for index in chosen])
    return x + certification_noise(range(len(x)), x.shape[1:], sigma, SEED, Stream.CALIBRATE, device="cpu")


def check_quantized_output(
    folder: Path, module: nn.Module, images: Images, sigma: float, count: int, *, force: bool = True
) -> None:
    """Check that :func:`write_quantized` may write what :func:`quantize` makes of these, before it takes its time.

    Raises:
        InputError: As :func:`write_quantized`, where there is a network that was made from something else.
    """
    card = asdict(_card(module, images, sigma, count, ""))
    del card["network"]  # which is not known yet
    _check(folder, card, force)


def write_quantized(folder: Path, quantized: Quantized, *, force: bool = True) -> None:
    """Write a quantised network beside its model; equal ones make equal bytes.

    Raises:
        InputError: If something else has the name of its card; without ``force``, if there is another one already.
    """
    _check(folder, asdict(quantized.card), force)
    (folder / CARD).unlink(missing_ok=True)  # without it nothing loads the others
    files.write_bytes(folder / GRAPH, quantized.content.graph)
    files.write_bytes(folder / WEIGHTS, quantized.content.weights)
    files.write_json(folder / CARD, asdict(quantized.card))


def _check(folder: Path, card: dict[str, Any], force: bool) -> None:
    """Check that what is there is the same, as a command has left it that is given again, or may be replaced."""
    same = all(files.value_in(folder / CARD, key) == value for key, value in card.items())
    files.check_output(folder / CARD, "a quantised network", option="MODEL", force=force or same)


def read_quantized(folder: Path) -> Quantized:
    """Read the quantised network beside a model.

    Raises:
        InputError: If a file is missing or damaged.
    """
    again = f"run rs quantize {folder} again"
    card = files.read_as(QuantizedCard, folder / CARD, "the card of a quantised network", again)
    try:
        found = Content((folder / GRAPH).read_bytes(), (folder / WEIGHTS).read_bytes())
    except OSError as error:
        raise InputError(f"{folder} must hold {GRAPH} and {WEIGHTS} beside {CARD}, but: {error}; {again}") from error
    if found.fingerprint != card.network:
        raise InputError(f"{folder / GRAPH} and {WEIGHTS} must be those of {CARD}, but they changed; {again}")
    return Quantized(found, card)


def openvino_identity(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """Return what a sidecar says of the networks of OpenVINO in classifiers that run; nothing if there are none."""
    found = [one for module in modules for one in module.modules() if isinstance(one, OpenVinoNetwork)]
    if not found:
        return {}
    return _identity_in_int8([one for one in found if isinstance(one, QuantizedNetwork)]) | {
        "instructions": found[0].instructions,
        "versions": checkpoint.library_versions() | {"openvino": library("openvino").__version__},
    }


def _identity_in_int8(found: Sequence[QuantizedNetwork]) -> dict[str, Any]:
    if not found:
        return {}
    prints = [one.fingerprint for one in found]
    return {
        "precision": "int8",
        "quantized": prints[0] if len(prints) == 1 else hashlib.sha256(" ".join(prints).encode()).hexdigest(),
        "calibration": found[0].calibration,
    }


def quantization_versions() -> dict[str, str]:
    """Return the versions that a quantised network depends on."""
    openvino, nncf = library("openvino"), library("nncf")
    return checkpoint.library_versions() | {"openvino": openvino.__version__, "nncf": nncf.__version__}


def _quantized(network: nn.Module, normalised: Tensor) -> Content:
    """Convert a network and quantise it."""
    model = converted(network, normalised[:1])  # before NNCF makes a runtime of its own
    nncf, advanced = library("nncf"), library("nncf.quantization.advanced_parameters")
    made = nncf.quantize(
        model,
        nncf.Dataset([image[None].numpy() for image in normalised]),
        subset_size=len(normalised),
        advanced_parameters=advanced.AdvancedQuantizationParameters(overflow_fix=advanced.OverflowFix.ENABLE),  # 7 bits
    )
    return content(made)
