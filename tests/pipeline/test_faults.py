"""Kills, interruptions and errors of the machine in the middle of every stage; the same command
then continues.
"""

import json

import pytest
from PIL import Image

from rs.command_line.main import COMMANDS
from tests.support.faults import WORDS, Points, copied, made, make_study, run_apart
from tests.support.helpers import ROOT, python

READING = {
    "predict": "grey.png --model models/macer/0 --device cpu",
    "show": "rows.tsv",
    "compare": "rows.tsv rows.tsv",
    "verify": "new.tar.xz",
    "zoo": "",
    "doctor": "models/macer/0 --data data --device cpu",
}
"""Commands that write no file, with their words."""


def test_every_stage_and_command_that_writes_is_struck():
    stages = {path.stem for path in (ROOT / "stages").glob("*.py")} - {
        "__init__",
        "repro",
    }  # which runs the others
    assert {*WORDS} == {*stages, *COMMANDS} - READING.keys()


@pytest.mark.trust_only("kills and interruptions")
def test_commands_that_are_not_struck_change_nothing(tmp_path, monkeypatch):
    make_study(tmp_path, bundled=True)
    Image.new("L", (4, 4), 99).save(tmp_path / "grey.png")
    assert run_apart(tmp_path, "bundle")[0] == 0
    before = made(tmp_path)
    for command, words in READING.items():
        monkeypatch.setitem(WORDS, command, words)
        code, errors, points = run_apart(tmp_path, command, Points().watch)
        assert (code, points) == (0, 0), f"{command}: {errors}"
    assert made(tmp_path) == before


@pytest.mark.trust_only("kills and interruptions")
@pytest.mark.parametrize("stage", WORDS)
def test_what_is_struck_at_any_point_continues_and_ends_with_the_bytes_of_an_unbroken_run(
    stage, record_property
):
    done = python("-m", "tests.support.faults", stage, timeout=3600)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])  # after what making the study says
    assert outcome["broken"] == []
    record_property("tried", sum(outcome["tried"].values()))


OF_TWO = """
import os, signal, sys
from torch import nn
from rs.command_line.shell import run
from tests.support.faults import Points, command_of

stage, kind, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
points = Points(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
call = nn.Module.__call__

def evaluated(*words, **options):
    points.pass_one(True)
    return call(*words, **options)

if kind == "change" and os.environ["RANK"] == "0":
    points.watch()
if kind == "layer" and os.environ["RANK"] == "1":
    nn.Module.__call__ = evaluated
run(command_of(stage), sys.argv[4:])
"""
"""A stage by two processes: the first is killed at a change of the disk, or the second as it
evaluates some layer.
"""

KILLED = [("layer", 0), ("layer", 39), ("change", 4)]


@pytest.mark.trust_only("kills and interruptions")
@pytest.mark.parametrize("stage", ["train", "certify", "certify_ensembles"])
def test_a_stage_of_two_processes_of_which_one_is_killed_ends_and_continues(
    stage, tmp_path, record_property
):
    """Torchrun ends the other; nothing half-written has the name of an output, and the bytes are
    those of no kill.
    """
    base, trial = tmp_path / "base", tmp_path / "trial"
    base.mkdir()
    make_study(base)
    (tmp_path / "of_two.py").write_text(OF_TWO)

    def of_two(kind="none", at=0):
        launched = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            2,
            "--",
            tmp_path / "of_two.py",
        ]
        words = [stage, kind, at, *WORDS[stage].split()]
        return python(*launched, *words, cwd=trial, timeout=600, RS_WORK=str(trial / ".work"))

    def run_whole():
        done = of_two()
        assert done.returncode == 0, done.stderr
        return made(trial)

    copied(base, trial)
    unbroken = run_whole()
    for kind, at in KILLED:
        before = made(copied(base, trial))
        killed = of_two(kind, at)
        assert killed.returncode != 0
        assert "exitcode  : -9" in killed.stderr
        left = {
            name: content for name, content in made(trial).items() if not name.startswith(".work")
        }
        assert left.items() <= unbroken.items() | before.items()
        assert run_whole() == unbroken
    record_property("tried", len(KILLED))
