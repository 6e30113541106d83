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


def test_a_rehearsal_trains_and_certifies_levels(images, tmp_path):
    results = rehearse("levels", images, tmp_path / "a run")
    for sigma in (0.5, 0.25):
        path = results / str(sigma) / "advmacer-0.tsv"
        rows = read_rows(path)
        assert list(rows["idx"]) == [0, 1, 2, 3, 4]
        assert set(rows["sigma"]) == {sigma}
        assert path.with_suffix(".json").exists()


def test_a_rehearsal_certifies_methods_and_their_ensembles(images, tmp_path):
    results = rehearse("methods", images, tmp_path / "out") / gpu_run.SIGMA
    certified = {str(path.relative_to(results)) for path in results.rglob("*.tsv")}
    alone = {"gaussian-0.tsv", "advmacer-0.tsv"}
    pool = {"pool/advmacer-2.tsv", "pool/advmacer-0+gaussian-1-2.optimal.tsv"}
    assert alone | pool <= certified
    assert all(len(read_rows(results / path)) == 5 for path in certified)


def test_a_part_that_fails_or_runs_past_the_time_says_so():
    end = time.monotonic() + 60
    assert gpu_run.run_part("stages.train --no-such-option", end).startswith("failed: ")
    late = gpu_run.run_part("benchmarks.throughput resnet110 --device cpu", 0)
    assert late == "failed: it ran past the time of all parts"
