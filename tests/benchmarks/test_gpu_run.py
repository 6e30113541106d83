"""The run on one GPU, in small on a CPU."""

import io
import time

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from benchmarks import gpu_run
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import python


def write_images(path, count):
    """Write noise as images of ten classes, in the layout of the Hugging Face hub."""
    pixels = np.random.default_rng(count).integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
    rows = []
    for image in pixels:
        content = io.BytesIO()
        Image.fromarray(image).save(content, "PNG")
        rows.append({"bytes": content.getvalue(), "path": ""})
    labels = [number % 10 for number in range(count)]
    parquet.write_table(pa.table({"img": rows, "label": labels}), path)


def test_a_rehearsal_trains_and_certifies(tmp_path):
    write_images(tmp_path / "train.parquet", 400)
    write_images(tmp_path / "test.parquet", 50)
    out = tmp_path / "out"
    words = ["--data", tmp_path, "--out", out, "--device", "cpu", "--rehearse"]
    done = python("-m", "benchmarks.gpu_run", *words)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    for method, sigma, _, _ in gpu_run.REHEARSED:
        rows = read_rows(out / f"{method}-{sigma}.tsv")
        assert list(rows["idx"]) == [0, 1, 2, 3, 4]
        assert set(rows["sigma"]) == {sigma}
        assert (out / f"{method}-{sigma}.json").exists()


def test_a_part_that_fails_or_runs_past_the_time_says_so():
    end = time.monotonic() + 60
    assert gpu_run.run_part(["stages.train", "--no-such-option"], end).startswith("failed: ")
    late = gpu_run.run_part(["benchmarks.throughput", "resnet110", "--device", "cpu"], 0)
    assert late == "failed: it ran past the time of all parts"
