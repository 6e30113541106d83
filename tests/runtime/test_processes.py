"""Several processes at one certification: ``rs.runtime.processes``, with the variables that
torchrun sets.
"""

import os
import subprocess
import sys

import pytest

from rs.runtime import processes
from tests.support.cells import train_tiny
from tests.support.helpers import refuses, stage, write_params, write_tiny


def test_work_ends_after_the_process_that_started_its_stage_on_this_machine(monkeypatch):
    monkeypatch.setenv("RS_STARTER", "")  # which pytest restores
    monkeypatch.delenv("RS_STARTER")
    monkeypatch.delenv("DVC_ROOT", raising=False)
    processes.remember_starter()
    assert "RS_STARTER" not in os.environ
    monkeypatch.setenv("DVC_ROOT", ".")
    processes.remember_starter()
    processes.check_starter()  # the parent of this process lives
    monkeypatch.delenv("RS_STARTER")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    monkeypatch.setattr("os.getppid", lambda: dead.pid)
    processes.remember_starter()
    with refuses(f"process {dead.pid}, which started .*has died"):
        processes.check_starter()
    # a launcher such as srun passes the environment on to other machines
    monkeypatch.setattr("platform.node", lambda: "another")
    processes.check_starter()


@pytest.mark.parametrize(
    ("rank", "world_size"),
    [("x", "1"), ("-1", "2"), ("2", "2"), ("\u00b2", "3")],
)
def test_numbers_of_processes_that_torchrun_never_sets_are_refused(monkeypatch, rank, world_size):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with refuses(f"0 <= RANK < WORLD_SIZE.*got {rank!r} and {world_size!r}; unset"):
        processes.rank_and_world_size()


def test_several_processes_must_know_where_the_first_one_is(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with refuses(
        r"MASTER_ADDR and MASTER_PORT must be set together with WORLD_SIZE=2.*; unset",
    ):
        processes.process_group("gloo").__enter__()


@pytest.mark.slow
def test_the_rows_of_several_processes_are_those_of_one(tmp_path, work):
    data = write_tiny(tmp_path / "data")
    train_tiny(data, tmp_path)
    params = write_params(tmp_path / "params.yaml")
    words = ["stages.certify", tmp_path / "model", "--dataset", "tiny", "--data", data]
    words += ["--params", params, "--device", "cpu", "--out"]
    stage(*words, tmp_path / "one.tsv")
    stage("tests.support.forked", 3, *words, tmp_path / "rows.tsv")
    for end in ("tsv", "json"):
        one, rows = tmp_path / f"one.{end}", tmp_path / f"rows.{end}"
        assert rows.read_bytes() == one.read_bytes()
    assert list(work.iterdir()) == []
