"""Parquet files in the layout of the Hugging Face hub, as arrays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from rs.data.pictures import Colors, decode
from rs.data.prepared import Arrays
from rs.data.readers import Raw, split_names, stack
from rs.errors import InputError, one_line
from rs.params import MAX_CLASSES
from rs.storage import files

ROWS_AT_ONCE = 64
"""Rows decompressed at once: a small file may hold one picture very often."""

SHARD = re.compile(r"-\d+-of-(\d+)(?:-[0-9a-f]+)?\.parquet$")
"""End of the name of a shard, with the number of shards."""

MAX_SHOWN_BYTES = 200
"""Bytes of a description that a message shows."""

ClassNames = Annotated[list[str], Field(max_length=MAX_CLASSES)]


def read_parquet(
    root: Path,
    classes: Sequence[str] | None,
    test_split: str | None = None,
    convert: Colors | None = None,
) -> Raw:
    """Read parquet files in the layout of the Hugging Face hub.

    Args:
        root: Folder with ``train.parquet``, ``train-*.parquet`` or ``train/*.parquet``, and the
            same for the test split, or a folder with one such folder, often ``data``.
            Column ``img`` or ``image`` holds encoded images, struct{bytes, path}; ``label`` or
            ``fine_label`` whole numbers.
        classes: Names of the classes where the schema has none; ``None`` takes the labels' numbers.
        test_split: Name of the test files; ``None`` tries :data:`rs.data.readers.SPLIT_NAMES`.
        convert: Colors that all images are converted to; ``None`` takes those of the files.
    Raises:
        InputError: If files are missing, broken, or not of this layout, or the labels of the test
            split are unknown.
    """
    paths = {split: _shards(root, names) for split, names in split_names(test_split).items()}
    names = [_hub_classes(path) for path in itertools.chain(*paths.values())]
    if any(other != names[0] for other in names):
        raise InputError(
            f"{root}: all files must name the same classes, but they differ; use files of one data "
            "set"
        )
    splits = {}
    for split, shards in paths.items():
        splits[split] = stack(row for path in shards for row in rows(path, convert))
    if (splits["test"][1] < 0).any():
        raise InputError(
            f"{root}: the labels of the test split must be known, but some are negative; add "
            "test_split: NAME to the data set in params.yaml, where NAME is a split with labels, "
            "often validation"
        )
    listed = ", ".join(f"{name} (sha256 {value})" for name, value in sums(root, test_split).items())
    source = f"parquet files {listed}"
    if convert:
        source += f", converted to {convert}"
    return Raw(splits, _classes(root, splits, names[0] or classes), source)


def sums(root: Path, test_split: str | None = None) -> dict[str, str]:
    """Return the SHA-256 of the files that :func:`read_parquet` reads, by path in ``root``.

    Returns:
        Empty if a split does not have a file.
    """
    shards = [_files(root, names) for names in split_names(test_split).values()]
    if not all(shards):
        return {}
    paths = itertools.chain(*shards)
    return {path.relative_to(root).as_posix(): files.sha256(path) for path in paths}


def _files(root: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of a split, in order."""
    for name in names:
        for pattern in (f"{name}.parquet", f"{name}-*.parquet", f"{name}/*.parquet"):
            for folder in ("", "*/"):
                paths = sorted(root.glob(folder + pattern))
                if paths:
                    return paths
    return []


def _shards(root: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of a split, in order; a missing shard is an error."""
    split = names[0]
    paths = _files(root, names)
    folders = sorted({str(path.parent) for path in paths})
    if len(folders) > 1:
        raise InputError(
            f"{root} must hold one data set, but {', '.join(folders)} have files of {split}; give "
            "one of these folders"
        )
    matches = [SHARD.search(path.name) for path in paths]
    announced = {int(match[1]) for match in matches if match}
    if announced and announced != {len(paths)}:
        raise InputError(
            f"{root} must hold all shards of {split}, got {len(paths)} of {max(announced)}; get "
            "them all"
        )
    if not paths:
        raise InputError(
            f"{root} must hold {split}.parquet or {split}-*.parquet, but there is none; check the "
            "root"
        )
    return paths


def _open(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} must be a parquet file, but: {one_line(error)}; get it again"
        ) from error


def _columns(schema: Any, path: Path) -> tuple[str, str]:
    """Return the names of the image and the label column, of the right types."""
    import pyarrow as pa

    image = "img" if "img" in schema.names else "image"
    label = "label" if "label" in schema.names else "fine_label"
    types = dict(zip(schema.names, schema.types, strict=True))
    shown = ", ".join(f"{name}: {kind}" for name, kind in types.items())
    kind = types.get(image, pa.null())
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        raise InputError(
            f"{path} must have a column img or image, struct{{bytes, path}}, got {shown}; rename "
            "or convert it"
        )
    if not pa.types.is_integer(types.get(label, pa.null())):
        raise InputError(
            f"{path} must have a whole-number column label or fine_label, got {shown}; rename it, "
            "or number the classes from 0, as class_encode_column of datasets does"
        )
    return image, label


def rows(path: Path, convert: Colors | None = None) -> Iterable[tuple[str, NDArray[np.uint8], int]]:
    """Yield name, pixels uint8 (C, H, W) and label of each row, read as they are asked for.

    Args:
        path: The file.
        convert: Colors that all images are converted to; ``None`` takes those of the files.
    Raises:
        InputError: If the file or a row is broken, or not of this layout.
    """
    import pyarrow as pa

    row = 0
    with _open(path) as file:
        image, label = _columns(file.schema_arrow, path)
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[image, label]):
                cells = batch[image].to_pylist()
                numbers = batch[label].to_pylist()
                for cell, number in zip(cells, numbers, strict=True):
                    where = f"{path} row {row}"
                    if number is None or cell is None or cell["bytes"] is None:
                        raise InputError(
                            f"{where} must have the bytes of an image and a label, got none; "
                            "complete it"
                        )
                    yield where, decode(cell["bytes"], where, convert), number
                    row += 1
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path} must be readable to its end, but: {one_line(error)}; get it again"
            ) from error


def _hub_classes(path: Path) -> list[str] | None:
    """Return the class names in the hub's feature description, if the schema has one."""
    with _open(path) as file:
        schema = file.schema_arrow
    label = _columns(schema, path)[1]
    text = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        value = files.decode_json(text[: files.MAX_JSON_BYTES])
        for key in ("info", "features", label):
            value = value.get(key, {})
        names = value.get("names")
        if names is None:
            return None
        return TypeAdapter(ClassNames).validate_python(names, strict=True)
    except (ValueError, AttributeError) as error:
        raise InputError(
            f"{path} must describe its features as the hub does, got {text[:MAX_SHOWN_BYTES]!r}; "
            "remove the description"
        ) from error


def _classes(root: Path, splits: Mapping[str, Arrays], names: Sequence[str] | None) -> list[str]:
    """Return ``names``, or the numbers of the labels, which then must be 0, 1, ... without gaps."""
    if names:
        return list(names)
    labels = np.unique(splits["train"][1])
    if not np.array_equal(labels, np.arange(len(labels))):
        raise InputError(
            f"{root}: labels must be 0, 1, 2, ... unless the classes are named, got "
            f"{labels[:10].tolist()}..."
        )
    return [str(label) for label in labels]
