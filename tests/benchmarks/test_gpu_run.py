"""The run on one GPU, in small on a CPU."""

import json
import time

import pytest

from benchmarks import gpu_run
from rs.params import read_params
from rs.storage.certificate_rows import read_rows
from tests.support.helpers import ROOT, python
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
    words = [plan, "--data", images, "--out", out, "--device", "cpu", "--rehearse"]
    done = python("-m", "benchmarks.gpu_run", *words)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    return out / "results" / "cifar10-gpu"


def check_rows(results, names):
    for name in names:
        rows = read_rows(results / f"{name}.tsv")
        assert list(rows["idx"]) == [0, 1, 2, 3, 4]
        assert str(rows["sigma"][0]) == name.split("/")[0]


def test_a_rehearsal_trains_and_certifies_five_images(images, tmp_path):
    results = rehearse("benchmarks/gpu-levels.yaml", images, tmp_path / "a run")
    check_rows(results, ["0.25/advmacer-0", "0.5/advmacer-0", "1.0/advmacer-0"])


def test_a_rehearsal_of_two_of_the_methods_combines_their_networks(images, tmp_path):
    values = read_params(ROOT / "benchmarks/gpu-methods.yaml")
    values["methods"] = values["members"] = ["gaussian", "advmacer"]
    kept = ("advmacer x3", "advmacer x1 + gaussian x2")
    values["ensembles"] = {name: values["ensembles"][name] for name in kept}
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps(values))
    results = rehearse(plan, images, tmp_path / "run")
    pool = ["advmacer-2", "advmacer-0-1-2.average", "advmacer-0+gaussian-1-2.optimal"]
    check_rows(results, ["0.5/gaussian-0", *(f"0.5/pool/{name}" for name in pool)])


def test_a_command_that_fails_or_runs_past_the_time_says_so(tmp_path):
    in_time = gpu_run.Run(tmp_path, "cpu", end=time.monotonic() + 60)
    assert in_time.run_command(["stages.train", "--no-such-option"]).startswith("failed: ")
    late = gpu_run.Run(tmp_path, "cpu", end=0)
    expected = "failed: it ran past the time of all commands"
    assert late.run_command(["benchmarks.throughput", "resnet110"]) == expected
