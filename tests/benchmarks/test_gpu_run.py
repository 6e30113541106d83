"""The run on one GPU, in small on a CPU."""

import io
import time

import numpy as np
import pyarrow as pa
import pytest
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


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of noise in the place of CIFAR-10."""
    folder = tmp_path_factory.mktemp("images")
    write_images(folder / "train.parquet", 400)
    write_images(folder / "test.parquet", 50)
    return folder


def rehearse(plan, images, out):
    """Rehearse a plan on the CPU; return the folder of its rows."""
    words = ["--data", images, "--out", out, "--device", "cpu", "--rehearse"]
    done = python("-m", "benchmarks.gpu_run", plan, *words)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    return out / "results" / gpu_run.DATASET


@pytest.mark.parametrize(
    ("plan", "certified"),
    [
        ("levels", ["0.25/advmacer-0", "0.5/advmacer-0"]),
        (
            "methods",
            [
                f"{gpu_run.SIGMA}/advmacer-0",
                f"{gpu_run.SIGMA}/gaussian-0",
                f"{gpu_run.SIGMA}/pool/advmacer-2",
                f"{gpu_run.SIGMA}/pool/advmacer-0+gaussian-1-2.optimal",
            ],
        ),
    ],
)
def test_a_rehearsal_trains_and_certifies_five_images(images, tmp_path, plan, certified):
    results = rehearse(plan, images, tmp_path / "a run")
    for name in certified:
        rows = read_rows(results / f"{name}.tsv")
        assert list(rows["idx"]) == [0, 1, 2, 3, 4]
        assert str(rows["sigma"][0]) == name.split("/")[0]


def test_a_part_that_fails_or_runs_past_the_time_says_so():
    end = time.monotonic() + 60
    assert gpu_run.run_part("stages.train --no-such-option", end).startswith("failed: ")
    late = gpu_run.run_part("benchmarks.throughput resnet110 --device cpu", 0)
    assert late == "failed: it ran past the time of all parts"
