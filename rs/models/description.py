"""A model as text that differs where anything that can change its answers differs; what cannot be seen is refused."""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NotImplementedType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from rs.errors import InputError

LIBRARIES = ("torch", "torchvision", "numpy", "rs")
"""Packages whose code is known by its version, so that names stand for their functions and for what classes hold."""

Outer = tuple[Any, ...]
"""What a value lies in, outermost first."""


def describe(value: Any, where: str = "", outer: Outer = ()) -> str:
    """Describe a value and all it holds: unlike values have unlike descriptions, equal ones the same in any process.

    A number, a string, a tensor, an array, an enum or a container says its type and its content; a function its code,
    defaults and closure; a module or another instance of a Python class all its attributes, with the constants of its
    class. Left out are the mode, gradients, and where in memory numbers lie.

    Args:
        value: What to describe.
        where: Its dotted path, for messages.
        outer: What it lies in, to be recognised there.
    Raises:
        InputError: If something in it keeps what it is to itself, as a generator, a file or a lock does.
    """
    for depth, one in enumerate(outer):
        if one is value:
            return f"outer({depth})"
    for kinds, text in KINDS:
        if isinstance(value, kinds):
            return f"{name(type(value))}({text(value, where, (*outer, value))})"
    raise refusal(value, where)


def refusal(value: Any, where: str) -> InputError:
    """Return the error that names an attribute that cannot be described."""
    return InputError(
        f"the model's attribute {where or 'itself'} must be of a kind whose content can be told, because its answers "
        f"may depend on it, got {name(type(value))}; make it a number, a tensor or a registered buffer"
    )


def name(value: Any) -> str:
    """Return the qualified name of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"


def _listed(values: Iterable[Any], where: str, outer: Outer) -> str:
    return ", ".join(describe(value, f"{where}[{number}]", outer) for number, value in enumerate(values))


def _named(values: Mapping[str, Any], where: str, outer: Outer) -> str:
    described = (f"{key!r}={describe(value, f'{where}.{key}'.lstrip('.'), outer)}" for key, value in values.items())
    return ", ".join(described)


# ------------------------------------------------------------------------------------------------- data


def _repr(value: Any, where: str, outer: Outer) -> str:
    return repr(value)


def _tensor(value: Tensor, where: str, outer: Outer) -> str:
    if (
        type(value) not in (Tensor, nn.Parameter)
        or value.layout != torch.strided
        or value.is_quantized
        or value.is_meta
    ):
        raise refusal(value, where)
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return f"{value.dtype}, {tuple(value.shape)}, {_sum(plain.flatten().view(torch.uint8).numpy().tobytes())}"


def _array(value: np.ndarray | np.generic, where: str, outer: Outer) -> str:
    if value.dtype.hasobject or not (isinstance(value, np.generic) or type(value) in (np.ndarray, np.memmap)):
        raise refusal(value, where)
    return f"{value.dtype.str}, {value.dtype.descr}, {value.shape}, {_sum(value.tobytes())}"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _enum(value: Enum, where: str, outer: Outer) -> str:
    return f"{value.name}, {describe(value.value, where, outer)}"


def _plain(value: Any, where: str, outer: Outer) -> str:
    """Describe a number or a string."""
    base = next(kind for kind in PLAIN if isinstance(value, kind))
    return base.__repr__(value) + _further(value, where, outer)


def _container(value: Any, where: str, outer: Outer) -> str:
    """Describe the content of a container, in its order."""
    if isinstance(value, dict):
        pairs = ((describe(key, where, outer), describe(one, f"{where}[{key!r}]", outer)) for key, one in value.items())
        text = ", ".join(f"{key}: {one}" for key, one in pairs)
    elif isinstance(value, set | frozenset):
        text = ", ".join(sorted(describe(one, where, outer) for one in value))
    else:
        text = _listed(value, where, outer)
    return f"[{text}]{_further(value, where, outer)}"


def _further(value: Any, where: str, outer: Outer) -> str:
    """Describe what a subclass of a number, a string or a container adds to it."""
    return "" if type(value) in (*PLAIN, *CONTAINERS) else f", {_instance(value, where, outer)}"


def _slice(value: slice, where: str, outer: Outer) -> str:
    return _listed((value.start, value.stop, value.step), where, outer)


# ------------------------------------------------------------------------------------------------- code


def _by_name(value: Any) -> bool:
    """Tell whether the qualified name of a library function leads to it."""
    target = sys.modules.get(value.__module__) if str(value.__module__).split(".")[0] in LIBRARIES else None
    for step in value.__qualname__.split("."):
        target = getattr(target, step, None)
    return target is value


def _function(value: FunctionType, where: str, outer: Outer) -> str:
    if _by_name(value):
        return name(value)
    cells = [_content(cell) for cell in value.__closure__ or ()]
    parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, vars(value)]
    return f"{name(value)}, {_listed(parts, where, outer)}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a name that has no value yet
        return ...


def _code(value: CodeType, where: str, outer: Outer) -> str:
    counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
    return _listed((value.co_code, value.co_exceptiontable, value.co_consts, counts, names), where, outer)


def _method(value: MethodType, where: str, outer: Outer) -> str:
    return _listed((value.__func__, value.__self__), where, outer)


def _builtin(value: BuiltinFunctionType, where: str, outer: Outer) -> str:
    """Describe a function that is not written in Python, and what it is bound to."""
    owner = value.__self__
    free = owner is None or isinstance(owner, ModuleType | type)
    return name(value) if free else f"{name(value)}, {describe(owner, where, outer)}"


def _descriptor(value: MethodDescriptorType | WrapperDescriptorType, where: str, outer: Outer) -> str:
    return f"{name(value.__objclass__)}.{value.__name__}"


def _class(value: type, where: str, outer: Outer) -> str:
    return name(value)


def _ufunc(value: np.ufunc, where: str, outer: Outer) -> str:
    return value.__name__


def _partial(value: partial[Any], where: str, outer: Outer) -> str:
    return _listed((value.func, value.args, value.keywords, vars(value)), where, outer)


def _reference(value: weakref.ref[Any], where: str, outer: Outer) -> str:
    return describe(value(), where, outer)


# ------------------------------------------------------------------------------------------------- instances

HEAP, IMMUTABLE, NO_INSTANCES = 1 << 9, 1 << 8, 1 << 7  # flags of a type in CPython's object.h


def _instance(value: Any, where: str, outer: Outer) -> str:
    """Describe all attributes of an instance of a Python class, with the constants of its class."""
    kinds = type(value).__mro__
    if not all(kind in OPEN or _in_python(kind) for kind in kinds):
        raise refusal(value, where)
    slots = [key for kind in kinds for key, one in vars(kind).items() if isinstance(one, MemberDescriptorType)]
    held = {key: getattr(value, key) for key in slots if hasattr(value, key)} | getattr(value, "__dict__", {})
    return _named(dict(sorted(held.items())) | _constants(type(value)), where, outer)


def _in_python(kind: type) -> bool:
    """Tell whether a class is written in Python: C types are immutable, or create their instances themselves."""
    flags = kind.__flags__
    makes = isinstance(vars(kind).get("__new__"), BuiltinFunctionType)
    return bool(flags & HEAP) and not flags & (IMMUTABLE | NO_INSTANCES) and not makes


def _constants(kind: type) -> dict[str, Any]:
    """Return what the classes of an instance hold beside functions, without library classes; by CLASS.NAME."""
    classes = [one for one in kind.__mro__ if one is not object and one.__module__.split(".")[0] not in LIBRARIES]
    return {
        f"{one.__qualname__}.{key}": value
        for one in classes
        for key, value in sorted(vars(one).items())
        if not (key.startswith("__") and key.endswith("__")) and key != "_abc_impl" and not hasattr(value, "__get__")
    }


# ------------------------------------------------------------------------------------------------- modules

BOOKKEEPING = {*vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile"}
"""Attributes that torch keeps in a module for itself; the hooks among them are described apart."""


def _module(value: nn.Module, where: str, outer: Outer) -> str:
    """Describe attributes, hooks, parameters, buffers and children of a module, with the constants of its class."""
    parts = [
        dict(sorted(_attributes(value).items())) | _constants(type(value)),
        *(dict(sorted(tensors.items())) for tensors in (value._parameters, value._buffers)),
        value._modules,
    ]
    hooks = _listed(_hooks(value), f"{where}.hooks".lstrip("."), outer)
    return "; ".join([*(_named(part, where, outer) for part in parts), hooks])


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module without torch's own: of a traced one its code, of a compiled one nothing."""
    if name(type(module)) == "torch._dynamo.eval_frame.OptimizedModule":
        return {}
    if not isinstance(module, fx.GraphModule):
        return {key: value for key, value in vars(module).items() if key not in BOOKKEEPING}
    traced = vars(fx.GraphModule(nn.Module(), fx.Graph()))
    return {key: value for key, value in vars(module).items() if key not in traced} | {"code": module.code}


def _hooks(module: nn.Module) -> Iterator[tuple[Any, ...]]:
    """Yield the functions that run before and after the forward of a module, and how they are called."""
    for number, hook in module._forward_pre_hooks.items():
        yield "before", hook, number in module._forward_pre_hooks_with_kwargs
    for number, hook in module._forward_hooks.items():
        always = number in module._forward_hooks_always_called
        yield "after", hook, number in module._forward_hooks_with_kwargs, always


PLAIN = (bool, int, float, complex, str, bytes, bytearray)
CONTAINERS = (list, tuple, dict, set, frozenset)
OPEN = {object, *PLAIN, *CONTAINERS, torch.Size, OrderedDict, defaultdict, SimpleNamespace}
"""Types in C whose instances hold nothing that is not described."""

REPR = (range, PurePath, torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype)

KINDS: list[tuple[Any, Callable[[Any, str, Outer], str]]] = [
    ((type(None), EllipsisType, NotImplementedType, *REPR), _repr),
    (Enum, _enum),
    ((np.generic, np.ndarray), _array),
    (PLAIN, _plain),
    (Tensor, _tensor),
    (CONTAINERS, _container),
    (slice, _slice),
    (nn.Module, _module),
    (type, _class),
    (FunctionType, _function),
    (CodeType, _code),
    (MethodType, _method),
    (BuiltinFunctionType, _builtin),
    ((MethodDescriptorType, WrapperDescriptorType), _descriptor),
    (np.ufunc, _ufunc),
    (partial, _partial),
    (weakref.ref, _reference),
    (object, _instance),
]
"""What is described how; the first that fits counts."""
