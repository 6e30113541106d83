"""Certifying a set of images: rows appended as they are made, interrupted and continued, published whole."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rs import files, rows, work
from rs.data import Images
from rs.engine import Engine
from rs.errors import InputError
from rs.params import Count, NonNegativeCount, validated
from rs.progress import progress
from rs.radius import votes_needed
from rs.rows import draws_at_most
from rs.smoothing import Certificate, Precision, SmoothedClassifier
from rs.stop import Stop
from rs.subset import Subset

if TYPE_CHECKING:  # half a second to import
    import pandas as pd


@validated
class Settings:
    """How to certify; section ``recipes.DATASET.certify`` of params.yaml."""

    n0: Count  # draws that select the class
    n: Count  # fresh draws that bound its probability
    alpha: Annotated[float, Field(gt=0, lt=1)]  # failure probability of a certificate
    seed: NonNegativeCount  # of the noise, the same for every model
    subset: Subset  # of the test split
    precision: Precision
    engine: Engine  # plain: the network as it was trained; folded or compiled: arranged to be fast (``rs.engine``)
    shortcut: bool  # skip the n draws of an image whose selected class is not its label
    stop: Stop | None = None  # stop at an answer; n is then the most draws

    def __post_init__(self) -> None:
        if self.stop is not None and self.shortcut:
            raise ValueError("stop and shortcut must not come together: rows of the two are not alike")


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
) -> Iterator[tuple[int, Certificate]]:
    """Certify the images named by ``indices``, one after the other."""
    for index in map(int, indices):
        yield index, _certify(classifier, images.pixels(index).to(device), index, int(images.labels[index]), settings)


def _certify(classifier: SmoothedClassifier, x: Tensor, index: int, label: int, of: Settings) -> Certificate:
    where = {"seed": of.seed, "index": index}
    if of.stop is not None:
        return classifier.certify_until(x, of.n0, of.stop, of.n, of.alpha, **where)
    return classifier.certify(x, of.n0, of.n, of.alpha, label=label if of.shortcut else None, **where)


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

    Args:
        out: The row file, ``*.tsv``.
        identity: Everything that the rows depend on, as for :func:`rows_to`; its ``scope`` goes into the rows.
    Raises:
        InputError: As :func:`rows_to`.
    """

    def made(left: NDArray[np.int64]) -> Iterator[dict[Path, dict[str, Any]]]:
        for index, certificate in certificates(classifier, images, left, settings, device):
            yield {out: certificate.row(index, int(images.labels[index]), identity["scope"])}

    rows_to({out: identity}, seconds_of(out), indices, settings, made)


def rows_to(
    outs: Mapping[Path, dict[str, Any]],
    seconds: Path,
    indices: NDArray[np.int64],
    settings: Settings,
    made: Callable[[NDArray[np.int64]], Iterator[Mapping[Path, dict[str, Any]]]],
) -> bool:
    """Write files of rows of the same images that are made together, their sidecars, and the seconds of each image.

    Rows are appended to files in the work folder as they are made. A run that is killed continues there, and the
    published files have the same bytes as those of an unbroken run.

    Args:
        outs: The row files, ``*.tsv``, each with everything that its rows depend on: the sidecar that is written, and
            compared with an existing one.
        seconds: Where the seconds of each image go.
        indices: The images.
        made: From the indices that are left to their rows, one for each of ``outs``.
    Returns:
        Whether there was anything to do.
    Raises:
        InputError: If a file is not a ``*.tsv``, holds the rows of something else, or another process is making it.
    """
    for out in outs:
        if out.suffix != ".tsv":  # "gaussian-0.25" and "gaussian-0.5" would share the sidecar "gaussian-0.json"
            raise InputError(f"the row file must be named *.tsv, got {out}; its sidecar takes the name with .json")
    complete = [is_complete(out, identity, len(indices)) for out, identity in outs.items()]
    if all(complete):
        print(f"{_names(outs)} complete already; nothing to do", file=sys.stderr)
        return False
    warn_if_hopeless(settings.n, settings.alpha)
    with work.folder({"rows": list(outs.values())}) as folder:
        parts = {out: folder / f"{number}.tsv" for number, out in enumerate(outs)}
        done = _continue([*parts.values()], folder / "seconds.csv")
        if done:
            print(f"continuing after {done} of {len(indices)} images", file=sys.stderr)
        name = f"certify {next(iter(outs)).stem}" if len(outs) == 1 else f"certify {len(outs)} classifiers"
        _append(parts, folder / "seconds.csv", progress(made(indices[done:]), len(indices), name, done))
        files.write_text(seconds, (folder / "seconds.csv").read_text(encoding="utf-8"))
        for out, identity in outs.items():
            files.write_json(sidecar_of(out), identity)
            files.write_text(out, parts[out].read_text(encoding="utf-8"))  # last: rows without a sidecar are refused
    return True


def _names(outs: Iterable[Path]) -> str:
    first, *more = outs
    return f"{first} and {len(more)} more are" if more else f"{first} is"


def summary(table: pd.DataFrame) -> str:
    """Say in one line what rows that stopped when they were sure came to."""
    right, draws = float(table["correct"].mean()), float((table["n0"] + table["n"]).mean())
    most = int(table["n0"].iloc[0]) + (draws_at_most(table["mode"].iloc[0]) or 0)
    what = (
        f"radius {table['mode'].iloc[0].split(':')[1]}"
        if table["mode"].iloc[0].startswith("at-radius")
        else "some radius"
    )
    return f"certified at {what}: {right:.1%} of {len(table):,} images; {draws:,.0f} of {most:,} draws an image"


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


def _continue(parts: Sequence[Path], seconds: Path) -> int:
    """Cut interrupted files back to what all of them have whole; return the number of images done."""
    heads = {**dict.fromkeys(parts, rows.HEADER + "\n"), seconds: "idx,seconds\n"}
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
                row_files[out].write(rows.format_row(row) + "\n")
                row_files[out].flush()
            index = next(iter(together.values()))["idx"]
            time_file.write(f"{index},{now - start:.6f}\n")
            time_file.flush()
            start = now
        for file in row_files.values():
            os.fsync(file.fileno())
