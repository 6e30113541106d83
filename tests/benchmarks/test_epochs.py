"""Seconds of an epoch of each method (``benchmarks.epochs``)."""

import csv

import pytest
import torch

from benchmarks import epochs
from tests.support.helpers import write_params, write_tiny

pytestmark = pytest.mark.trust_only


def test_epochs_are_timed_with_the_memory_that_stages_keep(tmp_path, monkeypatch):
    """Without it MACER's, whose tensors are the largest, take longer than in a stage, and the others' do not."""
    kept = []
    monkeypatch.setattr("rs.runtime.device.keep_memory", lambda: kept.append(True))
    data, params = write_tiny(tmp_path / "data"), write_params(tmp_path / "params.json")
    how = {"sigma": 0.25, "batches": 1, "rounds": 1, "threads": torch.get_num_threads(), "params": params}
    epochs.main("tiny", data, tmp_path / "seconds.csv", methods="gaussian,macer", **how)
    with (tmp_path / "seconds.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["gaussian", "macer"]
    assert kept
