"""Writing row files: image by image, resumable, shared by processes, published at once."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from rs.errors import InputError, NotDeterministicError
from rs.runtime import processes, scratch
from rs.runtime.progress import progress, say
from rs.statistics.certificate import UNLABELED, Certificate
from rs.statistics.procedures.early import parse_mode
from rs.storage import attack_rows, certificate_rows, files
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance

RowsText = Callable[[Sequence[Mapping[str, Any]]], str]
"""Returns rows as the text of a file."""


@contextmanager
def write_rows(
    outs: Mapping[Path, Provenance],
    indices: NDArray[np.int64],
    rows_text: RowsText = certificate_rows.rows_text,
    verb: str = "certify",
) -> Iterator[RowWriter]:
    """Write row files of the same images, and their sidecars.

    The body writes the rows of every image in ``writer.remaining``, which is empty if all files are
    complete::

        with write_rows({out: provenance}, indices) as writer:
            for index in writer.remaining:
                writer.write(index, {out: row})

    Rows are appended to files in a scratch folder, and published when the body ends. If the body
    raises, or the process is killed, nothing is published, and the next run resumes after the last
    complete image; the published bytes are those of an uninterrupted run. If the body raises
    ``NotDeterministicError``, the rows are discarded. Under torchrun each process writes its share
    of the images and the first one merges them, so all processes must see the same scratch folder.

    Args:
        outs: The row files, ``*.tsv``, each with everything that its rows depend on. It is written
            as the sidecar, and compared with an existing one.
        indices: The images.
        rows_text: ``certificate_rows.rows_text`` or ``attack_rows.attack_rows_text``.
        verb: What is done to each image, for the progress bar.
    Raises:
        InputError: If a file is not a ``*.tsv``, holds other rows (also if this is noticed only at
            the end), or is being written by another process; or if its sidecar is something else.
        ValueError: If the body leaves out an image.
    """
    rank, world_size = processes.rank_and_world_size()
    contents = []
    for provenance in outs.values():
        if world_size > 1:  # all processes need the same names, and may round logits differently
            provenance = replace(provenance, probe=None)
        contents.append(provenance.to_json())
    shares = [{"rows": contents, "rank": k, "world": world_size} for k in range(world_size)]
    folders = [scratch.root() / scratch.key(share) for share in shares]
    if _all_complete(outs, len(indices)):
        scratch.discard(shares[rank])
        yield RowWriter({}, indices[:0], rows_text, was_complete=True)
        return
    _check_outputs(outs)
    try:
        with scratch.scratch_folder(shares[rank]) as folder, processes.barrier() as wait_for_all:
            own_indices = indices[rank::world_size]
            with _open_parts(outs, folder, own_indices, rows_text, verb) as writer:
                yield writer
            wait_for_all()
            if rank == 0:
                parts = {}
                for number, out in enumerate(outs):
                    parts[out] = [folder / f"{number}.tsv" for folder in folders]
                _publish(outs, parts, len(indices))
            wait_for_all()
    except NotDeterministicError:
        for folder in folders:  # discard all partial rows, including other processes'
            shutil.rmtree(folder, ignore_errors=True)
        raise


@dataclass
class RowWriter:
    """Appends the rows of images to unfinished files; made by :func:`write_rows`."""

    row_files: Mapping[Path, TextIO]  # unfinished files, by the path of the published file
    indices: NDArray[np.int64]  # the images of this process
    rows_text: RowsText
    written: int = 0  # number of images whose rows are in the files
    description: str = ""  # of the work, for the progress bar
    was_complete: bool = False  # whether the files were published before

    @property
    def remaining(self) -> Iterator[int]:
        """Yield the images whose rows are missing, in order, and show the progress."""
        if self.written < len(self.indices):
            remaining = map(int, self.indices[self.written :])
            yield from progress(remaining, len(self.indices), self.description, self.written)

    def write(self, index: int, rows: Mapping[Path, Mapping[str, Any]]) -> None:
        """Append the row of an image to each file."""
        for out, file in self.row_files.items():
            text = self.rows_text([rows[out]])
            header, _, line = text.partition("\n")
            file.write(line if self.written else f"{header}\n{line}")
            file.flush()
        self.written += 1


def check_row_file_name(out: Path) -> None:
    """Refuse a row file that is not a ``*.tsv``.

    Raises:
        InputError: If it has another name.
    """
    # "gaussian-0.25" and "gaussian-0.5" would share the sidecar "gaussian-0.json"
    if out.suffix != ".tsv":
        raise InputError(
            f"the row file must be named *.tsv, got {out}; its sidecar takes the name with .json"
        )


def _all_complete(outs: Mapping[Path, Provenance], images: int) -> bool:
    for out in outs:
        check_row_file_name(out)
    # a list, so that every file is checked
    complete = [_is_complete(out, provenance, images) for out, provenance in outs.items()]
    if not all(complete):
        return False
    first, *others = outs
    names = f"{first} and {len(others)} more are" if others else f"{first} is"
    say(f"{names} already complete; nothing to do", sys.stderr)
    return True


def _is_complete(out: Path, provenance: Provenance, images: int) -> bool:
    """Return whether ``out`` already holds the rows of ``provenance``.

    Raises:
        InputError: If ``out`` exists but holds something else.
    """
    if not out.exists():
        return False
    sidecar = sidecar_of(out)
    if not sidecar.exists():
        raise InputError(
            f"{out} must have {sidecar} next to it, but there is none; remove {out} or choose "
            "another --out"
        )
    stated = Provenance.read(out, f"remove {out} and run again")
    if difference := stated.difference(provenance):
        raise InputError(
            f"{out} must hold rows of this run, but {difference}; remove it or choose another --out"
        )
    is_of_attacks = attack_rows.is_attack_rows(out)
    rows = len(attack_rows.read_attacks(out) if is_of_attacks else certificate_rows.read_rows(out))
    if rows != images:
        raise InputError(f"{out} must hold {images} rows, but has {rows}; remove it and run again")
    return True


def _check_outputs(outs: Mapping[Path, Provenance]) -> None:
    for out in outs:
        files.check_output(out, "rows", replaceable=True)  # their content is checked already
        sidecar = sidecar_of(out)
        is_sidecar = "classifier" in files.json_values(sidecar)
        files.check_output(sidecar, f"the sidecar of {out}", is_sidecar)


@contextmanager
def _open_parts(
    outs: Mapping[Path, Provenance],
    folder: Path,
    indices: NDArray[np.int64],
    rows_text: RowsText,
    verb: str,
) -> Iterator[RowWriter]:
    """Open the unfinished files in ``folder`` for the remaining images of this process."""
    parts = {out: folder / f"{number}.tsv" for number, out in enumerate(outs)}
    written = _resume([*parts.values()])
    if written:
        say(f"continuing after {written} of {len(indices)} images", sys.stderr)
    with ExitStack() as stack:
        row_files = {}
        for out, path in parts.items():
            row_files[out] = stack.enter_context(path.open("a", encoding="utf-8"))
        description = _description(outs, verb)
        writer = RowWriter(row_files, indices, rows_text, written, description)
        yield writer
        if writer.written != len(indices):
            raise ValueError(
                f"rows of all {len(indices)} images must be written, got {writer.written}"
            )
        for file in row_files.values():
            os.fsync(file.fileno())


def _description(outs: Mapping[Path, Provenance], verb: str) -> str:
    rank, world_size = processes.rank_and_world_size()
    first, *others = outs
    text = f"{verb} {len(outs)} classifiers" if others else f"{verb} {first.stem}"
    if world_size > 1:
        text = f"{text}, process {rank + 1} of {world_size}"
    return text


def _resume(paths: Sequence[Path]) -> int:
    """Truncate interrupted files to their common images; return the number of these images."""
    lines = {}
    for path in paths:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines[path] = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    images = max(0, min(map(len, lines.values())) - 1)
    for path in paths:
        common_lines = lines[path][: images + 1] if images else []  # no header without rows
        files.write_text(path, "".join(common_lines))
    return images


def _publish(
    outs: Mapping[Path, Provenance], parts: Mapping[Path, Sequence[Path]], images: int
) -> None:
    """Merge the parts of each file, one per process, and write them to their final paths.

    Raises:
        InputError: If something else has been written there in the meantime.
    """
    with ExitStack() as stack:
        for folder in sorted({out.parent.resolve() for out in outs}):
            stack.enter_context(scratch.locked(folder))
        if _all_complete(outs, images):
            return
        _check_outputs(outs)
        for out, provenance in outs.items():
            provenance.write(out)
            files.write_text(out, _merge(parts[out], images))  # last: it needs a sidecar


def _merge(parts: Sequence[Path], images: int) -> str:
    """Return the text of one file from its parts.

    Of n parts, image i is line i // n of part i % n, after the header.
    """
    lines = [part.read_text(encoding="utf-8").splitlines(keepends=True) for part in parts]
    merged = [lines[0][0]]
    for image in range(images):
        line, part = divmod(image, len(parts))
        merged.append(lines[part][1 + line])
    return "".join(merged)


def write_certificates(
    out: Path,
    certificates: Iterable[Certificate],
    labels: Iterable[int] | None = None,
    *,
    indices: Iterable[int] | None = None,
    force: bool = False,
) -> None:
    """Write certificates that were made in Python as rows, which the command reads.

    The sidecar states the settings of the certificates, but neither the model nor the images.

    Args:
        out: The row file, ``*.tsv``.
        certificates: Of one model, with the same sigma, n0, n, alpha and noise.
        labels: The class of each image; ``None`` if they are not known.
        indices: The number of each image; by default its position.
        force: Whether an existing file is replaced.
    Raises:
        InputError: If the certificates differ in their settings, there are none, there are more or
            fewer labels or indices, or ``out`` exists.
    """
    out = Path(out)
    check_row_file_name(out)
    for path in (out, sidecar_of(out)):
        files.check_output(path, "rows", force=force)
    certificates = list(certificates)
    labels = [UNLABELED] * len(certificates) if labels is None else list(labels)
    indices = range(len(certificates)) if indices is None else list(indices)
    if not len(labels) == len(indices) == len(certificates) > 0:
        raise InputError(
            "each certificate must have a label and an index, got "
            f"{len(certificates)} certificates, {len(labels)} labels and {len(indices)} indices"
        )
    rows = []
    for certificate, label, index in zip(certificates, labels, indices, strict=True):
        if not isinstance(certificate, Certificate):
            raise InputError(
                f"certificates must be of type rs.Certificate, got {type(certificate).__name__}; "
                "rs.Certificate.from_dict makes one from a dict"
            )
        rows.append(certificate.row(int(index), _class_number(label)))
    text = certificate_rows.rows_text(rows)
    stated = {name: _common(certificates, name) for name in ("sigma", "n0", "alpha", "noise")}
    sampled = [certificate for certificate in certificates if certificate.n]
    n = _common(sampled or certificates[:1], "n")
    provenance = Provenance(scope="model", n=n, rows=len(certificates), **stated)
    provenance.write(out)
    files.write_text(out, text)


def _class_number(label: Any) -> int:
    """Return a label as a whole number, whatever library it is a number of."""
    with suppress(TypeError, ValueError, RuntimeError):
        number = int(label)
        if number == label:
            return number
    raise InputError(
        f"label must be a class, or {UNLABELED} where it is not known, got {label!r}; give the "
        "number of each image's class"
    )


def _common(certificates: Sequence[Certificate], name: str) -> Any:
    """Return what certificates have in common; of ``n``, the largest number of samples."""
    values = set()
    for certificate in certificates:
        stop = parse_mode(certificate.mode) if name == "n" else None
        values.add(stop.budget if stop else getattr(certificate, name))
    if len(values) > 1:
        raise InputError(
            f"certificates in one file must have the same {name}, got "
            f"{', '.join(map(str, sorted(values)))}; write several files"
        )
    return values.pop()


def merge_shares(shares: Sequence[Path], out: Path) -> int:
    """Write the row file and the sidecar of a certification from those of all its shares.

    The rows and the sidecar are byte for byte those of a certification without shares.

    Returns:
        The number of images.
    Raises:
        InputError: If a share is missing, incomplete, given twice or of another certification, and
            as :func:`write_rows`.
    """
    provenances = [_provenance_of_share(path) for path in shares]
    wholes = [replace(provenance, share=None, rows=None) for provenance in provenances]
    for path, whole in zip(shares, wholes, strict=True):
        if difference := wholes[0].difference(whole):
            raise InputError(
                f"{path} must be of the same certification as {shares[0]}, but {difference}"
            )
    numbers = [str(provenance.share) for provenance in provenances]
    path_of_share = dict(zip(numbers, shares, strict=True))
    count = int(numbers[0].partition("/")[2])
    names = [f"{number}/{count}" for number in range(1, count + 1)]
    if path_of_share.keys() != set(names) or len(shares) != count:
        missing = [name for name in names if name not in path_of_share]
        raise InputError(
            f"each of {count} shares must be given once, got {len(shares)} files; missing: "
            f"{', '.join(missing) or 'none'}"
        )
    images = sum(provenance.rows or 0 for provenance in provenances)
    parts = [path_of_share[name] for name in names]
    check_row_file_name(out)
    _publish({out: replace(wholes[0], rows=images)}, {out: parts}, images)
    return images


def _provenance_of_share(path: Path) -> Provenance:
    """Return the provenance of a share whose rows are complete."""
    refused = (
        f"{path} must be written by rs certify --share, with {sidecar_of(path)} next to it, but "
        "is not; give the files of all shares"
    )
    if not sidecar_of(path).exists():
        raise InputError(refused)
    provenance = Provenance.read(path, "give files that rs certify --share wrote")
    is_share = re.fullmatch(r"[1-9]\d{0,5}/[1-9]\d{0,5}", str(provenance.share)) is not None
    if not is_share or provenance.rows is None:
        raise InputError(refused)
    _is_complete(path, provenance, provenance.rows)
    return provenance
