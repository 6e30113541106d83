"""Engines: how a classifier runs many forward passes, by name.

:func:`optimize_for_inference` builds the network that an engine runs. A certificate is about the
network as it runs, so rows record the engine: folding changes the last bits of the logits, bfloat16
the third digit, and with them votes on images between two classes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rs.certification.quantize import quantized_identity, quantized_members
from rs.ensemble.base import Ensemble
from rs.errors import InputError, check_choice
from rs.models import InferenceEngine
from rs.models.architectures import Logits
from rs.models.backend import (
    DTYPES,
    WARM_UP_PASSES,
    check_folding,
    compiled,
    copy_network,
    device_of,
    fold_norms,
    layout,
    raised_compile_limit,
    split_normalization,
    warn_of_fallback,
)
from rs.runtime import Precision
from rs.runtime.device import products
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import Function, logits_of
from rs.smoothing.noise import BLOCK, default_batch, noisy_pair


class Optimized(NamedTuple):
    """A classifier as it runs."""

    module: nn.Module
    precision: Precision  # to run it in; float32 if the weights themselves are in bfloat16
    batch: int | None  # noisy images at once
    engine: InferenceEngine  # that runs: "folded" if there was no compiler for "compiled"


@dataclass(frozen=True)
class Calibration:
    """Where quantized networks come from."""

    folders: Sequence[str]  # model folders of the members; empty if they have none
    data: Path | None  # the prepared data set that calibrates new networks
    sigma: float  # noise of the training, in pixels of [0, 1]


@dataclass(frozen=True)
class _Job:
    """A classifier to optimize; the fields are the arguments of :func:`optimize_for_inference`."""

    module: nn.Module
    engine: InferenceEngine
    precision: Precision
    shape: tuple[int, ...]
    device: torch.device
    batch: int | None
    calibration: Calibration | None

    def result(self, networks: Sequence[nn.Module]) -> Optimized:
        """Return the classifier of networks that replace its members."""
        module = networks[0]
        if isinstance(self.module, Ensemble):
            module = Ensemble(networks, self.module.rule).eval()
        precision = "float32" if self.precision == "bfloat16" else self.precision
        return Optimized(module, precision, self.batch, self.engine)


def optimize_for_inference(
    module: nn.Module,
    engine: InferenceEngine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None = None,
    calibration: Calibration | None = None,
) -> Optimized:
    """Optimize a classifier for many forward passes; of an ensemble, each member.

    Args:
        module: Images (N, C, H, W) -> logits (N, K); unchanged, but moved to ``device``.
        engine: ``plain`` uses it unchanged. ``folded`` folds each batch norm into the convolution
            before it (exact up to rounding), and stores the weights in ``precision``. ``compiled``
            also compiles the folded network for batches of one size: smaller ones are padded, and
            cost as much. ``quantized`` has OpenVINO run networks in int8 instead, on a CPU.
        precision: ``float32``, ``tf32`` (on a CUDA device) or ``bfloat16``; ``float32`` for a
            quantized network, which has its own.
        shape: (C, H, W) of an image.
        device: Where it runs.
        batch: Noisy images at once; if ``None``, chosen by the size of an image.
        calibration: What the engine ``quantized`` needs.
    Returns:
        The optimized classifier; if a network cannot be compiled, the folded one, with a warning on
        stderr.
    Raises:
        InputError: If there is no such engine or precision, a plain function is to be run by
            another engine than plain, what is folded is not one function of each image, or a
            quantized network is to run in bfloat16 or elsewhere than on a CPU.
    """
    check_choice("engine", engine, tuple(ENGINES))
    check_choice("precision", precision, get_args(Precision))
    with products(device, precision):  # what is chosen and compiled here depends on it
        return ENGINES[engine](
            _Job(module, engine, precision, tuple(shape), device, batch, calibration)
        )


def members_of(module: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble; of another classifier, itself."""
    return list(module.members) if isinstance(module, Ensemble) else [module]


def engine_identity(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """Return what an engine has changed in classifiers, for the sidecar of their rows."""
    return quantized_identity(modules)


def _plain(job: _Job) -> Optimized:
    module = _moved(job)
    return Optimized(module, job.precision, job.batch, job.engine)


def _folded(job: _Job) -> Optimized:
    return job.result(_folded_members(job))


def _compiled(job: _Job) -> Optimized:
    folded = _folded_members(job)
    image = torch.zeros(job.shape, device=job.device)
    batch = job.batch or min(BLOCK, default_batch(image))
    sample = image.expand(batch, *job.shape).contiguous()
    try:
        networks = [_compiled_network(network, sample) for network in folded]
    except Exception as error:  # each compiler raises errors of its own
        warn_of_fallback("is not compiled", error)
        return replace(job, engine="folded", batch=batch).result(folded)
    return replace(job, batch=batch).result(networks)


def _quantized(job: _Job) -> Optimized:
    _check_has_networks(job)
    if job.precision != "float32" or job.device.type != "cpu":
        raise InputError(
            "engine quantized must run on a CPU, with precision left at float32, got "
            f"{job.precision} on {job.device.type}; take engine compiled there"
        )
    if job.calibration is None:
        raise InputError("engine quantized must have a calibration, got None; give one")
    calibration = job.calibration
    members = members_of(job.module.cpu())
    folders, images, sigma = calibration.folders, calibration.data, calibration.sigma
    return job.result(quantized_members(members, folders, images, sigma, job.shape))


ENGINES: dict[InferenceEngine, Callable[[_Job], Optimized]] = {
    "plain": _plain,
    "folded": _folded,
    "compiled": _compiled,
    "quantized": _quantized,
}


def _check_has_networks(job: _Job) -> None:
    for member in members_of(job.module):
        if isinstance(member, Function):
            raise InputError(
                "engine must be plain for a plain function, whose networks are not known, got "
                f"{job.engine}; give the nn.Module"
            )


def _moved(job: _Job) -> nn.Module:
    """Return the classifier on its device, there in the order of memory that is fastest."""
    module = job.module.to(job.device)
    if job.device.type == "cuda":  # on a CPU the order of its author
        module = module.to(memory_format=layout(job.device, DTYPES[job.precision]))
    return module


def _folded_members(job: _Job) -> list[nn.Module]:
    _check_has_networks(job)
    networks = []
    for member in members_of(_moved(job)):
        network = fold(member, DTYPES[job.precision], job.shape)
        # The copy may call what was not copied, or compute with what was not converted.
        try:
            check_deterministic(network, noisy_pair(job.shape, job.device), job.precision)
        except InputError as error:
            raise InputError(f"with engine {job.engine} {error}; or take engine plain") from error
        networks.append(network)
    return networks


def fold(module: nn.Module, dtype: torch.dtype, shape: Sequence[int]) -> nn.Module:
    """Fold every batch norm into the convolution before it, for evaluation only.

    The folded network is compared with the original in float64. A network that ``torch.fx`` cannot
    trace, or traces wrongly (hooks), keeps its batch norms, with a warning on stderr.

    Args:
        module: The classifier, which is not changed. If it consists of ``normalize`` and
            ``network`` (``rs.models.architectures.build``), the normalization stays in float32,
            unless batch norms are kept.
        dtype: Type of weights and activations. The last layer of a network of this project stays in
            float32, and every network returns its logits in float32.
        shape: (C, H, W) of an image.
    """
    try:
        check_folding(module, shape, lambda exact: _split(exact).exactly)
        return _split(copy_network(module).eval(), dtype)
    except Exception as error:  # tracing arbitrary networks may raise anything
        warn_of_fallback("keeps its batch norms", error)
        network = _cast(module, copy_network(module).eval(), dtype)
        return InferenceNetwork(nn.Identity(), network, dtype)


def _split(module: nn.Module, dtype: torch.dtype | None = None) -> InferenceNetwork:
    """Fold the network of a classifier, in ``dtype`` if it is given, but not its normalization."""
    normalize, network = split_normalization(module)
    folded: nn.Module = fold_norms(network, fuse_conv_bn_eval)
    if dtype is not None:
        folded = _cast(network, folded, dtype)
    return InferenceNetwork(normalize, folded, dtype or torch.float64).eval()


def _cast(network: nn.Module, folded: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Convert the weights to ``dtype``, except those of the last layer, which is in float32."""
    last_layers = {}
    for name, module in network.named_modules():
        if isinstance(module, Logits):
            last_layers[name] = copy.deepcopy(folded.get_submodule(name))
    folded = folded.to(dtype).to(memory_format=layout(device_of(network), dtype))
    for name, module in last_layers.items():
        folded.set_submodule(name, module)
    return folded


class InferenceNetwork(nn.Module):
    """Normalization in float32, then a network in ``dtype``; logits in float32."""

    def __init__(self, normalize: nn.Module, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.normalize = normalize
        self.network = network
        self.dtype = dtype
        self.layout = layout(device_of(network), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        x = self.normalize(x)
        return logits_of(self.network(x.to(self.dtype, memory_format=self.layout))).float()

    def exactly(self, x: Tensor) -> Tensor:
        """Compute the same logits in the precision of the images, for comparison."""
        return logits_of(self.network(self.normalize(x)))


class FixedBatch(nn.Module):
    """A compiled classifier, which takes batches of one size."""

    def __init__(self, compiled: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.compiled = compiled
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W), in batches whose last one is padded."""
        return torch.cat([self._logits_of_batch(batch) for batch in x.split(self.size)])

    def _logits_of_batch(self, x: Tensor) -> Tensor:
        missing = self.size - len(x)
        padded = x
        if missing:
            padded = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
        return self.compiled(padded)[: len(x)].clone()  # a CUDA graph reuses its output's memory


def _compiled_network(module: nn.Module, sample: Tensor) -> nn.Module:
    """Compile for batches like ``sample``, and run it, because compilers fail at the first call."""
    network = FixedBatch(compiled(module, sample.device, frozen=True), len(sample))
    # Without gradients, as in certification; with them it would be compiled again.
    with torch.no_grad(), raised_compile_limit():
        for _ in range(WARM_UP_PASSES):
            network(sample.clone())
    return network
