"""What identifies a model: a fingerprint of what it holds, and the source of a user's modules.

A fingerprint sees types, parameters, buffers and attributes of modules, the weights that their
forward passes take from variables outside, and the names of functions and hooks. It does not see
code, which :func:`sources` holds; the content of objects other than dataclasses; files that code
reads, unless it declares them (:func:`uses`). What it does not see changes the logits of fixed
images, which cards and sidecars hold as ``probe``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rs.errors import InputError
from rs.runtime.code_fingerprint import imported_names
from rs.storage.files import sha256

REPR = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""Types whose ``repr`` is their whole content."""

BOOKKEEPING = {
    *vars(nn.Module()),
    "_compiled_call_impl",
    "_is_torch_compile",
    "_torchdynamo_wrapper_id",
}
"""Attributes that torch keeps in a module for itself; the hooks among them are described apart."""

MAX_DEPTH = 4
"""Objects within objects that are searched for weights."""

Ancestors = tuple[Any, ...]
"""The values that contain a value, outermost first."""


def model_fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of the description of a classifier.

    Raises:
        InputError: If a tensor has no plain numbers (:func:`describe`).
    """
    return hashlib.sha256(describe(model).encode()).hexdigest()


def describe(value: Any, where: str = "", outer: Ancestors = ()) -> str:
    """Describe a value and all it holds: equal values have equal descriptions in any process.

    A tensor is its numbers; a module its attributes, tensors, children and hooks; a dataclass its
    fields; a function or class its name; any other object its type. Left out are the mode,
    gradients, and where in memory numbers lie.

    Args:
        value: What to describe.
        where: Its dotted path, for messages.
        outer: The values that contain it, so that a cycle ends.
    Raises:
        InputError: If a tensor in it is sparse, quantized, or without numbers.
    """
    for depth, holder in enumerate(outer):
        if holder is value:
            return f"outer({depth})"
    return f"{qualified_name(type(value))}({_content(value, where, (*outer, value))})"


def _content(value: Any, where: str, outer: Ancestors) -> str:
    if isinstance(value, REPR):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{_listed(value, where, outer)}]"
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            described = describe(item, f"{where}[{key!r}]", outer)
            pairs.append(f"{describe(key, where, outer)}: {described}")
        return f"[{', '.join(pairs)}]"
    if isinstance(value, (set, frozenset)):
        return f"[{', '.join(sorted(describe(item, where, outer) for item in value))}]"
    if isinstance(value, nn.Module):
        return _module(value, where, outer)
    if isinstance(value, Tensor):
        return _tensor(value, where)
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype.str}, {value.dtype.descr}, {value.shape}, {_sha256(value.tobytes())}"
    if hasattr(value, "__qualname__"):
        return qualified_name(value)
    if not dataclasses.is_dataclass(value):
        return ""
    names = {field.name for field in dataclasses.fields(value)}
    names |= getattr(value, "__dict__", {}).keys()  # absent if the class has slots
    fields = {key: getattr(value, key) for key in sorted(names) if hasattr(value, key)}
    return _named(fields, where, outer)


def qualified_name(value: Any) -> str:
    """Return the qualified name of a class or function."""
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}"


def _listed(values: Iterable[Any], where: str, outer: Ancestors) -> str:
    items = []
    for number, value in enumerate(values):
        items.append(describe(value, f"{where}[{number}]", outer))
    return ", ".join(items)


def _named(values: Mapping[str, Any], where: str, outer: Ancestors) -> str:
    pairs = []
    for key, value in values.items():
        path = f"{where}.{key}".lstrip(".")
        pairs.append(f"{key!r}={describe(value, path, outer)}")
    return ", ".join(pairs)


def _tensor(value: Tensor, where: str) -> str:
    is_dense = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    if type(value) not in (Tensor, nn.Parameter) or not is_dense:
        raise InputError(
            f"the model's tensor {where or 'itself'} must be dense and hold numbers, because its "
            f"answers depend on it, got {qualified_name(type(value))}; make it a parameter or a "
            "registered buffer"
        )
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content = plain.flatten().view(torch.uint8).numpy().tobytes()
    return f"{value.dtype}, {tuple(value.shape)}, {_sha256(content)}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _module(value: nn.Module, where: str, outer: Ancestors) -> str:
    """Describe attributes, parameters, buffers, children and hooks of a module."""
    hooks = [*value._forward_pre_hooks.values(), *value._forward_hooks.values()]
    # What hooks of torch compute before each pass: the weights of the last one say nothing.
    computed = set()
    for hook in value._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch."):
            computed |= {getattr(hook, "name", None), getattr(hook, "_tensor_name", None)}
    left_out = BOOKKEEPING | computed
    attributes = {key: item for key, item in vars(value).items() if key not in left_out}
    parts = []
    for part in (attributes, value._parameters, value._buffers):
        parts.append(_named(dict(sorted(part.items())), where, outer))
    parts.append(_named(value._modules, where, outer))
    parts.append(_listed(hooks, f"{where}.hooks".lstrip("."), outer))
    outside = {name: item for name, item in _outside(value).items() if _holds_weights(item)}
    if outside:
        parts.append(_named(outside, where, outer))
    return "; ".join(parts)


def _holds_weights(value: Any) -> bool:
    """Return whether a value is a network or numbers, or a collection with one."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_holds_weights(item) for item in value)
    return isinstance(value, (Tensor, np.ndarray, nn.Module))


# -------------------------------------------------------------------------------------------------
# users' modules


def sources(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the source of modules outside this project, and of all they import, in functions too.

    Nothing is imported or run. The standard library and installed packages are left out unless they
    are in ``modules``, and so are modules that only they import. A module without a file has no
    source.

    Args:
        modules: Names of modules, with dots.
    Returns:
        From the name of each module to the bytes of its file, a compiled one too; sorted. Lines of
        Python end in a newline alone, whatever they end in on disk. After a module come the files
        that it declares (:func:`uses`), from ``module:file`` to their SHA-256.
    """
    contents: dict[str, bytes] = {}
    requested = set(modules)
    seen = set()
    waiting = [*itertools.chain(*map(_with_parents, requested))]
    while waiting:
        module = waiting.pop()
        if module in seen or module.partition(".")[0] == "rs":
            continue
        seen.add(module)
        file, folders = _file_and_folders(module)
        if file is None or not Path(file).is_file():
            continue
        if module not in requested and _is_installed(Path(file)):
            continue
        contents[module] = Path(file).read_bytes()
        for declared, content_hash in _DECLARED.get(module, {}).items():
            contents[f"{module}:{declared}"] = content_hash.encode()
        if not file.endswith(".py"):
            continue
        contents[module] = contents[module].replace(b"\r\n", b"\n")
        package = module if folders is not None else module.rpartition(".")[0]
        with suppress(SyntaxError, ValueError):  # a file that is not Python imports nothing
            for child in imported_names(contents[module], package):
                waiting += _with_parents(child)
    return dict(sorted(contents.items()))


_DECLARED: dict[str, dict[str, str]] = {}
"""SHA-256 of the files that modules declare: by module, then by file."""


def uses(*files: str | Path) -> None:
    """Declare the files that the calling module builds its model from, as part of its identity.

    Call it for weights that torch does not hold, such as those of ONNX Runtime or scikit-learn:
    ``rs.uses("net.onnx")``. Without a file, it declares that the code alone determines the model.

    Raises:
        InputError: If a file is missing.
    """
    module = sys._getframe(1).f_globals["__name__"]
    declared = _DECLARED.setdefault(module, {})
    for file in files:
        declared[str(file)] = sha256(Path(file))


def check_identity(model: nn.Module, modules: Iterable[str]) -> None:
    """Check that all weights of a user's model are known, or that its modules declare their files.

    Args:
        model: The model.
        modules: The modules that it is written in.
    Raises:
        InputError: If one of its objects may hold weights, is known by its type alone, and no
            module calls :func:`uses`.
    """
    if any(module in _DECLARED for module in sources(modules)):
        return
    for path, layer in model.named_modules():
        for name, value in (vars(layer) | _outside(layer)).items():
            if name not in BOOKKEEPING and _may_hide_weights(value):
                where = f"{path}.{name}".lstrip(".")
                raise InputError(
                    "the weights of a model must be known, so that rows of other weights are not "
                    f"taken for its own, but those in {where}, a {qualified_name(type(value))}, "
                    'are not; where it is made, call rs.uses("FILE"), or rs.uses() if no file is '
                    "read"
                )


def _outside(layer: nn.Module) -> dict[str, Any]:
    """Return the variables outside a user's layer that its forward pass names, by name.

    The functions of users that it names belong to it.
    """
    kind = type(layer)
    waiting = [inspect.getattr_static(kind, "forward"), vars(layer).get("function")]
    seen = set()
    values: dict[str, Any] = {}
    while waiting:
        function = waiting.pop()
        is_known = not inspect.isfunction(function) or _is_of_libraries(function.__module__)
        if is_known or function in seen:
            continue
        seen.add(function)
        enclosed = inspect.getclosurevars(function).nonlocals
        for name in sorted(_names(function.__code__)):
            value = enclosed.get(name, function.__globals__.get(name))
            values[f"{function.__qualname__}.{name}"] = value
            waiting += [value, inspect.getattr_static(kind, name, None)]
    return values


def _names(code: CodeType) -> set[str]:
    """Return the names that code does not define, and those of the functions within it."""
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if inspect.iscode(constant):
            names |= _names(constant)
    return names


def _is_of_libraries(module: str | None) -> bool:
    top = "torch" if module is None else module.partition(".")[0]  # torch writes code too
    return top in ("rs", "torch", "torchvision") or top in sys.stdlib_module_names


def _may_hide_weights(value: Any, depth: int = 0) -> bool:
    """Return whether a value may hold weights, and a fingerprint describes it by its type alone."""
    if inspect.ismethod(value):
        value = value.__self__
    is_named = inspect.ismodule(value) or hasattr(value, "__qualname__")
    if is_named or isinstance(value, (*REPR, Enum)):
        return False
    if isinstance(value, (Tensor, np.ndarray, np.generic, nn.Module)):
        return depth > 0
    inner: Iterable[Any] = []
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif _is_of_libraries(type(value).__module__):
        return False
    elif not hasattr(value, "__dict__"):
        return True  # compiled code, as a session of ONNX Runtime has
    else:
        inner = vars(value).values()
        depth += 1
    return depth > MAX_DEPTH or any(_may_hide_weights(item, depth) for item in inner)


def _with_parents(module: str) -> Iterator[str]:
    """Yield a module and its packages, which are imported before it."""
    return itertools.accumulate(module.split("."), "{}.{}".format)


def _file_and_folders(module: str) -> tuple[str | None, Sequence[str] | None]:
    """Return the file of a module and, of a package, its folders, without importing it."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return getattr(loaded, "__file__", None), getattr(loaded, "__path__", None)
    package, _, name = module.rpartition(".")
    folders: Sequence[str] | None = None  # those of sys.path
    if package:
        folders = _file_and_folders(package)[1]
        if folders is None:
            return None, None
    # The last word of the name is enough: for a whole one the finder needs the package imported.
    spec = PathFinder.find_spec(name, folders)
    if spec is None:
        return None, None
    return spec.origin, spec.submodule_search_locations


def _is_installed(path: Path) -> bool:
    """Return whether a file is part of the standard library or of an installed package."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    standard = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")]
    return any(map(path.is_relative_to, standard))
