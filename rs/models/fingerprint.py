"""What identifies a model: a fingerprint of what it holds, and the source of a user's modules.

A fingerprint sees types, parameters, buffers, attributes and hooks. It does not see the code of methods nor the
constants of classes, which :func:`sources` holds; what an object leaves out when it is pickled; files that code reads.
"""

from __future__ import annotations

import copyreg
import hashlib
import itertools
import pkgutil
import sys
import sysconfig
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from rs.errors import InputError
from rs.runtime.code_fingerprint import imported_names

LIBRARIES = ("torch", "torchvision", "numpy", "rs")
"""Packages whose code is known by its version, so that the name of a function of theirs stands for it."""

REPR = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""Types whose ``repr`` is their whole content."""

BOOKKEEPING = {*vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile"}
"""Attributes that torch keeps in a module for itself; the hooks among them are described apart."""

Outer = tuple[Any, ...]
"""What a value lies in, outermost first."""


def model_fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of the description of a classifier.

    Raises:
        InputError: If an attribute cannot be described (:func:`describe`).
    """
    return hashlib.sha256(describe(model).encode()).hexdigest()


def describe(value: Any, where: str = "", outer: Outer = ()) -> str:
    """Describe a value and all it holds: equal values have equal descriptions in any process.

    A tensor is its numbers; a module its attributes, tensors, children and hooks; a function its code, defaults and
    closure; any other object what pickle would store of it. Left out are the mode, gradients, and where in memory
    numbers lie.

    Args:
        value: What to describe.
        where: Its dotted path, for messages.
        outer: What it lies in, to be recognised there.
    Raises:
        InputError: If something in it keeps what it is to itself, as a generator, a file or a lock does.
    """
    for depth, holder in enumerate(outer):
        if holder is value:
            return f"outer({depth})"
    return f"{name(type(value))}({_content(value, where, (*outer, value))})"


def _content(value: Any, where: str, outer: Outer) -> str:
    if type(value) in REPR:
        return repr(value)
    if type(value) in (list, tuple):
        return f"[{_listed(value, where, outer)}]"
    if type(value) is dict:
        return f"[{_pairs(value, where, outer)}]"
    if type(value) in (set, frozenset):
        return f"[{', '.join(sorted(describe(item, where, outer) for item in value))}]"
    if isinstance(value, nn.Module):
        return _module(value, where, outer)
    if isinstance(value, Tensor):
        return _tensor(value, where)
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return f"{value.dtype.str}, {value.dtype.descr}, {value.shape}, {_sum(value.tobytes())}"
    if isinstance(value, type):
        return name(value)
    if isinstance(value, FunctionType):
        return _function(value, where, outer)
    if isinstance(value, CodeType):
        return _code(value, where, outer)
    if isinstance(value, weakref.ref):
        return describe(value(), where, outer)
    return _pickled(value, where, outer)


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


def _pairs(values: Mapping[Any, Any], where: str, outer: Outer) -> str:
    pairs = ((describe(key, where, outer), describe(item, f"{where}[{key!r}]", outer)) for key, item in values.items())
    return ", ".join(f"{key}: {item}" for key, item in pairs)


def _named(values: Mapping[str, Any], where: str, outer: Outer) -> str:
    described = (f"{key!r}={describe(value, f'{where}.{key}'.lstrip('.'), outer)}" for key, value in values.items())
    return ", ".join(described)


def _tensor(value: Tensor, where: str) -> str:
    is_dense = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    if type(value) not in (Tensor, nn.Parameter) or not is_dense:
        raise refusal(value, where)
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return f"{value.dtype}, {tuple(value.shape)}, {_sum(plain.flatten().view(torch.uint8).numpy().tobytes())}"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _function(value: FunctionType, where: str, outer: Outer) -> str:
    """Describe a function: one of a library by its name, others by code, defaults, closure and attributes."""
    if value.__globals__["__name__"].partition(".")[0] in LIBRARIES and "<" not in value.__qualname__:
        return name(value)
    try:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError as error:  # a name has no value yet
        raise refusal(value, where) from error
    parts = (value.__code__, value.__defaults__, value.__kwdefaults__, cells, vars(value))
    return f"{name(value)}, {_listed(parts, where, outer)}"


def _code(value: CodeType, where: str, outer: Outer) -> str:
    counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
    return _listed((value.co_code, value.co_exceptiontable, value.co_consts, counts, names), where, outer)


def _pickled(value: Any, where: str, outer: Outer) -> str:
    """Describe what pickle would store: of an instance its attributes, of other objects what makes them again."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        stored: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(stored, str):  # the name of one that is there once
            return stored
        make, arguments, state = (*stored, None)[:3]
        parts = [name(make), arguments, state, *(list(part or ()) for part in stored[3:])]
    except Exception as error:  # objects say in their own ways that they cannot be stored
        raise refusal(value, where) from error
    is_instance = parts[:2] == ["copyreg.__newobj__", (type(value),)] and not any(parts[3:])
    if is_instance and isinstance(state or {}, dict):
        return _named(dict(sorted((state or {}).items())), where, outer)
    return _listed(parts, where, outer)


def _module(value: nn.Module, where: str, outer: Outer) -> str:
    """Describe attributes, parameters, buffers, children and hooks of a module."""
    tensors = (value._parameters, value._buffers)
    parts = [*(dict(sorted(part.items())) for part in (_attributes(value), *tensors)), value._modules]
    hooks = _listed(_hooks(value), f"{where}.hooks".lstrip("."), outer)
    return "; ".join([*(_named(part, where, outer) for part in parts), hooks])


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module without torch's own: of a traced one its code, of a compiled one nothing."""
    if name(type(module)) == "torch._dynamo.eval_frame.OptimizedModule":
        return {}
    if isinstance(module, fx.GraphModule):
        return {"code": module.code}
    return {key: value for key, value in vars(module).items() if key not in BOOKKEEPING}


def _hooks(module: nn.Module) -> Iterator[tuple[Any, ...]]:
    """Yield the functions that run before and after the forward of a module, and how they are called."""
    for number, hook in module._forward_pre_hooks.items():
        yield "before", hook, number in module._forward_pre_hooks_with_kwargs
    for number, hook in module._forward_hooks.items():
        always = number in module._forward_hooks_always_called
        yield "after", hook, number in module._forward_hooks_with_kwargs, always


# ------------------------------------------------------------------------------------------------- users' modules


def sources(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the source of modules that are no part of this project, and of all they import, at any depth of functions.

    Nothing is imported or run for it. What lies in the standard library or among installed packages is left out unless
    it is one of ``modules``, and so is what only it imports; a module without a file has no source.

    Args:
        modules: Names of modules, with dots.
    Returns:
        From the name of each module to the bytes of its file, a compiled one too; sorted.
    """
    contents: dict[str, bytes] = {}
    asked, seen = set(modules), set()
    waiting = [parent for module in asked for parent in _with_parents(module)]
    while waiting:
        module = waiting.pop()
        if module in seen or module.partition(".")[0] == "rs":
            continue
        seen.add(module)
        file, folders = _file_and_folders(module)
        if file is not None and Path(file).is_file() and (module in asked or not _is_installed(Path(file))):
            contents[module] = Path(file).read_bytes()
            package = module if folders is not None else module.rpartition(".")[0]
            with suppress(SyntaxError, ValueError):  # what is no Python imports nothing
                imported = imported_names(contents[module], package) if file.endswith(".py") else []
                waiting += [parent for child in imported for parent in _with_parents(child)]
    return dict(sorted(contents.items()))


def _with_parents(module: str) -> Iterator[str]:
    """Yield a module and its packages, which are imported before it."""
    return itertools.accumulate(module.split("."), "{}.{}".format)


def _file_and_folders(module: str) -> tuple[str | None, Iterable[str] | None]:
    """Return the file of a module and, of a package, the folders of its modules; without importing it."""
    if (loaded := sys.modules.get(module)) is not None:
        return getattr(loaded, "__file__", None), getattr(loaded, "__path__", None)
    package = module.rpartition(".")[0]
    folders = _file_and_folders(package)[1] if package else None
    if package and folders is None:
        return None, None
    finders = filter(None, map(pkgutil.get_importer, sys.path if folders is None else folders))
    specs = [spec for finder in finders if (spec := finder.find_spec(module)) is not None]
    for spec in specs:
        if spec.has_location:
            return spec.origin, spec.submodule_search_locations
    portions = [folder for spec in specs for folder in spec.submodule_search_locations or ()]  # of a namespace package
    return None, portions or None


def _is_installed(path: Path) -> bool:
    """Return whether a file is of the standard library or of an installed package."""
    standard = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(map(path.is_relative_to, standard))
