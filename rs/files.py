"""Writing files whole or not at all, and reading them with messages a person can act on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rs.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it takes the place of ``path``, on failure it goes.

    Works for a file and for a folder (which the caller makes); an existing ``path`` is untouched until the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if temporary.is_dir() and path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def check_replaceable(folder: Path, marker: str, what: str) -> None:
    """Check that a folder of ours may be made here: there is none, it is empty, or it holds ``marker``, as ours do.

    Raises:
        InputError: If it holds something else, which would be lost.
    """
    if folder.exists() and not (folder / marker).is_file() and any(folder.iterdir()):
        raise InputError(f"{folder} must be a folder of {what} or new, but holds something else; name another --out")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline, in one step."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, columns: Sequence[str], table: Sequence[Mapping[str, Any]]) -> None:
    """Write dicts as CSV at full precision, empty where a value is ``None``."""
    lines = [",".join("" if row[column] is None else str(row[column]) for column in columns) for row in table]
    write_text(path, "\n".join([",".join(columns), *lines]) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: If the file is missing or is not JSON.
    """
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run the stage that makes it")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} must hold JSON, but: {error}; make it again") from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
