"""The network as training runs it: the same losses, arranged to be fast.

An attack asks for gradients in the image alone, of the network in eval mode. There each batch norm is an affine map, so
it is folded into the convolution before it, and the weights are constants: less to compute, less to keep for the
backward pass. The folded network holds no copies: it folds the weights of the moment in each pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rs.models.backend import PASSES, Engine, check_folding, compiled, unlimited, warn


def network(model: nn.Module, engine: Engine, shape: Sequence[int], *, compile_training: bool = True) -> nn.Module:
    """What a method's loss is given for a model in training.

    Args:
        model: What is trained; in train mode.
        engine: ``plain`` is the model itself. ``folded`` folds it for attacks. ``compiled`` compiles both as well, for
            the first shape of noisy images that comes, with CUDA graphs on a GPU.
        shape: (C, H, W) of an image.
        compile_training: Whether ``compiled`` compiles the network of the loss too.
    """
    if engine == "plain":
        return model
    attacked = frozen(model, shape)
    if engine == "folded":
        return TrainedNetwork(model, attacked)
    return TrainedNetwork(OneShape(model) if compile_training else model, OneShape(attacked))


def begin_step(device: torch.device) -> None:
    """Say that what earlier steps computed is no longer needed: CUDA graphs write to the same places again."""
    if device.type == "cuda":  # elsewhere there are none, and this imports the compiler
        torch.compiler.cudagraph_mark_step_begin()


class TrainedNetwork(nn.Module):
    """Two networks with one set of parameters: for the loss in train mode, for attacks in eval mode."""

    def __init__(self, trained: nn.Module, attacked: nn.Module) -> None:
        super().__init__()
        self._networks = (attacked, trained)  # not registered: each of them stays in its own mode

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        return self._networks[self.training](x)


class OneShape(nn.Module):
    """A network that is compiled for the first shape that comes with gradients; everything else runs as it is."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._shape: torch.Size | None = None
        self._fastest: tuple[Callable[[Tensor], Tensor]] = (module,)  # in a tuple, since it is no part of this one

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> logits (N, K)."""
        if not torch.is_grad_enabled():
            return self.module(x)
        if self._shape is None:
            self._try(x)
        return self._fastest[0](x) if x.shape == self._shape else self.module(x)

    def _try(self, x: Tensor) -> None:
        """Compile, and go forward and back once, because compilers fail when they are first needed."""
        self._shape = x.shape
        kept = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            made = compiled(self.module, x.device)
            with unlimited():
                for _ in range(PASSES if x.is_cuda else 1):
                    begin_step(x.device)
                    made(x.detach().requires_grad_(x.requires_grad)).sum().backward()
                    self.module.zero_grad(set_to_none=True)
            self._fastest = (made,)
        except Exception as error:  # a compiler fails in as many ways as there are compilers
            warn("is not compiled", error)
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(kept[name])  # the statistics of batch norm have seen this batch once already


def frozen(model: nn.Module, shape: Sequence[int]) -> nn.Module:
    """The network in eval mode with its batch norms folded, for gradients in the image alone.

    It shares parameters and statistics with ``model`` and follows them; nothing it computes reaches their gradients. It
    is compared with the model in float64. A network that ``torch.fx`` cannot trace, or traces wrongly, keeps its batch
    norms, with a warning on stderr.

    Args:
        model: Left as it is.
        shape: (C, H, W) of an image.
    """
    try:
        check_folding(model, shape, _folded)
        return _folded(model)
    except Exception as error:  # of networks of every kind, which tracing may break in every way
        warn("keeps its batch norms in attacks", error)
        return _twin(model)


def _twin(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose parameters are the model's, in the same memory, without gradients."""
    constants = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, constants | {id(buffer): buffer for buffer in model.buffers()}).eval()


def _folded(model: nn.Module) -> nn.Module:
    from torch import fx  # which takes time to import, and the plain engine does without

    traced = fx.symbolic_trace(_twin(model))
    modules = dict(traced.named_modules())
    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    for number, node in enumerate(list(traced.graph.nodes)):
        source = node.args[0] if node.args else None
        if not (_calls(node, nn.BatchNorm2d, modules) and _calls(source, nn.Conv2d, modules)):
            continue
        if len(source.users) == 1 and calls.count(source.target) == calls.count(node.target) == 1:
            traced.add_submodule(f"folded{number}", FoldedConv(modules[source.target], modules[node.target]))
            source.target = f"folded{number}"
            node.replace_all_uses_with(source)
            traced.graph.erase_node(node)
    traced.recompile()
    return traced.eval()


def _calls(node: object, kind: type[nn.Module], modules: dict[str, nn.Module]) -> bool:
    is_call = getattr(node, "op", None) == "call_module"
    return is_call and isinstance(modules[node.target], kind)


class FoldedConv(nn.Module):
    """A convolution and the batch norm behind it, in eval mode, as one convolution with the weights of the moment."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """BN(W * x + c) = (s W) * x + s (c - mean) + b, with s = gamma / sqrt(var + eps)."""
        conv, norm = self.conv, self.norm
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else norm.weight * scale
        shift = (0.0 if conv.bias is None else conv.bias) - norm.running_mean
        shift = shift * scale + (0.0 if norm.bias is None else norm.bias)
        weight = conv.weight * scale[:, None, None, None]
        return F.conv2d(x, weight, shift, conv.stride, conv.padding, conv.dilation, conv.groups)
