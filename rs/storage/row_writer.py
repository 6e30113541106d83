"""Files of rows: appended as rows are made, interrupted and continued, dealt out to processes, published whole."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rs.errors import InputError
from rs.runtime import processes, scratch
from rs.runtime.progress import progress
from rs.storage import certificate_rows, files

SECONDS = "seconds.csv"
SECONDS_HEAD = "idx,seconds\n"


def rows_to(
    outs: Mapping[Path, dict[str, Any]],
    seconds: Path,
    indices: NDArray[np.int64],
    made: Callable[[NDArray[np.int64]], Iterator[Mapping[Path, dict[str, Any]]]],
) -> bool:
    """Write files of rows of the same images that are made together, their sidecars, and the seconds of each image.

    Rows are appended to files in the work folder as they are made. A run that is killed continues there, and the
    published files have the same bytes as those of an unbroken run. Under torchrun each process takes its share of the
    images, and the first one puts the rows together; the work folder must then be one that all of them see.

    Args:
        outs: The row files, ``*.tsv``, each with everything that its rows depend on: the sidecar that is written, and
            compared with an existing one.
        seconds: Where the seconds of each image go.
        indices: The images.
        made: From the indices that are left to their rows, one for each of ``outs``.
    Returns:
        Whether there was anything to do.
    Raises:
        InputError: If a file is not a ``*.tsv``, holds the rows of something else, or another process is making it; or
            if its sidecar or ``seconds`` is something else.
    """
    for out in outs:
        if out.suffix != ".tsv":  # "gaussian-0.25" and "gaussian-0.5" would share the sidecar "gaussian-0.json"
            raise InputError(f"the row file must be named *.tsv, got {out}; its sidecar takes the name with .json")
    complete = [is_complete(out, identity, len(indices)) for out, identity in outs.items()]
    if all(complete):
        print(f"{_names(outs)} complete already; nothing to do", file=sys.stderr)
        return False
    for out in outs:
        is_sidecar = files.is_json_with("classifier", "scope", "sigma", "subset")
        files.check_output(sidecar_of(out), f"the sidecar of {out}", is_sidecar)
    files.check_output(seconds, "the seconds of certificates", files.begins_with(SECONDS_HEAD))
    rank, world = processes.place()
    shares = [{"rows": list(outs.values()), "rank": k, "world": world} for k in range(world)]
    own = indices[rank::world]
    with scratch.folder(shares[rank]) as folder, processes.meeting() as meet:
        parts = {out: folder / f"{number}.tsv" for number, out in enumerate(outs)}
        done = _continue([*parts.values()], folder / SECONDS)
        if done:
            print(f"continuing after {done} of {len(own)} images", file=sys.stderr)
        name = f"certify {next(iter(outs)).stem}" if len(outs) == 1 else f"certify {len(outs)} classifiers"
        name += f", process {rank + 1} of {world}" if world > 1 else ""
        _append(parts, folder / SECONDS, progress(made(own[done:]), len(own), name, done))
        meet()
        if rank == 0:
            _publish(outs, seconds, [scratch.root() / scratch.key(share) for share in shares], len(indices))
        meet()
    return True


def _publish(outs: Mapping[Path, dict[str, Any]], seconds: Path, folders: Sequence[Path], images: int) -> None:
    """Put the parts of all processes, in their work folders, together in the order of the images."""
    files.write_text(seconds, _merged([folder / SECONDS for folder in folders], images))
    for number, (out, identity) in enumerate(outs.items()):
        files.write_json(sidecar_of(out), identity)
        text = _merged([folder / f"{number}.tsv" for folder in folders], images)
        files.write_text(out, text)  # last: rows without a sidecar are refused


def _merged(parts: Sequence[Path], images: int) -> str:
    """The text of one file from its parts: image i is line i // world of part i % world, after the head."""
    lines = [part.read_text(encoding="utf-8").splitlines(True) for part in parts]
    return lines[0][0] + "".join(lines[i % len(parts)][1 + i // len(parts)] for i in range(images))


def _names(outs: Iterable[Path]) -> str:
    first, *more = outs
    return f"{first} and {len(more)} more are" if more else f"{first} is"


def sidecar_of(out: Path) -> Path:
    """Path of the JSON file that says what made the rows of ``out``."""
    return out.with_suffix(".json")


def seconds_of(out: Path) -> Path:
    """Path of the wall-clock seconds of each image of ``out``."""
    return out.with_suffix(".seconds.csv")


def is_complete(out: Path, identity: dict[str, Any], images: int) -> bool:
    """Whether ``out`` already holds the rows of ``identity``.

    Raises:
        InputError: If ``out`` exists but holds something else.
    """
    if not out.exists():
        return False
    if not sidecar_of(out).exists():
        raise InputError(
            f"{out} must have {sidecar_of(out)} beside it, but there is none; remove {out} or name another"
        )
    found = files.read_json(sidecar_of(out))
    if not isinstance(found, dict):
        raise InputError(
            f"{sidecar_of(out)} must hold a mapping, got {type(found).__name__}; remove {out} and run again"
        )
    unlike = sorted(k for k in identity.keys() | found.keys() if identity.get(k) != found.get(k))
    if unlike:
        k = unlike[0]
        raise InputError(
            f"{out} must hold rows of this run, but its {k} is {found.get(k)!r} and here it is {identity.get(k)!r}; "
            f"remove it or name another --out"
        )
    if len(certificate_rows.read(out)) != images:
        raise InputError(
            f"{out} must hold {images} rows, but has {len(certificate_rows.read(out))}; remove it and run again"
        )
    return True


def _continue(parts: Sequence[Path], seconds: Path) -> int:
    """Cut interrupted files back to what all of them have whole; return the number of images done."""
    heads = {**dict.fromkeys(parts, certificate_rows.HEADER + "\n"), seconds: SECONDS_HEAD}
    if not all(path.exists() for path in heads):
        for path, head in heads.items():
            files.write_text(path, head)
        return 0
    whole = {path: [line for line in path.read_text().splitlines(True) if line.endswith("\n")] for path in heads}
    keep = max(1, min(map(len, whole.values())))
    for path, lines in whole.items():
        files.write_text(path, "".join(lines[:keep]))
    return keep - 1


def _append(parts: Mapping[Path, Path], seconds: Path, made: Iterator[Mapping[Path, dict[str, Any]]]) -> None:
    """Append the rows of each image as they are made, flushed to the operating system, with the seconds they took."""
    with ExitStack() as opened:
        row_files = {out: opened.enter_context(path.open("a", encoding="utf-8")) for out, path in parts.items()}
        time_file = opened.enter_context(seconds.open("a", encoding="utf-8"))
        start = time.perf_counter()
        for together in made:
            now = time.perf_counter()
            for out, row in together.items():
                row_files[out].write(certificate_rows.format_row(row) + "\n")
                row_files[out].flush()
            index = next(iter(together.values()))["idx"]
            time_file.write(f"{index},{now - start:.6f}\n")
            time_file.flush()
            start = now
        for file in row_files.values():
            os.fsync(file.fileno())
