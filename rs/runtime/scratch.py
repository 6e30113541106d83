"""Scratch folders for unfinished work, named by a hash of what is being made, and locked in use.

DVC deletes a stage's outputs before it runs the stage again, so the state of an interrupted
training or certification must be stored elsewhere: in ``$RS_WORK``, or in ``.work`` in the DVC root
or the current folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rs.errors import InputError

NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error codes of file systems that cannot lock a folder (EBADF: NFS)."""


def root() -> Path:
    """Return the folder of all scratch folders and caches: ``$RS_WORK`` or ``.work``.

    Raises:
        InputError: If there can be no such folder.
    """
    folder = os.environ.get("RS_WORK") or os.environ.get("DVC_ROOT", ".") + "/.work"
    path = Path(folder).expanduser()
    obstacle = in_the_way_of(path)
    if obstacle is not None:
        raise InputError(
            f"{path} must be new or a folder, but {obstacle} is not a folder; set RS_WORK to "
            "another"
        )
    return path


def in_the_way_of(folder: Path) -> Path | None:
    """Return the nearest existing part of a path if it is not a folder; else ``None``."""
    nearest = Path()
    for path in (folder, *folder.parents):
        if os.path.lexists(path):
            nearest = path
            break
    return None if nearest.is_dir() else nearest


def key(identity: dict[str, Any]) -> str:
    """Return the name of the scratch folder for ``identity``: a hash of it as JSON."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def scratch_folder(identity: dict[str, Any]) -> Iterator[Path]:
    """Lock and yield the scratch folder for ``identity``; remove it if the body succeeds.

    If the body raises or the process dies, the folder stays, and the next run with the same
    identity continues in it; a ``KeyboardInterrupt`` gets a note that says so.

    Args:
        identity: Everything that the result depends on.
    Raises:
        InputError: If another process makes the same thing, or finished it before we acquired the
            lock.
    """
    path = path_of(identity)
    with _lock_file(path.name, "making the same thing"):
        path.mkdir(exist_ok=True)
        try:
            yield path
        except KeyboardInterrupt as stop:
            stop.add_note("the same command continues")
            raise
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep other processes with the same scratch root from writing into a folder, new or not.

    Raises:
        InputError: If another process writes into it; names that process.
    """
    with _lock_file(key({"folder": str(folder.resolve())}), f"writing into {folder}"):
        yield


@contextmanager
def _lock_file(name: str, activity: str) -> Iterator[None]:
    """Hold the lock of a name: a file in the scratch root with the number of this process.

    Raises:
        InputError: If another process holds the lock, or removed the file before we acquired it.
    """
    path = root() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise InputError(
                f"process {lock.read()} is {activity} (it holds {path}); wait for it or stop it"
            ) from error
        # its owner may have removed the file that is open here
        if not (path.exists() and os.path.samefile(path, lock.fileno())):
            raise InputError(
                f"another process was {activity} until now and has removed {path}; run again"
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def path_of(identity: dict[str, Any]) -> Path:
    """Return the scratch folder; it is there if work is in progress or was interrupted."""
    return root() / key(identity)


def discard(identity: dict[str, Any]) -> None:
    """Remove the scratch folder of finished work that a killed process left, unless in use."""
    if path_of(identity).is_dir():
        with suppress(InputError), scratch_folder(identity):
            pass


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time change a folder, which is created if needed; others wait.

    The lock is on the folder itself, and leaves nothing in it. On a file system that locks no
    folder, as NFS, nobody waits.
    """
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)
