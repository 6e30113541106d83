"""Optimizing networks for inference: batch norm folding, bfloat16 weights, compilation and int8.

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

from rs.certification.quantize import split_normalization
from rs.ensemble.base import Ensemble
from rs.errors import InputError
from rs.models import Engine, InferenceEngine, Precision
from rs.models.architectures import Logits
from rs.models.backend import (
    DTYPES,
    WARM_UP_PASSES,
    check_folding,
    compiled,
    device_of,
    layout,
    trace,
    unlimited,
    warn,
)
from rs.runtime.device import products
from rs.smoothing.determinism import check_deterministic
from rs.smoothing.inputs import Function, logits_of
from rs.smoothing.noise import BLOCK, noisy_pair


class Optimized(NamedTuple):
    """A classifier as it runs."""

    module: nn.Module
    precision: Precision  # to run it in; float32 if the weights themselves are in bfloat16
    batch: int | None  # noisy images at once
    engine: (
        InferenceEngine  # the engine that runs: "folded" if there was no compiler for "compiled"
    )


def optimize_for_inference(
    module: nn.Module,
    engine: InferenceEngine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None = None,
    quantized: Sequence[nn.Module] = (),
) -> Optimized:
    """Optimize a classifier for many forward passes; of an ensemble, each member.

    Args:
        module: Images (N, C, H, W) -> logits (N, K); unchanged, but moved to ``device``.
        engine: ``plain`` uses it unchanged. ``folded`` folds each batch norm into the convolution
            before it (exact up to rounding), and stores the weights in ``precision``. ``compiled``
            also compiles the folded network for batches of one size: smaller ones are padded, and
            cost as much. ``quantized`` has OpenVINO run the networks of ``quantized`` instead, in
            int8, on a CPU.
        precision: ``float32``, ``tf32`` (on a CUDA device) or ``bfloat16``; ``float32`` where a
            quantised network has its own.
        shape: (C, H, W) of an image.
        device: Where it runs.
        batch: Noisy images at once; if ``None``, chosen by the size of an image.
        quantized: A quantised network for the classifier, or for each member of an ensemble
            (:func:`rs.certification.quantize.quantized_members`).
    Returns:
        The optimized classifier; if a network cannot be compiled, the folded one, with a warning on
        stderr.
    Raises:
        InputError: If there is no such engine or precision, a plain function is to be run by
            another engine than plain, what is folded is not one function of each image, or a
            quantised network is to run in bfloat16 or elsewhere than on a CPU.
    """
    _check_engine(module, engine, precision, device)
    with products(device, precision):  # what is chosen and compiled here depends on it
        return _optimized(module, engine, precision, shape, device, batch, quantized)


def _optimized(
    module: nn.Module,
    engine: InferenceEngine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None,
    quantized: Sequence[nn.Module],
) -> Optimized:
    dtype = DTYPES[precision]
    module = module.to(device)
    if device.type == "cuda":  # on a CPU the order of its author
        module = module.to(memory_format=layout(device, dtype))
    if engine == "plain":
        return Optimized(module, precision, batch, engine)
    networks = [*quantized]
    if engine != "quantized":
        networks = [
            _folded(member, engine, precision, shape, device) for member in members_of(module)
        ]
    if engine == "compiled":
        batch = batch or BLOCK
        try:
            networks = [
                _compiled(network, torch.zeros(batch, *shape, device=device))
                for network in networks
            ]
        except Exception as error:  # each compiler raises errors of its own
            warn("is not compiled", error)
            engine = "folded"
    classifier = (
        Ensemble(networks, module.rule).eval() if isinstance(module, Ensemble) else networks[0]
    )
    return Optimized(classifier, "float32" if precision == "bfloat16" else precision, batch, engine)


def _check_engine(
    module: nn.Module, engine: InferenceEngine, precision: Precision, device: torch.device
) -> None:
    for name, value, kind in (
        ("engine", engine, InferenceEngine),
        ("precision", precision, Precision),
    ):
        if value not in get_args(kind):
            raise InputError(f"{name} must be one of {', '.join(get_args(kind))}; got {value!r}")
    if engine != "plain" and any(isinstance(member, Function) for member in members_of(module)):
        raise InputError(
            "engine must be plain for a plain function, whose networks are not known, got "
            f"{engine}; give the nn.Module"
        )
    if engine == "quantized" and (precision != "float32" or device.type != "cpu"):
        raise InputError(
            f"engine quantized must run on a CPU, with precision left at float32, got {precision} "
            f"on {device.type}; "
            "take engine compiled there"
        )


def members_of(module: nn.Module) -> list[nn.Module]:
    """Return the members of an ensemble; of another classifier, itself."""
    return list(module.members) if isinstance(module, Ensemble) else [module]


def _folded(
    module: nn.Module,
    engine: Engine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
) -> nn.Module:
    folded = fold(module, DTYPES[precision], shape)
    pair = noisy_pair(tuple(shape), device)
    try:
        check_deterministic(folded, pair, precision)  # a copy, which may call what was not copied
    except (
        InputError
    ) as error:  # or whose weights were converted, and not what else it computes with
        raise InputError(f"with engine {engine} {error}; or take engine plain") from error
    return folded


def fold(module: nn.Module, dtype: torch.dtype, shape: Sequence[int]) -> nn.Module:
    """Fold every batch norm into the convolution before it, for evaluation only.

    The folded network is compared with the original in float64. A network that ``torch.fx`` cannot
    trace, or traces wrongly (hooks, a convolution that is used twice), keeps its batch norms, with
    a warning on stderr.

    Args:
        module: The classifier, which is not changed. If it consists of ``normalize`` and
            ``network`` (``rs.models.architectures.build``), the normalisation stays in float32,
            unless batch norms are kept.
        dtype: Type of weights and activations. The last layer of a network of this project stays in
            float32, and every network returns its logits in float32.
        shape: (C, H, W) of an image.
    """
    try:
        check_folding(module, shape, lambda exact: _split(exact).exactly)
        return _split(copy.deepcopy(module).eval(), dtype)
    except Exception as error:  # tracing arbitrary networks may raise anything
        warn("keeps its batch norms", error)
        return InferenceNetwork(
            nn.Identity(), _cast(module, copy.deepcopy(module).eval(), dtype), dtype
        )


def _split(module: nn.Module, dtype: torch.dtype | None = None) -> InferenceNetwork:
    """Fuse the network of a classifier, in ``dtype`` if it is given, but not its normalisation."""
    from torch.fx.experimental.optimization import fuse  # which takes time to import

    normalize, network = split_normalization(module)
    fused = fuse(trace(network), no_trace=True)
    if dtype is not None:
        fused = _cast(network, fused, dtype)
    return InferenceNetwork(normalize, fused, dtype or torch.float64).eval()


def _cast(network: nn.Module, fused: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Convert the weights to ``dtype``, except those of the last layer, which computes in float32."""
    names = [name for name, module in network.named_modules() if isinstance(module, Logits)]
    last_layers = {name: copy.deepcopy(fused.get_submodule(name)) for name in names}
    fused = fused.to(dtype).to(memory_format=layout(device_of(network), dtype))
    for name, module in last_layers.items():
        fused.set_submodule(name, module)
    return fused


class InferenceNetwork(nn.Module):
    """Normalisation in float32, then a network in ``dtype``; logits in float32."""

    def __init__(self, normalize: nn.Module, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.normalize, self.network, self.dtype = normalize, network, dtype
        self.layout = layout(device_of(network), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        x = self.normalize(x)
        return logits_of(self.network(x.to(self.dtype, memory_format=self.layout))).float()

    def exactly(self, x: Tensor) -> Tensor:
        """Return the same logits in the precision of the image, for comparison."""
        return logits_of(self.network(self.normalize(x)))


class FixedBatch(nn.Module):
    """A compiled classifier for batches of one size: smaller ones are padded, larger ones are
    split.
    """

    def __init__(self, compiled: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.compiled, self.size = compiled, size

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        return torch.cat([self._part(part) for part in x.split(self.size)])

    def _part(self, x: Tensor) -> Tensor:
        missing = self.size - len(x)
        if not missing:
            return self.compiled(x).clone()  # a CUDA graph reuses the memory of its output
        return self.compiled(torch.cat([x, x.new_zeros(missing, *x.shape[1:])]))[: len(x)].clone()


def _compiled(module: nn.Module, sample: Tensor) -> nn.Module:
    """Compile for batches like ``sample``, and run it, because compilers fail at the first call."""
    network = FixedBatch(compiled(module, sample.device, frozen=True), len(sample))
    with torch.inference_mode(), unlimited():
        for _ in range(WARM_UP_PASSES):
            network(
                sample.clone()
            )  # made in inference mode, as in certification: other tensors compile again
    return network
