"""A long study: ``make study`` in sittings, and the commands of the pipeline on a machine without DVC."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.helpers import ROOT
from tests.support.small_project import contents, environment, run, small_project

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL)
MADE = ("models", "results", "ensembles", "weights")


def block(beginning):
    """The commands in docs/scaling.md that begin so."""
    (text,) = (text for text in BLOCKS if text.startswith(beginning))
    return text


def study(root, **variables):
    """Start ``make study``; what it prints is to be read from its ``stdout``."""
    words = [f"{name}={value}" for name, value in {"BIN": Path(sys.executable).parent, **variables}.items()]
    command = ["make", "--silent", "--old-file=setup", "study", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=environment(), stdout=pipe, stderr=subprocess.STDOUT, text=True)


def finished(process):
    """Exit code and output of a command."""
    return process.communicate(timeout=300)[0], process.returncode


@pytest.fixture
def project(tmp_path):
    """The small project, whose trainings take some seconds."""
    return small_project(tmp_path / "copy", epochs=16)


@pytest.mark.trust_only("kills and interruptions")
def test_a_study_that_is_stopped_continues_and_ends_with_the_bytes_of_the_pipeline(project):
    first = study(project, MINUTES=10, TARGETS="^certify@")
    while not list(project.glob(".work/*/checkpoint.pt")):
        assert first.poll() is None, first.stdout.read()
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, code = finished(first)
    assert code != 0
    assert list(project.glob(".work/*/checkpoint.pt"))
    assert contents(project, "models") == {}

    printed, code = finished(study(project, MINUTES=0.001, TARGETS="^certify@"))
    assert code == 0, printed
    assert "The time is over; the same command continues." in printed
    assert list(project.glob(".work/*/checkpoint.pt"))

    printed, code = finished(study(project, TARGETS="^certify@"))
    assert code == 0, printed
    assert "continues" not in printed
    assert not list(project.glob(".work/*/checkpoint.pt"))
    made = contents(project, *MADE)
    assert {path.parts[0] for path in made} == {"models", "results"}
    cells = [f"certify@digits-{method}-0.5-0" for method in ("gaussian", "macer")]
    assert re.findall("Running stage '(.*)'", run(project, "dvc", "repro", *cells)) == ["fingerprint_first"]
    run(project, "dvc", "repro", "--force", *cells)
    assert contents(project, *MADE) == made


@pytest.mark.trust_only("kills and interruptions")
def test_a_cell_that_fails_stops_those_that_need_it_and_no_others(project):
    module = project / "rs" / "methods" / "gaussian.py"
    module.write_text(module.read_text().replace("        logits = ", "        raise SystemExit(7)\n        logits = "))
    printed, code = finished(study(project, TARGETS="^certify@"))
    assert code not in (0, 124, 137)
    assert "train@digits-gaussian-0.5-0" in printed
    assert sorted(path.name for path in (project / "results/digits/0.5").glob("*.tsv")) == ["macer-0.tsv"]


def test_a_study_writes_its_data_set_into_the_parameters_and_no_other_letter(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    fake = tmp_path / "bin" / "dvc"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho train@svhn-macer-0.5-0 tables@svhn | tr ' ' '\\n'\n")
    fake.chmod(0o755)
    python = fake.with_name("python")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    printed, code = finished(study(tmp_path, BIN=fake.parent, DATASET="svhn", TARGETS="digits"))
    assert code != 0
    assert "no cell is called digits" in printed
    before, after = (path.read_text().splitlines() for path in (ROOT / "params.yaml", tmp_path / "params.yaml"))
    assert [line.split()[:2] for line in after if line not in before] == [["dataset:", "svhn"]]
    assert len(after) == len(before)


@pytest.mark.slow
def test_the_commands_of_a_dry_run_make_the_same_without_dvc(tmp_path):
    project, elsewhere = small_project(tmp_path / "copy"), tmp_path / "elsewhere"
    run(project, "bash", "-c", block("dvc repro --dry"))
    commands = (project / "cells.txt").read_text().splitlines()
    assert [line.split()[2] for line in commands][:2] == ["stages.fingerprint", "stages.prepare"]
    shutil.copytree(project, elsewhere, ignore=shutil.ignore_patterns(".dvc", ".git", "dvc.*"))
    stopped = [*commands[:4], "false", *commands[4:]]
    (elsewhere / "cells.txt").write_text("\n".join(stopped) + "\n")
    run(elsewhere, "bash", "-c", block("touch finished.txt"))
    assert (elsewhere / "finished.txt").read_text().splitlines() == commands[:4]
    trained = {path: path.stat().st_mtime_ns for path in (elsewhere / "models").rglob("*.safetensors")}
    assert trained
    (elsewhere / "cells.txt").write_text("\n".join(commands) + "\n")
    run(elsewhere, "bash", "-c", block("touch finished.txt"), warm=False)
    assert (elsewhere / "finished.txt").read_text().splitlines() == commands
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in trained.items())

    run(project, "dvc", "repro")
    made = contents(project, *MADE)
    assert contents(elsewhere, *MADE) == made
    assert {path.parts[0] for path in made} == {*MADE}
    shutil.rmtree(project)
    again = small_project(project)
    for folder in ("data", "logs", "fingerprints", "reports", *MADE):
        shutil.copytree(elsewhere / folder, again / folder)
    taken, rest = block("dvc commit --force").splitlines()
    run(again, "bash", "-c", taken)
    assert re.findall("Running stage '(.*)'", run(again, "bash", "-c", rest)) == ["fingerprint_first"]
