"""Fingerprints of the code that a stage runs, so that DVC reruns what a change of code reaches, and nothing else.

A fingerprint lists every module of this project that a stage imports, directly or not, with a hash of its text
without comments, docstrings and blank lines. It changes when what is computed may change, and not when a docstring is
edited; and it cannot miss a module, as a list kept by hand can.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import pkgutil
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rs.errors import InputError

PACKAGES = ("rs", "stages")
TABLE = Path("rs", "methods", "__init__.py")
ROOT = Path(__file__).parents[2]
NO_STAGES = ("__init__", "shell", "fingerprint")
"""Modules in the folder of stages that no cell depends on by itself."""
QUOTED = re.compile(r'''(?P<string>("""|\'\'\'|"|\')(?:[^\\]|\\.)*?\2)|#[^\n]*''', re.DOTALL)
"""A string without its prefix, or a comment: what begins first ends where its kind does (the syntax of Python 3.11)."""

Imports = dict[Path, set[Path]]
"""From a module to the modules of this project that it names in its imports."""


def fingerprints(root: Path) -> dict[str, dict[str, str]]:
    """Return the fingerprint of every stage, by its name, and of every training method, as ``methods/KEY``."""
    stages = [path.relative_to(root) for path in sorted(root.glob("stages/*.py")) if path.stem not in NO_STAGES]
    imports: Imports = {}
    of_stages = {path.stem: fingerprint(root, path, imports) for path in stages}
    return of_stages | {f"methods/{key}": method_fingerprint(root, key, imports) for key in methods(root)}


def fingerprint(root: Path, entry: Path, imports: Imports | None = None) -> dict[str, str]:
    """Return the hash of every module that ``entry`` imports, itself included.

    The table of the training methods is left out, and so are the methods that are reached through it alone: a cell
    depends on the fingerprint of its own method as well, and a new method, or an edit of another one, must not train
    this one again.

    Args:
        root: The folder that holds the packages.
        entry: A module, as a path relative to ``root``.
        imports: Where to keep what modules import, for the next fingerprint of the same files.
    Returns:
        From the path of each module, relative to ``root``, to the SHA-256 of its code; sorted.
    """
    paths = sorted(closure(root, entry, TABLE, imports))
    return {path.as_posix(): digest((root / path).read_text(encoding="utf-8")) for path in paths}


def methods(root: Path) -> dict[str, str]:
    """Return the training methods, from key to ``module:Class``; their table is read and not run.

    Raises:
        InputError: If the table is not ``METHODS = {"key": Class, ...}`` with classes that it imports by name.
    """
    tree = ast.parse((root / TABLE).read_text(encoding="utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    classes = {alias.asname or alias.name: f"{node.module}:{alias.name}" for node in imports for alias in node.names}
    assignments = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign))
    tables = [node.value for node in assignments if "METHODS" in _assigned_names(node)]
    if len(tables) == 1 and isinstance(tables[0], ast.Dict):
        keys = [key.value for key in tables[0].keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        values = [classes[one.id] for one in tables[0].values if isinstance(one, ast.Name) and one.id in classes]
        if len(keys) == len(values) == len(tables[0].keys):
            return dict(zip(keys, values, strict=True))
    raise InputError(
        f'{root / TABLE} must have one METHODS = {{"key": Class, ...}}, of classes that it imports with "from module '
        'import Class", so that it can be read without running it; write it so'
    )


def _assigned_names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def method_fingerprint(root: Path, key: str, imports: Imports | None = None) -> dict[str, str]:
    """Return the class that a key of the training methods names, and the hashes of its module and of all it imports.

    Other methods are not in it, so adding or editing one trains no other again.

    Raises:
        InputError: If there is no such method.
    """
    known = methods(root)
    if key not in known:
        raise InputError(f"the method must be one of {', '.join(known)}; got {key!r}")
    module = Path(*known[key].partition(":")[0].split("."))
    return {"class": known[key], **fingerprint(root, module.with_suffix(".py"), imports)}


def version(*entries: str, method: str | None = None) -> str:
    """Return one hash of the running code of modules such as ``rs/training/run.py``, and of all they import.

    Args:
        entries: Modules, as paths.
        method: Key of a training method whose code counts as well.
    """
    imports: Imports = {}
    hashes = [fingerprint(ROOT, Path(entry), imports) for entry in entries]
    hashes += [method_fingerprint(ROOT, method, imports)] if method is not None else []
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


ENGINES = {"openvino": ("openvino",), "quantized": ("openvino", "nncf")}
"""Libraries beside torch that compute in an engine of certification."""


def series() -> dict[str, str]:
    """Return the series, such as 2.14, of Python, NumPy and torch, which compute and draw the noise; imports none.

    Releases of one series are not told apart: a stage that depends on this does not run again after an upgrade to one.
    """
    releases = {"python": platform.python_version(), **{name: metadata.version(name) for name in ("numpy", "torch")}}
    return {name: _series_of(release) for name, release in releases.items()}


def engine_series(engine: Any) -> dict[str, str]:
    """Return the series of the libraries that :data:`ENGINES` names for an engine, "absent" where there is none here.

    Only of the two engines that have such libraries; so what other cells depend on does not name them.
    """
    found = {}
    for name in ENGINES.get(engine, ()):
        try:
            found[name] = _series_of(metadata.version(name))
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _series_of(release: str) -> str:
    return ".".join(release.split(".")[:2])


def closure(root: Path, entry: Path, stop: Path | None = None, imports: Imports | None = None) -> set[Path]:
    """Return the modules of this project that ``entry`` imports, directly or not, at any depth of its functions.

    ``stop`` and what only it imports are left out; ``imports`` as for :func:`fingerprint`.
    """
    imports = {} if imports is None else imports
    modules: set[Path] = set()
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path not in modules and path != stop:
            modules.add(path)
            if path not in imports:
                imports[path] = {*_imported_modules(root, path)}
            waiting += imports[path]
    return modules


def _imported_modules(root: Path, module: Path) -> Iterator[Path]:
    """Yield the paths of the project's modules that a module names in its imports."""
    source = (root / module).read_text(encoding="utf-8")
    for words in (name.split(".") for name in _imported_names(source, ".".join(module.parent.parts))):
        if words[0] in PACKAGES:
            for depth in range(1, len(words) + 1):  # a module imports its packages first
                yield from _files(root, words[:depth])
            yield from _lazily_imported(root, words)


def _files(root: Path, words: list[str]) -> list[Path]:
    """Return the path of the project's module, or package, of a name; none if it has no such module."""
    path = Path(*words)
    return [one for one in (path.with_suffix(".py"), path / "__init__.py") if (root / one).is_file()]


def _lazily_imported(root: Path, words: list[str]) -> Iterator[Path]:
    """Yield the modules that a package names in strings (``rs.lazily``), where a name of it may come from them."""
    package = root / Path(*words[:-1]) / "__init__.py"
    if _files(root, words) or not package.is_file():
        return
    nodes = [*ast.walk(ast.parse(package.read_text(encoding="utf-8")))]
    if words[-1] in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}:
        return
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for named in (string.split(".") for string in strings):
        if named[0] in PACKAGES and all(map(str.isidentifier, named)):
            yield from _files(root, named)


def _imported_names(source: str | bytes, package: str = "") -> list[str]:
    """Return what a module of a package names in its imports."""
    names: list[str] = []
    for node in _statements(source):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (origin := _origin(node, package)):
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return names


@cache  # once for the imports, once for the digest
def _statements(source: str | bytes) -> Sequence[ast.AST]:
    """Return the statements of a module at any depth, and not their expressions."""
    found: list[ast.AST] = [ast.parse(source)]
    for node in found:  # which grows
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(node, block, [])
    return found


def _origin(node: ast.ImportFrom, package: str) -> str:
    """Return what a module of a package imports from; nothing if the package has no such parent."""
    parents = package.split(".") if package else []
    if node.level > len(parents):
        return ""
    near = parents[: len(parents) - node.level + 1] if node.level else []
    return ".".join([*near, *([node.module] if node.module else [])])


def sources(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the source of modules that are no part of this project, and of all they import, at any depth of functions.

    Nothing is imported or run for it. What lies in the standard library or among installed packages is left out unless
    it is one of ``modules``, and so is what only it imports; a module without a file has no source.

    Args:
        modules: Names of modules, with dots.
    Returns:
        From the name of each module to the bytes of its file, a compiled one too; sorted.
    """
    found: dict[str, bytes] = {}
    given, seen = set(modules), set()
    waiting = [parent for name in given for parent in _with_parents(name)]
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] == __name__.partition(".")[0]:
            continue
        seen.add(name)
        file, folders = _file_and_folders(name)
        if file is not None and Path(file).is_file() and (name in given or not _is_installed(Path(file))):
            found[name] = Path(file).read_bytes()
            imported = _imported_of(file, found[name], name if folders is not None else name.rpartition(".")[0])
            waiting += [parent for one in imported for parent in _with_parents(one)]
    return dict(sorted(found.items()))


def _with_parents(name: str) -> Iterator[str]:
    """Yield a module and its packages, which are imported before it."""
    return itertools.accumulate(name.split("."), "{}.{}".format)


def _file_and_folders(name: str) -> tuple[str | None, Iterable[str] | None]:
    """Return the file of a module and, of a package, the folders of its modules; without importing it."""
    if (module := sys.modules.get(name)) is not None:
        return getattr(module, "__file__", None), getattr(module, "__path__", None)
    package = name.rpartition(".")[0]
    folders = _file_and_folders(package)[1] if package else None
    if package and folders is None:
        return None, None
    finders = filter(None, map(pkgutil.get_importer, sys.path if folders is None else folders))
    specs = [spec for finder in finders if (spec := finder.find_spec(name)) is not None]
    for spec in specs:
        if spec.has_location:
            return spec.origin, spec.submodule_search_locations
    portions = [folder for spec in specs for folder in spec.submodule_search_locations or ()]  # of a namespace package
    return None, portions or None


def _is_installed(path: Path) -> bool:
    """Return whether a file is of the standard library or of an installed package."""
    standard = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(map(path.is_relative_to, standard))


def _imported_of(file: str, source: bytes, package: str) -> list[str]:
    """Return what a module names in its imports; what cannot be read as Python can be imported by nobody."""
    if not file.endswith(".py"):
        return []
    try:
        return _imported_names(source, package)
    except (SyntaxError, ValueError):
        return []


@cache
def digest(source: str) -> str:
    """Return the SHA-256 of a module's text without comments, docstrings and blank lines.

    It is the same in every version of Python. What else stands on the line of a docstring counts, and so do blank lines
    and spaces in other strings.

    >>> digest("x = 1  # one") == digest('x = 1') != digest("x = 2")
    True
    """
    starts = [0, *itertools.accumulate(len(line) + 1 for line in source.split("\n"))]
    characters = list(source)
    for quoted in QUOTED.finditer(source):  # a string is part of one line here, so that no part of it is blank
        kept = (quoted["string"] or "").replace("\n", "\0")
        characters[slice(*quoted.span())] = kept or [""] * len(quoted[0])
    for first, last in _docstrings(source, starts):
        characters[first:last] = [""] * (last - first)
    text = "\n".join(line.rstrip() for line in "".join(characters).split("\n") if line.strip())
    return hashlib.sha256(text.encode()).hexdigest()


def _docstrings(source: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first character, and the one after the last, of statements that are a string and nothing else.

    ``starts`` are the first characters of the lines.
    """
    lines = source.split("\n")

    def position(row: int, octets: int) -> int:
        return starts[row - 1] + len(lines[row - 1].encode()[:octets].decode())  # ast counts bytes of UTF-8

    for node in _statements(source):
        if not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            continue
        assert node.end_lineno is not None  # the code was parsed
        assert node.end_col_offset is not None
        yield position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)
