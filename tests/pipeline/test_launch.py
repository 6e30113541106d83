"""Commands that start themselves in several processes: ``launcher`` of the parameters."""

import os
import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from rs.command_line.shell import launch
from tests.support.helpers import refusal

EXECVP = os.execvp
TWO = "torchrun --standalone --nproc-per-node 2"


@pytest.fixture
def started(monkeypatch):
    """What a command of the module ``stages.certify`` would become."""
    main, become = ModuleType("__main__"), []
    main.__spec__ = ModuleSpec("stages.certify", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(
        sys, "argv", ["certify.py", "a model", "--n", "3", "--standalone", "--", "-m"]
    )
    monkeypatch.setattr(os, "execvp", lambda file, words: become.append((file, words)))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    return become


def test_without_a_launcher_or_in_a_process_of_torchrun_nothing_is_started(started, monkeypatch):
    launch({"launcher": None})
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    launch({"launcher": TWO})
    assert started == []


def test_torchrun_is_told_the_module_and_every_word_of_the_command(started):
    """Its own parser says what it makes of the words."""
    from torch.distributed.run import parse_args

    launch({"launcher": TWO})
    ((file, words),) = started
    assert (file, words[:3]) == (sys.executable, [sys.executable, "-m", "torch.distributed.run"])
    parsed = parse_args(words[3:])
    assert (parsed.standalone, parsed.nproc_per_node, parsed.module) == (True, "2", True)
    assert parsed.training_script == "stages.certify"
    assert parsed.training_script_args == sys.argv[1:]


def test_another_program_needs_leave_of_the_environment(started, capfd, monkeypatch):
    monkeypatch.delenv("RS_ANY_LAUNCHER", raising=False)
    message = "begins with torchrun, srun or mpirun, got 'nice torchrun'.*RS_ANY_LAUNCHER=1"
    refused(capfd, "nice torchrun", message)
    assert started == []
    monkeypatch.setenv("RS_ANY_LAUNCHER", "1")
    launch({"launcher": "nice torchrun"})
    assert [file for file, _ in started] == ["nice"]


def test_variables_of_the_environment_are_replaced(started, monkeypatch):
    """What stands before torchrun stays there."""
    monkeypatch.setenv("NODES", "5")
    monkeypatch.setenv("HEAD", "head:29400")
    launch({"launcher": "srun -n '1 0' torchrun --nnodes $NODES --rdzv-endpoint=${HEAD}"})
    ((file, words),) = started
    assert file == "srun"
    assert words[:6] == ["srun", "-n", "1 0", sys.executable, "-m", "torch.distributed.run"]
    assert words[6:9] == ["--nnodes", "5", "--rdzv-endpoint=head:29400"]


def test_a_variable_that_is_not_set_is_named(started, capfd, monkeypatch):
    monkeypatch.delenv("GPUS", raising=False)
    launcher = "torchrun --nproc-per-node=${GPUS}"
    refused(capfd, launcher, r"whose variables are set, but \$GPUS is not; set it, .* export GPUS=")
    assert started == []


@pytest.mark.parametrize("launcher", ["", "mytorchrun", "torchrun --log-dir 'logs"])
def test_what_is_no_command_with_torchrun_is_one_line_that_names_the_key(started, capfd, launcher):
    message = f"null or a command with the word torchrun in it.*got {re.escape(repr(launcher))}"
    refused(capfd, launcher, message)
    assert started == []


def test_a_launcher_that_cannot_be_run_is_one_line_that_names_the_key(started, capfd, monkeypatch):
    monkeypatch.setattr(os, "execvp", EXECVP)
    monkeypatch.setenv("RS_ANY_LAUNCHER", "1")
    refused(capfd, "no-such-program torchrun", "no-such-program: .*No such file")


def refused(capfd, launcher, message):
    def command() -> None:
        """Start."""
        launch({"launcher": launcher})

    assert re.match(f"error: params.yaml: launcher must be .*{message}", refusal(capfd, command))
