"""Fingerprints of the code a stage runs, so that DVC reruns what a change of code reaches, and nothing else.

A fingerprint lists every module of this project that a stage imports, directly or not, with a hash of its text
without comments, docstrings and blank lines. It changes when what is computed may change, and not when a docstring is
mended; and it cannot forget a module, as a list kept by hand can.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("rs", "stages")
TABLE = Path("rs", "methods", "__init__.py")
ROOT = Path(__file__).parent.parent


def fingerprint(root: Path, entry: Path) -> dict[str, str]:
    """Hash every module that ``entry`` imports, itself included.

    The table of the training methods is left out, and so are the methods that are reached through it alone: a cell
    depends on the fingerprint of its own method as well, and a new method, or an edit of another one, must not train
    this one again.

    Args:
        root: The folder that holds the packages.
        entry: A module, as a path relative to ``root``.
    Returns:
        From the path of each module, relative to ``root``, to the SHA-256 of its code; sorted.
    """
    paths = sorted(closure(root, entry, stop=TABLE))
    return {path.as_posix(): digest((root / path).read_text(encoding="utf-8")) for path in paths}


def version(*entries: str) -> str:
    """One hash of the running code of modules such as ``stages/train.py``, and of all they import."""
    made = [fingerprint(ROOT, Path(entry)) for entry in entries]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


def closure(root: Path, entry: Path, stop: Path | None = None) -> set[Path]:
    """Modules of this project that ``entry`` imports, directly or not, at any depth of its functions.

    ``stop`` and what only it imports are left out.
    """
    found: set[Path] = set()
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path not in found and path != stop:
            found.add(path)
            waiting += _imported(root, ast.parse((root / path).read_text(encoding="utf-8")))
    return found


def _imported(root: Path, tree: ast.Module) -> Iterator[Path]:
    """Paths of the project's modules that a module names in its imports."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    for words in (name.split(".") for name in names):
        for depth in range(1, len(words) + 1) if words[0] in PACKAGES else ():  # a module imports its packages first
            path = Path(*words[:depth])
            candidates = (path.with_suffix(".py"), path / "__init__.py")
            yield from (candidate for candidate in candidates if (root / candidate).is_file())


def digest(source: str) -> str:
    """SHA-256 of a module's text without comments, docstrings and blank lines; the same in every Python version.

    >>> digest("x = 1  # one") == digest('x = 1') != digest("x = 2")
    True
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    text = "\n".join(line.rstrip() for line in lines if line.strip())
    return hashlib.sha256(text.encode()).hexdigest()
