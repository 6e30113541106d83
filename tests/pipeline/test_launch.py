"""Commands that start themselves in several processes: ``launcher`` of the parameters."""

import csv
import json
import os
import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from rs.certification.certify_model import certification_settings, certify_model
from rs.command_line.shell import launch, run
from rs.errors import InputError
from tests.support.folders import contents, reproducible
from tests.support.helpers import ROOT, TRAINING, python, tiny_params, write_params, write_tiny

EXECVP = os.execvp
TWO = "torchrun --standalone --nproc-per-node 2"


@pytest.fixture
def started(monkeypatch):
    """What a command of the module ``stages.certify`` would become."""
    main, become = ModuleType("__main__"), []
    main.__spec__ = ModuleSpec("stages.certify", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["certify.py", "a model", "--n", "3", "--standalone", "--", "-m"])
    monkeypatch.setattr(os, "execvp", lambda file, words: become.append((file, words)))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    return become


@pytest.mark.parametrize("params", [{}, {"launcher": None}])
def test_without_a_launcher_nothing_is_started(started, params):
    launch(params)
    assert started == []


@pytest.mark.parametrize("launcher", [TWO, "no such thing", 7])
def test_a_process_that_torchrun_started_starts_nothing(started, monkeypatch, launcher):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    launch({"launcher": launcher})
    assert started == []


def test_torchrun_is_told_the_module_and_every_word_of_the_command(started):
    """Its own parser says what it makes of the words."""
    from torch.distributed.run import parse_args

    launch({"launcher": TWO})
    ((file, words),) = started
    assert (file, words[:3]) == (sys.executable, [sys.executable, "-m", "torch.distributed.run"])
    parsed = parse_args(words[3:])
    assert (parsed.standalone, parsed.nproc_per_node, parsed.module) == (True, "2", True)
    assert [parsed.training_script, *parsed.training_script_args] == ["stages.certify", *sys.argv[1:]]


@pytest.mark.parametrize("program", ["srun", "mpirun"])
def test_a_launcher_of_torchrun_stays_before_it(started, program):
    launch({"launcher": f"{program} -n '1 0' torchrun"})
    ((file, words),) = started
    assert file == program
    assert words[:6] == [program, "-n", "1 0", sys.executable, "-m", "torch.distributed.run"]


def test_another_program_needs_leave_of_the_environment(started, capfd, monkeypatch):
    monkeypatch.delenv("RS_ANY_LAUNCHER", raising=False)
    refused(capfd, "nice torchrun", "begins with torchrun, srun or mpirun, got 'nice torchrun'.*RS_ANY_LAUNCHER=1")
    monkeypatch.setenv("PROGRAM", "nice")
    refused(capfd, "$PROGRAM torchrun", "begins with")
    assert started == []
    monkeypatch.setenv("RS_ANY_LAUNCHER", "1")
    launch({"launcher": "nice torchrun"})
    assert [file for file, _ in started] == ["nice"]


def test_variables_of_the_environment_are_replaced(started, monkeypatch):
    monkeypatch.setenv("NODES", "5")
    monkeypatch.setenv("HEAD", "head:29400")
    launch({"launcher": "torchrun --nnodes $NODES --rdzv-endpoint=${HEAD}"})
    assert started[0][1][3:6] == ["--nnodes", "5", "--rdzv-endpoint=head:29400"]


@pytest.mark.parametrize("launcher", ["", "mpirun -n 2", "mytorchrun", 7, True, ["torchrun"], {"torchrun": 2}])
def test_what_is_no_command_with_torchrun_is_one_line_that_names_the_key(started, capfd, launcher):
    refused(capfd, launcher, "null or a command with the word torchrun in it.*got " + re.escape(repr(launcher)))
    assert started == []


def test_a_quotation_without_an_end_is_one_line_that_names_the_key(started, capfd):
    refused(capfd, "torchrun --log-dir 'logs", "a command with the word torchrun in it")


def test_a_launcher_that_cannot_be_run_is_one_line_that_names_the_key(started, capfd, monkeypatch):
    monkeypatch.setattr(os, "execvp", EXECVP)
    monkeypatch.setenv("RS_ANY_LAUNCHER", "1")
    refused(capfd, "no-such-program torchrun", "no-such-program: .*No such file")


def refused(capfd, launcher, message):
    def command() -> None:
        """Start."""
        with pytest.raises(InputError, match=message) as caught:
            launch({"launcher": launcher})
        raise caught.value

    with pytest.raises(SystemExit) as caught:
        run(command, arguments=[])
    assert caught.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: params.yaml: launcher must be ")


# Programs: a training by two processes, one of which may be killed, and a certification.

MORTAL = """
import os, signal
from rs.training.trainer import Trainer

steps, step = iter(range(1, 100)), Trainer._step

def mortal(self, *words):
    if os.environ["RANK"] == "1" and next(steps) == int(os.environ["LAST"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *words)

Trainer._step = mortal
from rs.command_line.shell import run
from stages.train import main

run(main)
"""
TRAIN = {**TRAINING, "epochs": 6, "checkpoint_every": 2, "milestones": [3], "crop": 1, "flip": True}


def train(root, out, module="stages.train", **environment):
    words = ["advmacer", "--dataset", "tiny", "--sigma", 0.25, "--seed", 1, "--data", root / "data", "--device", "cpu"]
    words += ["--out", out / "model", "--log", out / "log", "--params", root / "params.yaml"]
    return python("-m", module, *words, timeout=600, RS_WORK=str(root / "work"), **environment)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Data, parameters, and a training by two processes."""
    root = tmp_path_factory.mktemp("launch")
    write_tiny(root / "data", train=23)
    params = json.loads(write_params(root / "params.yaml", training=TRAIN).read_text())
    (root / "params.yaml").write_text(json.dumps({"launcher": TWO, **params}))
    done = train(root, root / "unbroken")
    assert (done.returncode, done.stdout.count("; model in ")) == (0, 1), done.stderr  # one of the processes says it
    return root


@pytest.mark.slow
def test_two_processes_write_one_model_and_one_log(root):
    made = root / "unbroken"
    assert sorted(contents(made)) == [
        "log/history.csv",
        "log/provenance.json",
        "log/timing.csv",
        "model/model.json",
        "model/model.safetensors",
    ]
    with (made / "log" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["updates"]) for row in rows] == [6, 12, 18, 24, 30, 36]  # 3 batches of 2 steps
    assert json.loads((made / "log" / "provenance.json").read_text())["processes"] == 2
    assert list((root / "work").iterdir()) == []


@pytest.mark.slow
def test_a_killed_process_ends_the_job_and_the_rerun_ends_with_the_bytes_of_an_unbroken_one(root):
    """Killed in epoch 4 of 6, with checkpoints after 2 and 4: the rerun, killed at the 25th step, has 24 alone."""
    (root / "mortal.py").write_text(MORTAL)
    path = os.pathsep.join(map(str, (root, ROOT)))
    first = train(root, root / "again", "mortal", PYTHONPATH=path, LAST="20")
    assert first.returncode != 0
    assert "exitcode  : -9" in first.stderr  # torchrun's own report
    assert not (root / "again").exists()
    (checkpoint,) = (root / "work").rglob("checkpoint.pt")
    assert torch.load(checkpoint, weights_only=True)["progress"]["epoch"] == 2
    second = train(root, root / "again", "mortal", PYTHONPATH=path, LAST="25")
    assert second.returncode == 0, second.stderr
    assert reproducible(root / "again") == reproducible(root / "unbroken")
    assert list((root / "work").iterdir()) == []


@pytest.mark.slow
def test_a_certification_by_the_launcher_writes_the_bytes_of_one_process(root, monkeypatch):
    model = root / "unbroken" / "model"
    monkeypatch.setenv("RS_WORK", str(root / "own work"))
    settings = certification_settings(tiny_params(), "tiny", {"n": 60})
    where = {"sigma": None, "device": torch.device("cpu"), "batch": None}
    certify_model(str(model), root / "data", settings, **where, out=root / "one.tsv")
    words = [model, "--dataset", "tiny", "--data", root / "data", "--out", root / "two.tsv", "--n", 60]
    words += ["--params", root / "params.yaml", "--device", "cpu"]
    done = python("-m", "stages.certify", *words)
    assert done.returncode == 0, done.stderr
    assert "process 1 of 2" in done.stderr
    for name in ("tsv", "json"):
        assert (root / f"two.{name}").read_bytes() == (root / f"one.{name}").read_bytes()
