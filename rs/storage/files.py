"""Writing files whole or not at all, and reading files within limits."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rs.errors import InputError, reason
from rs.params import MAX_DEPTH, record
from rs.runtime.scratch import in_the_way_of

T = TypeVar("T")

MAX_JSON_BYTES, MAX_TABLE_BYTES = 2**21, 2**28
"""Maximum number of bytes of a JSON file, and of a table (rows or CSV), that is read."""

HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""A SHA-256; the group has enough digits for a reader."""

_TEMPORARY = re.compile(r"\.(.+)\.([0-9a-f]{8})-([0-9]{1,9})(\.old)?\.tmp")
"""Name of a temporary: that of the file, the machine and the process."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which replaces ``path`` on success.

    On failure it is deleted. It can be a file, or a folder that the caller makes. An existing
    ``path`` does not change until the end, and is never incomplete. Leftovers of killed processes
    are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    process = f"{_machine()}-{os.getpid()}"
    temporary = path.with_name(f".{path.name}.{process}.tmp")
    old = path.with_name(f".{path.name}.{process}.old.tmp")
    try:
        yield temporary
        if temporary.is_dir() and os.path.lexists(path):
            os.replace(path, old)
        os.replace(temporary, path)
    finally:
        if os.path.lexists(old) and not os.path.lexists(path):
            os.replace(old, path)
        _remove(temporary)
        _remove(old)


def _machine() -> str:
    """Return a short name of this machine: each machine numbers its own processes."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_stale(path: Path) -> None:
    """Remove the temporaries of ``path`` that dead processes of this machine have left."""
    for name in os.listdir(path.parent):
        match = _TEMPORARY.fullmatch(name)
        if match is None or (match[1], match[2]) != (path.name, _machine()):
            continue
        if not _is_another(int(match[3])):
            _remove(path.with_name(name))


def _is_another(process: int) -> bool:
    """Return whether another running process has this number."""
    if process == os.getpid():
        return False
    try:
        with suppress(PermissionError):  # of another user
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # another process may be removing it
    else:
        path.unlink(missing_ok=True)


def check_output(
    path: Path,
    what: str,
    replaceable: bool | None = None,
    *,
    inputs: Iterable[Path] = (),
    content: str | None = None,
    option: str = "--out",
    force: bool = True,
) -> None:
    """Check that ``path`` may be written: it is new or replaceable, and contains no input.

    A stage replaces its outputs, which DVC declares; a user's command only replaces with
    ``--force``.

    Args:
        path: A file or folder; a link counts as its target, and a broken link is refused.
        what: Description of what is written.
        replaceable: Whether the existing content may be replaced; by default, whether it is a file.
        inputs: Files and folders that the command reads.
        content: Description of the existing content; by default its first line, or the names in it.
        option: The option that names the path.
        force: Whether existing content is replaced.
    Raises:
        InputError: If something else would be lost.
    """
    if (obstacle := in_the_way_of(path.parent)) is not None:
        raise InputError(
            f"{path} must be new or {what}, but {obstacle} is not a folder; name another {option}"
        )
    for read in inputs:
        if read.resolve().is_relative_to(path.resolve()):
            raise InputError(
                f"{path} must be new or {what}, but {read}, an input, is in it; name another "
                f"{option}"
            )
    replaceable = path.is_file() if replaceable is None else replaceable
    if os.path.lexists(path) and not (path.exists() and replaceable):
        raise InputError(
            f"{path} must be new or {what}, but holds {content or _content(path)}; name another "
            f"{option}"
        )
    if path.exists() and not (force or is_empty(path)):
        raise InputError(
            f"{path} must be new, but {what} is there; name another {option}, or replace it with "
            "--force"
        )


def is_made(folder: Path, marker: str) -> bool:
    """Return whether a folder is empty, or holds a file that the command leaves in it."""
    return is_empty(folder) or (folder / marker).is_file()


def is_empty(folder: Path) -> bool:
    """Return whether it is an empty folder, except for leftovers of killed processes."""
    return folder.is_dir() and all(_TEMPORARY.fullmatch(child.name) for child in folder.iterdir())


def json_values(path: Path) -> dict[str, Any]:
    """Return the values of a JSON file; none if it is missing or holds something else."""
    try:
        values = read_json(path)
    except (InputError, OSError):
        return {}
    return values if isinstance(values, dict) else {}


def _content(path: Path) -> str:
    """Describe what lies at ``path`` in a few words."""
    if not path.exists():
        return f"a link to {os.readlink(path)}, which is not there"
    if path.is_dir():
        names = sorted(child.name for child in path.iterdir())
        text = ", ".join(names[:3])
        return f"{text} and {len(names) - 3} more" if len(names) > 3 else text
    with path.open("rb") as file:
        return repr(file.read(40).decode(errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` in one step."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline, in one step."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, columns: Sequence[str], table: Sequence[Mapping[str, Any]]) -> None:
    """Write dicts as CSV at full precision, empty where a value is ``None``, quoted if need be."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in table:
        writer.writerow([row[column] for column in columns])
    write_text(path, text.getvalue())


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: If the file is missing, larger than :data:`MAX_JSON_BYTES`, or is not JSON.
    """
    content = read_bytes(path, MAX_JSON_BYTES)
    try:
        return decode_json(content)
    except ValueError as error:
        raise InputError(f"{path} must hold JSON, but: {error}; make it again") from error


def decode_json(content: bytes) -> Any:
    """Parse JSON in UTF-8, which may begin with a byte order mark.

    Raises:
        ValueError: If it is not JSON, an object has a key twice, or it is nested deeper than
            ``rs.params.MAX_DEPTH``.
    """
    deep = f"it is nested deeper than {MAX_DEPTH}"
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError(deep) from error
    level = [value]
    for _ in range(MAX_DEPTH):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside.extend(item.values())
            elif isinstance(item, list):
                inside.extend(item)
        if not inside:
            return value
        level = inside
    raise ValueError(deep)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object whose keys are all different."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"each key must be given once, got {twice!r} again")
    return values


def read_bytes(path: Path, most: int, remedy: str = "correct its name, or make it again") -> bytes:
    """Read a file, of at most ``most`` bytes.

    Raises:
        InputError: If it does not exist, is larger, or cannot be read.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path} must be a file, but there is none; {remedy}")
        if (size := path.stat().st_size) > most:
            raise InputError(
                f"{path} must have at most {most:,} bytes, got {size:,}; check that it is the "
                "right file"
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} must be a file that can be read, but: {reason(error)}; correct its name or "
            "its permissions"
        ) from error


def read_as(kind: type[T], path: Path, what: str, remedy: str) -> T:
    """Read a JSON file as a record.

    Args:
        kind: A class under :func:`rs.params.validated`.
        path: The file.
        what: Description of the record.
        remedy: What to do if it is something else.
    Raises:
        InputError: If it is missing or damaged; names every key at fault.
    """
    return record(kind, read_json(path), f"{path} must be {what}", remedy)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        InputError: If it is not a regular file; a device or a pipe may have no end.
    """
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; correct its name")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
