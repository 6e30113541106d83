"""A simulated GPU: tensors compute on the CPU, and know on which of two devices they lie.

What torch refuses on a machine with a GPU is refused here: operands on two devices, a generator of
the other device, and NumPy arrays of tensors on the GPU. So is an index on the CPU into a tensor on
the GPU, which torch allows but which waits for the GPU. Values are real, so whole commands run,
with the branches that are for a GPU.

As with torch, a storage lies on a device, and a tensor lies where its storage does. Compilers
change nothing here, except that a compiled network without gradients writes all of its outputs into
the same memory, as a CUDA graph does.
"""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from rs.ensemble import outputs

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
NEVER_MIXED = {
    torch.cat,
    torch.stack,
    torch.Tensor.gather,
    torch.Tensor.scatter,
    torch.Tensor.scatter_,
}
"""Functions that take no numbers, tensors of no axes, from the CPU either."""

MIXED = {torch.Tensor.copy_, torch._has_compatible_shallow_copy_type}
"""Functions that take tensors of two devices."""


class DeviceMismatchError(RuntimeError):
    """What torch refuses where there is a GPU."""


class Generator(torch.Generator):
    """A generator of one of the two devices."""

    def __new__(cls, device="cpu"):
        made = super().__new__(cls, "cpu")
        made.place = placed(device)
        return made

    @property
    def device(self):
        return self.place


def placed(device):
    """One of the two devices, by any of its names; the one GPU has the number 0."""
    return GPU if torch.device(device).type == "cuda" else CPU


class SimulatedGpu(TorchFunctionMode):
    """Within it ``cuda`` is a device."""

    def __init__(self):
        super().__init__()
        self.storages = {}  # of tensors on the GPU
        self.operations = 0  # on these tensors

    def device_of(self, tensor):
        return GPU if tensor.untyped_storage()._cdata in self.storages else CPU

    def place(self, tensor):
        storage = tensor.untyped_storage()
        self.storages[storage._cdata] = torch.multiprocessing.reductions.StorageWeakRef(storage)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in GETTERS:
            return GETTERS[function](self.device_of(args[0]))
        if function is torch.Tensor.pin_memory:  # memory of the CPU all the same
            return args[0]
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if function in NUMPY and any(self.device_of(tensor) == GPU for tensor in tensors):
            raise DeviceMismatchError(
                "what lies on the GPU is no NumPy array; copy it to the CPU first"
            )
        if function in MOVES:
            return self._moved(function, args, kwargs)
        if function not in MIXED and function not in SETTERS:
            self._check(function, tensors)
        wanted = self._wanted(function, tensors, kwargs)
        rng = kwargs.get("generator")
        if rng is not None and rng.device != wanted:
            raise DeviceMismatchError(
                f"{resolve_name(function)} on {wanted} takes no generator of {rng.device}"
            )
        if wanted == GPU:
            self.operations += 1
        return self._result(function, args, kwargs, tensors, wanted)

    def _wanted(self, function, tensors, kwargs):
        """The device of the result."""
        given = kwargs.get("device")
        if given is not None:
            kwargs["device"] = CPU
            return placed(given)
        if any(self.device_of(tensor) == GPU for tensor in tensors):
            return GPU
        return CPU

    def _result(self, function, args, kwargs, tensors, wanted):
        known = {tensor.untyped_storage()._cdata for tensor in tensors}
        out = function(*args, **kwargs)
        if wanted == GPU:
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in known:
                    self.place(leaf)
        if function is torch.Tensor.data.__set__ and self.device_of(args[1]) == GPU:
            self.place(args[0])
        return out

    def _moved(self, function, args, kwargs):
        """``to``, ``cpu`` and ``cuda``: a copy where the device is another."""
        own = self.device_of(args[0])
        wanted = {torch.Tensor.cpu: CPU, torch.Tensor.cuda: GPU}.get(function, own)
        words = []
        for word in args[1:] if function is torch.Tensor.to else ():
            if isinstance(word, torch.Tensor):
                wanted = self.device_of(word)
            elif isinstance(word, (torch.device, str)):
                wanted, word = placed(word), CPU
            words.append(word)
        if kwargs.get("device") is not None:
            wanted, kwargs["device"] = placed(kwargs["device"]), CPU
        if function is not torch.Tensor.to:
            kwargs = {}
        out = torch.Tensor.to(args[0], *words, **kwargs) if words or kwargs else args[0]
        if wanted != own and out.untyped_storage()._cdata == args[0].untyped_storage()._cdata:
            out = out.clone(memory_format=torch.preserve_format)
        if wanted == GPU:
            self.place(out)
        return out

    def _check(self, function, tensors):
        strict = function in NEVER_MIXED
        there = {self.device_of(tensor) for tensor in tensors if tensor.ndim or strict}
        here = {self.device_of(tensor) for tensor in tensors if not tensor.ndim}
        if len(there) > 1 or (CPU in there and GPU in here):
            raise DeviceMismatchError(
                f"{resolve_name(function)} expects its tensors on one device, got cpu and cuda:0"
            )


GETTERS = {
    torch.Tensor.device.__get__: lambda device: device,
    torch.Tensor.is_cuda.__get__: lambda device: device == GPU,
}
SETTERS = {torch.Tensor.data.__set__, torch.Tensor.grad.__set__, torch.Tensor.requires_grad.__set__}
NUMPY = {torch.Tensor.numpy, torch.Tensor.__array__}
MOVES = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda}


class Graph(torch.nn.Module):
    """A network whose outputs without gradients share one memory, as those of a CUDA graph do."""

    def __init__(self, module):
        super().__init__()
        self.module, self.memory = module, {}

    def forward(self, x):
        made = self.module(x)
        if torch.is_grad_enabled():
            return made
        return self.memory.setdefault(made.shape, made.clone()).copy_(made)


def autocast(kind, dtype=None, enabled=True):
    """torch's context: the GPU's rounds here, and the CPU's would change nothing on a GPU."""
    return AUTOCAST("cpu", dtype=dtype, enabled=enabled and kind == "cuda")


AUTOCAST = torch.autocast


@contextmanager
def simulated_gpu():
    """Run with a GPU, which ``torch.cuda`` knows of; yields the :class:`SimulatedGpu`."""
    kinds = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]
    before = [kind.fp32_precision for kind in kinds]
    stand_ins = {
        "torch.Generator": Generator,
        "torch.autocast": autocast,
        "torch.compile": lambda module, **_: Graph(module),
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.set_device": lambda device: None,
        "torch.cuda.get_rng_state": lambda device=None: None,
        "torch.cuda.set_rng_state": lambda state, device=None: None,
        "torch.cuda.get_device_name": lambda device=None: "a GPU that is not there",
        "torch.compiler.cudagraph_mark_step_begin": lambda: None,
    }
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(patch(name, stand_in))
        outputs._tensor.cache_clear()  # weights that are kept where they are used
        try:
            yield stack.enter_context(SimulatedGpu())
        finally:
            outputs._tensor.cache_clear()
            for kind, precision in zip(kinds, before, strict=True):
                kind.fp32_precision = precision
