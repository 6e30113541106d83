"""What identifies a model: a fingerprint of what it holds, and the source of a user's modules.

A fingerprint sees types, parameters, buffers and attributes of modules, and the names of functions
and hooks. It does not see code, which :func:`sources` holds; closures, and what objects hold that
are no dataclass; files that code reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rs.errors import InputError
from rs.runtime.code_fingerprint import imported_names

REPR = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""Types whose ``repr`` is their whole content."""

BOOKKEEPING = {
    *vars(nn.Module()),
    "_compiled_call_impl",
    "_is_torch_compile",
    "_torchdynamo_wrapper_id",
}
"""Attributes that torch keeps in a module for itself; the hooks among them are described apart."""

Outer = tuple[Any, ...]
"""What a value lies in, outermost first."""


def model_fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of the description of a classifier.

    Raises:
        InputError: If a tensor has no plain numbers (:func:`describe`).
    """
    return hashlib.sha256(describe(model).encode()).hexdigest()


def describe(value: Any, where: str = "", outer: Outer = ()) -> str:
    """Describe a value and all it holds: equal values have equal descriptions in any process.

    A tensor is its numbers; a module its attributes, tensors, children and hooks; a dataclass its
    fields; a function or class its name; any other object its type. Left out are the mode,
    gradients, and where in memory numbers lie.

    Args:
        value: What to describe.
        where: Its dotted path, for messages.
        outer: What it lies in, to be recognised there.
    Raises:
        InputError: If a tensor in it is sparse, quantised, or without numbers.
    """
    for depth, holder in enumerate(outer):
        if holder is value:
            return f"outer({depth})"
    return f"{name(type(value))}({_content(value, where, (*outer, value))})"


def _content(value: Any, where: str, outer: Outer) -> str:
    if isinstance(value, REPR):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{_listed(value, where, outer)}]"
    if isinstance(value, dict):
        return f"[{_pairs(value, where, outer)}]"
    if isinstance(value, (set, frozenset)):
        return f"[{', '.join(sorted(describe(item, where, outer) for item in value))}]"
    if isinstance(value, nn.Module):
        return _module(value, where, outer)
    if isinstance(value, Tensor):
        return _tensor(value, where)
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype.str}, {value.dtype.descr}, {value.shape}, {_sum(value.tobytes())}"
    if hasattr(value, "__qualname__"):
        return name(value)
    if not dataclasses.is_dataclass(value):
        return ""
    fields = {field.name for field in dataclasses.fields(value)} | getattr(
        value, "__dict__", {}
    ).keys()  # or slots
    return _named(
        {key: getattr(value, key) for key in sorted(fields) if hasattr(value, key)}, where, outer
    )


def name(value: Any) -> str:
    """Return the qualified name of a class or function."""
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}"


def _listed(values: Iterable[Any], where: str, outer: Outer) -> str:
    return ", ".join(
        describe(value, f"{where}[{number}]", outer) for number, value in enumerate(values)
    )


def _pairs(values: Mapping[Any, Any], where: str, outer: Outer) -> str:
    pairs = (
        (describe(key, where, outer), describe(item, f"{where}[{key!r}]", outer))
        for key, item in values.items()
    )
    return ", ".join(f"{key}: {item}" for key, item in pairs)


def _named(values: Mapping[str, Any], where: str, outer: Outer) -> str:
    described = (
        f"{key!r}={describe(value, f'{where}.{key}'.lstrip('.'), outer)}"
        for key, value in values.items()
    )
    return ", ".join(described)


def _tensor(value: Tensor, where: str) -> str:
    is_dense = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    if type(value) not in (Tensor, nn.Parameter) or not is_dense:
        raise InputError(
            f"the model's tensor {where or 'itself'} must be dense and hold numbers, because its "
            "answers depend on it, "
            f"got {name(type(value))}; make it a parameter or a registered buffer"
        )
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return f"{value.dtype}, {tuple(value.shape)}, {_sum(plain.flatten().view(torch.uint8).numpy().tobytes())}"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _module(value: nn.Module, where: str, outer: Outer) -> str:
    """Describe attributes, parameters, buffers, children and hooks of a module."""
    attributes = {key: item for key, item in vars(value).items() if key not in BOOKKEEPING}
    parts = (dict(sorted(part.items())) for part in (attributes, value._parameters, value._buffers))
    hooks = [*value._forward_pre_hooks.values(), *value._forward_hooks.values()]
    named = (_named(part, where, outer) for part in (*parts, value._modules))
    return "; ".join([*named, _listed(hooks, f"{where}.hooks".lstrip("."), outer)])


# -------------------------------------------------------------------------------------------------
# users' modules


def sources(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the source of modules that are no part of this project, and of all they import, at any
    depth of functions.

    Nothing is imported or run for it. What lies in the standard library or among installed packages
    is left out unless it is one of ``modules``, and so is what only it imports; a module without a
    file has no source.

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
        if (
            file is not None
            and Path(file).is_file()
            and (module in asked or not _is_installed(Path(file)))
        ):
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
    """Return the file of a module and, of a package, the folders of its modules; without importing
    it.
    """
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
    portions = [
        folder for spec in specs for folder in spec.submodule_search_locations or ()
    ]  # of a namespace package
    return None, portions or None


def _is_installed(path: Path) -> bool:
    """Return whether a file is of the standard library or of an installed package."""
    standard = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(
        map(path.is_relative_to, standard)
    )
