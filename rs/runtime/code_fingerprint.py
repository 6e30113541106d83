"""Fingerprints of the code that a stage runs: DVC reruns what a change of code reaches.

A fingerprint lists every module of this project that a stage imports, directly or not, with a hash
of its syntax tree without docstrings. It changes when what is computed may change, and not when a
comment or a docstring is edited; and it cannot miss a module, as a list kept by hand can.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata, util
from itertools import filterfalse
from pathlib import Path

import rs

PACKAGES = ("rs", "stages")
TABLE = Path("rs", "methods", "__init__.py")
"""The table of training methods, in no fingerprint: a cell depends on that of its own method."""
RULES = Path("rs", "ensemble", "rules.py")
"""The table of rules of ensembles; its own fingerprint is of cells that certify ensembles."""
ROOT = Path(__file__).parents[2]
TEXTS = ("rs/reporting/*.csv", "rs/reporting/web/*", "docs/falsification/*.csv")
"""Committed files that the report of a study reads, besides code."""
NO_STAGES = ("__init__", "fingerprint")
"""Modules in the folder of stages that no cell depends on by itself."""


def stage_fingerprints(root: Path, methods: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the fingerprints of stages and training methods.

    They are ``code/STAGE`` of every stage, ``code/methods/KEY`` of every method, and ``code/rules``
    of the rules of ensembles.

    Args:
        root: The folder that holds the packages.
        methods: From key to ``module:Class``, as ``rs.methods.METHODS``.
    """
    fingerprints = {"code/rules": module_hashes(root, RULES)}
    for path in sorted(root.glob("stages/*.py")):
        if path.stem not in NO_STAGES:
            fingerprints[f"code/{path.stem}"] = module_hashes(root, path.relative_to(root))
    for key, target in methods.items():
        fingerprints[f"code/methods/{key}"] = method_fingerprint(root, target)
    return fingerprints


def module_hashes(root: Path, entry: Path) -> dict[str, str]:
    """Return the hash of every module that ``entry`` imports, itself included.

    Args:
        root: The folder that holds the packages.
        entry: A module, as a path relative to ``root``.
    Returns:
        From the path of each module, relative to ``root``, to the SHA-256 of its code; sorted.
    """
    return {path.as_posix(): digest(_source(root, path)) for path in sorted(closure(root, entry))}


def method_fingerprint(root: Path, target: str) -> dict[str, str]:
    """Return the class of a training method, and the hashes of its module and of all it imports.

    Other methods are not in it, so adding or editing one trains no other again.
    """
    module = Path(*target.partition(":")[0].split("."))
    return {"class": target, **module_hashes(root, module.with_suffix(".py"))}


def code_hash(*entries: str, method: str | None = None) -> str:
    """Return one hash of the running code of modules, and of all they import.

    Args:
        entries: Modules, as paths such as ``rs/training/run.py``.
        method: A training method, ``module:Class``, whose code counts as well.
    """
    hashes = [module_hashes(ROOT, Path(entry)) for entry in entries]
    if method is not None:
        hashes.append(method_fingerprint(ROOT, method))
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def series() -> dict[str, str]:
    """Return the series, such as 2.14, of Python, NumPy and torch; imports none of them.

    They compute and draw the noise. Releases of one series are not told apart: a stage that depends
    on this does not run again after an upgrade to one.
    """
    releases = {
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "torch": metadata.version("torch"),
    }
    return {name: ".".join(release.split(".")[:2]) for name, release in releases.items()}


def closure(root: Path, entry: Path) -> set[Path]:
    """Return the modules of this project that ``entry`` imports, directly or not.

    Imports inside functions count.
    """
    modules: set[Path] = set()
    followed: set[str] = set()
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        is_table = path != entry and path in (TABLE, RULES)
        if path in modules or is_table:
            continue
        modules.add(path)
        package = ".".join(path.parent.parts)
        names = set(imported_names(_source(root, path), package)) - followed
        followed |= names
        for name in names:
            waiting += _files(root, name)
    return modules


def _source(root: Path, path: Path) -> str:
    return (root / path).read_text(encoding="utf-8")


def text_hashes(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each of the :data:`TEXTS`, whatever the ends of its lines.

    DVC itself would take a checkout with the line ends of Windows for other files.
    """
    hashes = {}
    for pattern in TEXTS:
        for path in sorted(root.glob(pattern)):
            text = _source(root, path.relative_to(root))
            hashes[path.relative_to(root).as_posix()] = hashlib.sha256(text.encode()).hexdigest()
    return hashes


def _files(root: Path, name: str) -> Iterator[Path]:
    """Yield the file of the project's module of a name, and those of its packages."""
    words = name.split(".")
    if words[0] not in PACKAGES:
        return
    if len(words) == 2 and words[1] in rs.MODULES:  # a public name, such as rs.load
        words = rs.MODULES[words[1]].split(".")
    for depth in range(1, len(words) + 1):
        path = Path(*words[:depth])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if (root / file).is_file():
                yield file


@cache
def imported_names(source: str | bytes, package: str = "") -> list[str]:
    """Return what a module of a package names in its imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # the package has no such parent
                origin = util.resolve_name("." * node.level + (node.module or ""), package)
                names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return names


@cache
def digest(source: str | bytes) -> str:
    """Return the SHA-256 of a module's syntax tree without docstrings and other lone strings.

    It is that of one series of Python; another series may write a tree in another way.

    >>> digest("x = 1  # one") == digest('x = 1') != digest("x = 2")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                setattr(node, block, list(filterfalse(_is_string, statements)))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_string(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    return isinstance(node.value.value, str)
