"""The place of unfinished work: outside the outputs, named by what is being made, locked while it is made.

DVC deletes a stage's outputs before it runs the stage again, so what an interrupted training or certification has
done must live elsewhere. The folder is ``$RS_WORK``, or ``.work`` in the DVC root or the current folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rs.errors import InputError


def root() -> Path:
    """The folder of all unfinished work, and of what is kept to save work: ``$RS_WORK`` or ``.work``."""
    return Path(os.environ.get("RS_WORK") or Path(os.environ.get("DVC_ROOT", ".")) / ".work")


def key(identity: dict[str, Any]) -> str:
    """Name of the work that makes ``identity``: a hash of it as JSON."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def folder(identity: dict[str, Any]) -> Iterator[Path]:
    """Yield the folder of the work that makes ``identity``, locked; it is removed if the body succeeds.

    If the body fails or the process dies, the folder stays, and the next run with the same identity finds it.

    Raises:
        InputError: If another process is at the same work, or finished it between two of our steps.
    """
    path = root() / key(identity)
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another process is making the same thing (it holds {path}/lock); wait or stop it"
            ) from error
        if not _holds(path / "lock", lock.fileno()):
            raise InputError(f"another process has just made the same thing and removed {path}; run again")
        yield path
        shutil.rmtree(path)


def _holds(path: Path, descriptor: int) -> bool:
    """Whether ``path`` is still the open file: its folder may have been removed before the lock was ours."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))
