"""Engines: how a classifier runs many forward passes, by name.

:func:`optimize_for_inference` builds the network that an engine runs. A certificate is about the
network as it runs, so rows record the engine: folding changes the last bits of the logits, bfloat16
the third digit, and with them votes on images between two classes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rs.certification.quantize import NO_CALIBRATION, Calibration, quantized_members
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
from rs.smoothing.inputs import Function, logits_of, user_code
from rs.smoothing.noise import BLOCK, default_batch, noisy_pair

CASTS: dict[torch.dtype, Callable[[nn.Module], nn.Module]] = {
    torch.float64: nn.Module.double,
    torch.float32: nn.Module.float,
    torch.bfloat16: nn.Module.bfloat16,
}
"""Conversions of a network's real weights. ``Module.to`` would make complex weights real."""


class Optimized(NamedTuple):
    """A classifier as it runs."""

    module: nn.Module
    precision: Precision  # to run it in; float32 if the weights themselves are in bfloat16
    batch: int | None  # noisy images at once
    engine: InferenceEngine  # that runs: "folded" if there was no compiler for "compiled"


def optimize_for_inference(
    module: nn.Module,
    engine: InferenceEngine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None = None,
    calibration: Calibration = NO_CALIBRATION,
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
        calibration: Where the engine ``quantized`` takes its networks from.
    Returns:
        The optimized classifier; if a network cannot be compiled, the folded one, with a warning on
        stderr.
    Raises:
        InputError: If there is no such engine or precision, a plain function is to be run by
            another engine than plain, what is folded is not one function of each image, or a
            quantized network is to run in bfloat16 or elsewhere than on a CPU.
    """
    check_choice("engine", engine, get_args(InferenceEngine))
    check_choice("precision", precision, get_args(Precision))
    with products(device, precision):  # what is chosen and compiled here depends on it
        if engine == "plain":
            return Optimized(_moved(module, device, precision), precision, batch, engine)
        if any(isinstance(member, Function) for member in members_of(module)):
            raise InputError(
                "engine must be plain for a plain function, whose networks are not known, got "
                f"{engine}; give the nn.Module"
            )
        if engine == "quantized":
            if precision != "float32" or device.type != "cpu":
                raise InputError(
                    "engine quantized must run on a CPU, with precision left at float32, got "
                    f"{precision} on {device.type}; use engine compiled there"
                )
            networks = quantized_members(members_of(module.cpu()), calibration, shape)
        else:
            networks = _folded_members(module, engine, precision, shape, device)
        if engine == "compiled":
            image = torch.zeros(*shape, device=device)
            batch = batch or min(BLOCK, default_batch(image))
            sample = image.expand(batch, *shape).contiguous()
            try:
                networks = [_compiled_network(network, sample) for network in networks]
            except Exception as error:  # each compiler raises errors of its own
                warn_of_fallback("is not compiled", error)
                engine = "folded"
    optimized = networks[0]
    if isinstance(module, Ensemble):
        optimized = Ensemble(networks, module.rule).eval()
    stored = "float32" if precision == "bfloat16" else precision
    return Optimized(optimized, stored, batch, engine)


def members_of(module: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble; of another classifier, itself."""
    return list(module.members) if isinstance(module, Ensemble) else [module]


def _moved(module: nn.Module, device: torch.device, precision: Precision) -> nn.Module:
    """Return the classifier on its device, there in the order of memory that is fastest."""
    module = module.to(device)
    if device.type == "cuda":  # on a CPU the order of its author
        module = module.to(memory_format=layout(device, DTYPES[precision]))
    return module


def _folded_members(
    module: nn.Module,
    engine: InferenceEngine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
) -> list[nn.Module]:
    networks = []
    for member in members_of(_moved(module, device, precision)):
        # The copy may call what was not copied, or compute with what was not converted.
        try:
            network = fold(member, DTYPES[precision], shape)
            check_deterministic(network, noisy_pair(shape, device), precision)
        except InputError as error:
            raise InputError(f"with engine {engine} {error}; or use engine plain") from error
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
    Raises:
        InputError: If the network cannot be copied.
    """
    try:
        check_folding(module, shape, _split)
        return _split(copy_network(module).eval(), dtype)
    except Exception as error:  # tracing arbitrary networks may raise anything
        warn_of_fallback("keeps its batch norms", error)
        with user_code("the network must be one that can be copied"):
            copied = copy_network(module).eval()
        return InferenceNetwork(nn.Identity(), _cast(module, copied, dtype), dtype)


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
    folded = CASTS[dtype](folded).to(memory_format=layout(device_of(network), dtype))
    for name, module in last_layers.items():
        folded.set_submodule(name, module)
    return folded


class InferenceNetwork(nn.Module):
    """Normalization in float32, then a network in ``dtype``; logits in float32.

    To compare it with the original, all of it may be in float64.
    """

    def __init__(self, normalize: nn.Module, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.normalize = normalize
        self.network = network
        self.dtype = dtype
        self.layout = layout(device_of(network), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        x = self.normalize(x)
        logits = logits_of(self.network(x.to(self.dtype, memory_format=self.layout)))
        return logits if self.dtype == torch.float64 else logits.float()


class FixedBatch(nn.Module):
    """A compiled classifier, which takes batches of one size."""

    def __init__(self, compiled: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.compiled = compiled
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W), in batches whose last one is padded."""
        logits = []
        for batch in x.split(self.size):
            missing = self.size - len(batch)
            padded = batch
            if missing:
                padded = torch.cat([batch, batch.new_zeros(missing, *batch.shape[1:])])
            # a copy, because a CUDA graph reuses the memory of its output
            logits.append(self.compiled(padded)[: len(batch)].clone())
        return torch.cat(logits)


def _compiled_network(module: nn.Module, sample: Tensor) -> nn.Module:
    """Compile for batches like ``sample``, and run it, because compilers fail at the first call."""
    network = FixedBatch(compiled(module, sample.device, frozen=True), len(sample))
    # Without gradients, as in certification; with them it would be compiled again.
    with torch.no_grad(), raised_compile_limit():
        for _ in range(WARM_UP_PASSES):
            network(sample.clone())
    return network
