"""The run on one GPU, in small on a CPU."""

import time

import pytest

from benchmarks import gpu_run
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import python
from tests.support.raw_images import image_bytes, pixels, write_parquet


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of noise of ten classes in the place of CIFAR-10, as on the Hugging Face hub."""
    folder = tmp_path_factory.mktemp("images")
    for name, count in (("train", 400), ("test", 50)):
        cells = [image_bytes(image) for image in pixels(count, (32, 32, 3))]
        labels = [number % 10 for number in range(count)]
        write_parquet(folder / f"{name}.parquet", cells, labels)
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
