"""The run on one GPU, in small on a CPU."""

import csv
import io
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from benchmarks import gpu_run
from rs.models.checkpoint import load_model
from rs.statistics.radius import lower_bound, radius


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


def test_a_rehearsal_trains_and_certifies_every_level(tmp_path):
    write_images(tmp_path / "train.parquet", 400)
    write_images(tmp_path / "test.parquet", 500)
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_run",
        "--data",
        tmp_path,
        "--out",
        out,
        "--device",
        "cpu",
    ]
    done = subprocess.run([*command, "--rehearse"], capture_output=True, text=True, check=True)
    assert "failed" not in done.stdout, done.stdout
    for method, sigma, _, _ in gpu_run.LEVELS:
        model, card = load_model(out / f"{method}-{sigma}")
        assert card.sigma == sigma
        assert not model.training
        rows = list(
            csv.DictReader((out / f"{method}-{sigma}.tsv").read_text().splitlines(), delimiter="\t")
        )
        assert [int(row["idx"]) for row in rows] == list(range(gpu_run.REHEARSED_IMAGES))
        for row in rows:
            votes = [int(count) for count in row["counts"].split(",")]
            if row["predict"] == row["label"]:
                expected = radius(lower_bound(max(votes), sum(votes), 0.001), sigma)
                assert float(row["radius"]) == pytest.approx(float(expected))


def test_a_part_that_fails_says_so_and_stops_no_other(tmp_path):
    said = gpu_run.in_a_process(tmp_path / "absent", tmp_path, "cpu", {"part": "check"}, 60)
    assert said.startswith("failed: ")


def test_a_part_that_runs_past_the_time_is_ended(tmp_path):
    endless = {"part": "certificate", "architecture": "resnet110", "small": False, "seconds": 1}
    said = gpu_run.in_a_process(tmp_path, tmp_path, "cpu", endless, 0)
    assert said == "failed: it ran past the time of all parts"
