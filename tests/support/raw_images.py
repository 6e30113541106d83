"""Raw data sets for tests: random images, and preparing them."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from rs.data import images, sources
from tests.support.helpers import refuses


def image_bytes(pixels, kind="PNG", mode=None):
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(buffer, kind)
    return buffer.getvalue()


def pixels(n, shape=(4, 5, 3), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), np.uint8)


def prepare(tmp_path, name="mine", **values):
    sources.settings(values, f"datasets.{name}").prepare(name, tmp_path / "set")
    return images.load_images(tmp_path / "set", "train"), images.load_images(
        tmp_path / "set", "test"
    )


def refused(tmp_path, message, name="mine", **values):
    with refuses(message):
        prepare(tmp_path, name, **values)
    assert not [path for path in tmp_path.iterdir() if path.name != "raw"]


def damage(name, change):
    return lambda root: change(root / name)


def write_parquet(path, cells, labels, *, names=None, image="img", label="label"):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [cell if cell is None else {"bytes": cell, "path": None} for cell in cells]
    table = pa.table({image: pa.array(rows, kind), label: pa.array(labels)})
    if names:
        features = {label: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
