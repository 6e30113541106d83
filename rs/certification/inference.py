"""The network as certification runs it: the same function of the image, arranged to be fast.

The certificate is about the network as it runs, so the engine is part of what rows say of themselves: folding changes
the last bits of the logits, bfloat16 the third digit, and with them, on images between two classes, votes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor, nn

from rs.ensemble.rules import Ensemble
from rs.errors import InputError
from rs.models.architectures import Logits
from rs.models.backend import PASSES, Engine, check_folding, compiled, unlimited, warn
from rs.smoothing.attack import evaluating
from rs.smoothing.classifier import Precision, autocast, default_batch
from rs.smoothing.noise import BLOCK


class Arrangement(NamedTuple):
    """A classifier as it will run."""

    module: nn.Module
    precision: Precision  # of autocast; float32, which is none, where the weights are in bfloat16 themselves
    batch: int | None  # noisy images at once
    engine: Engine  # what it is in the end: "folded" where there was no compiler for "compiled"


def arrange(
    module: nn.Module,
    engine: Engine,
    precision: Precision,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None = None,
) -> Arrangement:
    """Arrange a classifier for many forward passes; of an ensemble, each member.

    Args:
        module: Images (N, C, H, W) -> logits (N, K); left as it is, but moved to ``device``.
        engine: ``plain`` leaves it as it is. ``folded`` folds each batch norm into the convolution before it (exact
            but for rounding), and holds the weights in ``precision``. ``compiled`` compiles that as well, for batches
            of one size: smaller ones are filled up to it, and cost as much.
        precision: ``float32`` or ``bfloat16``.
        shape: (C, H, W) of an image.
        batch: Noisy images at once; chosen if ``None``, on a GPU so that they fit its memory.
    Returns:
        The arrangement. Where there is no compiler it is a folded one, with a warning on stderr.
    Raises:
        InputError: If there is no such engine or precision, or not even the smallest batch fits.
    """
    for name, given, known in (("engine", engine, Engine), ("precision", precision, Precision)):
        if given not in get_args(known):
            raise InputError(f"{name} must be one of {', '.join(get_args(known))}; got {given!r}")
    module = module.to(device)
    if batch is None and device.type == "cuda":
        batch = _batch_of_gpu(module, precision, torch.zeros(*shape, device=device))
    if engine == "plain":
        return Arrangement(module, precision, batch, engine)
    if engine == "compiled":
        batch = batch or BLOCK
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    members = module.members if isinstance(module, Ensemble) else [module]
    made, engines = zip(*(_arranged(one, engine, dtype, shape, device, batch) for one in members), strict=True)
    arranged = Ensemble(made, module.rule).eval() if isinstance(module, Ensemble) else made[0]
    return Arrangement(arranged, "float32", batch, engine if set(engines) == {engine} else "folded")


def _batch_of_gpu(module: nn.Module, precision: Precision, x: Tensor) -> int:
    def evaluate(size: int) -> None:
        with torch.inference_mode(), evaluating(module), autocast(x.device, precision):
            module(x.expand(size, *x.shape).contiguous())

    size = fitting(evaluate, default_batch(x))
    torch.cuda.empty_cache()  # of what a plain network took, which is more than what will run
    return size


def fitting(evaluate: Callable[[int], None], size: int) -> int:
    """Halve a batch, in blocks of noise, until ``evaluate(batch)`` does not run out of a GPU's memory.

    Raises:
        InputError: If not even one block fits.
    """
    while True:
        try:
            evaluate(size)
            return size
        except torch.OutOfMemoryError as error:
            if size <= BLOCK:
                raise InputError(f"{BLOCK} noisy images must fit the memory of the GPU, but: {error}") from error
            size = max(BLOCK, size // 2 // BLOCK * BLOCK)


def _arranged(
    module: nn.Module,
    engine: Engine,
    dtype: torch.dtype,
    shape: Sequence[int],
    device: torch.device,
    batch: int | None,
) -> tuple[nn.Module, Engine]:
    folded = fold(module, dtype, shape)
    if engine == "folded":
        return folded, engine
    try:
        return _compiled(folded, torch.zeros(batch, *shape, device=device)), engine
    except Exception as error:  # a compiler fails in as many ways as there are compilers
        warn("is not compiled", error)
        return folded, "folded"


def fold(module: nn.Module, dtype: torch.dtype, shape: Sequence[int]) -> nn.Module:
    """Fold every batch norm into the convolution before it, for evaluation alone.

    The folded network is compared with the original in float64. One that ``torch.fx`` cannot trace, or traces wrongly
    (hooks, a convolution that is used twice), keeps its batch norms, with a warning on stderr.

    Args:
        module: Left as it is. Where it is a ``normalize`` and a ``network`` (``rs.models.architectures.build``), the
            normalisation stays in float32.
        dtype: Of weights and activations; the layer of logits of a network of this project stays in float32, and
            the logits of every network come back in float32.
        shape: (C, H, W) of an image.
    """
    from torch.fx.experimental.optimization import fuse

    try:
        check_folding(module, shape, lambda exact: _split(exact, fuse).exactly)
        return _split(copy.deepcopy(module).eval(), fuse, dtype)
    except Exception as error:  # of networks of every kind, which tracing may break in every way
        warn("keeps its batch norms", error)
        return Arranged(nn.Identity(), _cast(module, copy.deepcopy(module).eval(), dtype), dtype)


def _split(module: nn.Module, fuse: Callable[[nn.Module], nn.Module], dtype: torch.dtype | None = None) -> Arranged:
    """Fuse a classifier's network, in ``dtype`` if it is given, and leave its normalisation as it is."""
    normalize, network = nn.Identity(), module
    if isinstance(module, nn.Sequential) and [name for name, _ in module.named_children()] == ["normalize", "network"]:
        normalize, network = module
    fused = fuse(network)
    if dtype is not None:
        fused = _cast(network, fused, dtype)
    return Arranged(normalize, fused, dtype or torch.float64).eval()


def _cast(network: nn.Module, fused: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Hold the weights in ``dtype``, but those of the layer of logits, which computes in float32, as they are."""
    last = [name for name, module in network.named_modules() if isinstance(module, Logits)]
    kept = {name: copy.deepcopy(fused.get_submodule(name)) for name in last}
    fused = fused.to(dtype, memory_format=torch.channels_last)
    for name, module in kept.items():
        fused.set_submodule(name, module)
    return fused


class Arranged(nn.Module):
    """Normalisation in float32, then a network in ``dtype``; logits in float32."""

    def __init__(self, normalize: nn.Module, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.normalize, self.network, self.dtype = normalize, network, dtype

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        return self.network(self.normalize(x).to(self.dtype, memory_format=torch.channels_last)).float()

    def exactly(self, x: Tensor) -> Tensor:
        """The same in the precision of the image, to compare with."""
        return self.network(self.normalize(x))


class FixedBatch(nn.Module):
    """A compiled classifier, which is given batches of one size: smaller ones are filled up, larger ones are cut."""

    def __init__(self, compiled: Callable[[Tensor], Tensor], size: int) -> None:
        super().__init__()
        self.compiled, self.size = compiled, size

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        return torch.cat([self._part(part) for part in x.split(self.size)])

    def _part(self, x: Tensor) -> Tensor:
        missing = self.size - len(x)
        if not missing:
            return self.compiled(x).clone()  # a graph writes its next output to the same place
        return self.compiled(torch.cat([x, x.new_zeros(missing, *x.shape[1:])]))[: len(x)].clone()


def _compiled(module: nn.Module, sample: Tensor) -> nn.Module:
    """Compile for batches like ``sample``, and try it, because compilers fail when they are first needed."""
    made = FixedBatch(compiled(module, sample.device, frozen=True), len(sample))
    with torch.inference_mode(), unlimited():
        for _ in range(PASSES):
            made(sample.clone())  # a tensor made in inference mode, as those of certification are: others compile again
    return made
