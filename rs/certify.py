"""Certifying a set of images: rows appended as they are made, interrupted and continued, published whole."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from rs import files, rows, work
from rs.data import Images
from rs.errors import InputError
from rs.params import Count, NonNegativeCount, validated
from rs.progress import progress
from rs.radius import votes_needed
from rs.smoothing import Precision, SmoothedClassifier
from rs.subset import Subset


@validated
class Settings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: Count  # draws that select the class
    n: Count  # fresh draws that bound its probability
    alpha: Annotated[float, Field(gt=0, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, the same for every model
    subset: Subset  # of the test split
    precision: Precision
    shortcut: bool  # skip the n draws of an image whose selected class is not its label


def warn_if_hopeless(n: int, alpha: float) -> None:
    """Say on stderr if ``n`` draws can never certify anything at ``alpha``."""
    if votes_needed(n, alpha) is None:
        least = next(more for more in count(n + 1) if votes_needed(more, alpha) is not None)
        print(
            f"warning: n = {n} draws can never certify at alpha = {alpha}: even a unanimous vote abstains; "
            f"give n of at least {least}",
            file=sys.stderr,
        )


def certificates(
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: Settings,
    device: torch.device,
) -> Iterator[dict[str, Any]]:
    """Certify the images named by ``indices``, one row after the other."""
    for index in map(int, indices):
        label = int(images.labels[index])
        x = images.pixels(index).to(device)
        shortcut = label if settings.shortcut else None
        certificate = classifier.certify(
            x, settings.n0, settings.n, settings.alpha, seed=settings.seed, index=index, label=shortcut
        )
        yield certificate.row(index, label)


def certify_to(
    out: Path,
    classifier: SmoothedClassifier,
    images: Images,
    indices: NDArray[np.int64],
    settings: Settings,
    device: torch.device,
    identity: dict[str, Any],
) -> None:
    """Write the rows of ``indices`` to ``out``, its sidecar ``out``.json and the seconds of each image.

    Rows are appended to a file in the work folder as they are made. A run that is killed continues there, and the
    published file has the same bytes as that of an unbroken run.

    Args:
        out: The row file, ``*.tsv``.
        identity: Everything that the rows depend on; written as the sidecar, and compared with an existing one.
    Raises:
        InputError: If ``out`` is not a ``*.tsv``, holds the rows of something else, or another process is making it.
    """
    if out.suffix != ".tsv":  # "gaussian-0.25" and "gaussian-0.5" would share the sidecar "gaussian-0.json"
        raise InputError(f"the row file must be named *.tsv, got {out}; its sidecar takes the name with .json")
    if is_complete(out, identity, len(indices)):
        print(f"{out} is complete already; nothing to do", file=sys.stderr)
        return
    warn_if_hopeless(settings.n, settings.alpha)
    with work.folder(identity) as folder:
        part, seconds = folder / "rows.tsv", folder / "seconds.csv"
        done = _continue(part, seconds)
        if done:
            print(f"continuing after {done} of {len(indices)} images", file=sys.stderr)
        made = certificates(classifier, images, indices[done:], settings, device)
        _append(part, seconds, progress(made, len(indices), f"certify {out.stem}", done))
        files.write_json(sidecar_of(out), identity)
        files.write_text(seconds_of(out), seconds.read_text(encoding="utf-8"))
        files.write_text(out, part.read_text(encoding="utf-8"))  # last: rows without a sidecar are refused


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
    if len(rows.read(out)) != images:
        raise InputError(f"{out} must hold {images} rows, but has {len(rows.read(out))}; remove it and run again")
    return True


def _continue(part: Path, seconds: Path) -> int:
    """Cut an interrupted pair of files back to what both have whole; return the number of images done."""
    if not part.exists() or not seconds.exists():
        files.write_text(part, rows.HEADER + "\n")
        files.write_text(seconds, "idx,seconds\n")
        return 0
    whole = [[line for line in p.read_text().splitlines(True) if line.endswith("\n")] for p in (part, seconds)]
    keep = max(1, min(map(len, whole)))
    for path, lines in zip((part, seconds), whole, strict=True):
        files.write_text(path, "".join(lines[:keep]))
    return keep - 1


def _append(part: Path, seconds: Path, made: Iterator[dict[str, Any]]) -> None:
    """Append each row as it is made, flushed to the operating system, with the seconds it took."""
    with part.open("a", encoding="utf-8") as row_file, seconds.open("a", encoding="utf-8") as time_file:
        start = time.perf_counter()
        for row in made:
            now = time.perf_counter()
            time_file.write(f"{row['idx']},{now - start:.6f}\n")
            time_file.flush()
            row_file.write(rows.format_row(row) + "\n")
            row_file.flush()
            start = now
        os.fsync(row_file.fileno())
