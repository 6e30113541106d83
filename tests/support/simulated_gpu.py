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
from torch.multiprocessing.reductions import StorageWeakRef
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
"""Functions that do not take numbers (tensors without axes) from the CPU either."""

MIXED = {torch.Tensor.copy_, torch._has_compatible_shallow_copy_type}
"""Functions that take tensors of two devices."""


class DeviceMismatchError(RuntimeError):
    """What torch refuses where there is a GPU."""


class Generator(torch.Generator):
    """A generator of one of the two devices."""

    def __new__(cls, device="cpu"):
        generator = super().__new__(cls, "cpu")
        generator.place = placed(device)
        return generator

    @property
    def device(self):
        return self.place


def tensors_in(values):
    """All tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def storage_of(tensor):
    """What identifies the storage of a tensor."""
    return tensor.untyped_storage()._cdata


def placed(device):
    """One of the two devices, by any of its names; the one GPU has the number 0."""
    return GPU if torch.device(device).type == "cuda" else CPU


class SimulatedGpu(TorchFunctionMode):
    """Within it ``cuda`` is a device."""

    def __init__(self):
        super().__init__()
        self.storages = {}  # of tensors on the GPU
        self.operations = 0  # on those tensors

    def device_of(self, tensor):
        return GPU if storage_of(tensor) in self.storages else CPU

    def place(self, tensor):
        """Let the storage of a tensor lie on the GPU."""
        storage = tensor.untyped_storage()
        self.storages[storage_of(tensor)] = StorageWeakRef(storage)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in GETTERS:
            return GETTERS[function](self.device_of(args[0]))
        if function is torch.Tensor.pin_memory:  # memory of the CPU all the same
            return args[0]
        tensors = tensors_in((args, kwargs))
        devices = {self.device_of(tensor) for tensor in tensors}
        if function in NUMPY and GPU in devices:
            raise DeviceMismatchError(
                "what lies on the GPU is no NumPy array; copy it to the CPU first"
            )
        if function in MOVES:
            return self._moved(function, args, kwargs)
        if function not in MIXED and function not in SETTERS:
            self._check(function, tensors)
        device = GPU if GPU in devices else CPU
        if kwargs.get("device") is not None:
            device = placed(kwargs["device"])
            kwargs["device"] = CPU
        rng = kwargs.get("generator")
        if rng is not None and rng.device != device:
            raise DeviceMismatchError(
                f"{resolve_name(function)} on {device} takes no generator of {rng.device}"
            )
        known = {storage_of(tensor) for tensor in tensors}
        result = function(*args, **kwargs)
        if device == GPU:
            self.operations += 1
            for tensor in tensors_in(result):
                if storage_of(tensor) not in known:
                    self.place(tensor)
        if function is torch.Tensor.data.__set__ and self.device_of(args[1]) == GPU:
            self.place(args[0])
        return result

    def _moved(self, function, args, kwargs):
        """``to``, ``cpu`` and ``cuda``: a copy where the device is another."""
        tensor, *words = args
        before = self.device_of(tensor)
        after = before
        arguments = []
        if function is torch.Tensor.to:
            for word in words:
                if isinstance(word, torch.Tensor):
                    after = self.device_of(word)
                elif isinstance(word, (torch.device, str)):
                    after = placed(word)
                    word = CPU
                arguments.append(word)
            if kwargs.get("device") is not None:
                after = placed(kwargs["device"])
                kwargs["device"] = CPU
        else:
            after = CPU if function is torch.Tensor.cpu else GPU
            kwargs = {}
        result = torch.Tensor.to(tensor, *arguments, **kwargs) if arguments or kwargs else tensor
        if after != before and storage_of(result) == storage_of(tensor):
            result = result.clone(memory_format=torch.preserve_format)
        if after == GPU:
            self.place(result)
        return result

    def _check(self, function, tensors):
        """Refuse operands on two devices; numbers may come from the CPU."""
        is_strict = function in NEVER_MIXED
        devices = {self.device_of(tensor) for tensor in tensors if tensor.ndim or is_strict}
        of_numbers = {self.device_of(tensor) for tensor in tensors if not tensor.ndim}
        if len(devices) > 1 or (CPU in devices and GPU in of_numbers):
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
        self.module = module
        self.memory = {}

    def forward(self, x):
        outputs = self.module(x)
        if torch.is_grad_enabled():
            return outputs
        return self.memory.setdefault(outputs.shape, outputs.clone()).copy_(outputs)


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
