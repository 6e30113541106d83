"""A long study: ``make study`` in sittings."""

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

MADE = ("models", "results", "ensembles", "weights")


def study(root, **variables):
    """Start ``make study``; what it prints is to be read from its ``stdout``."""
    words = [
        f"{name}={value}"
        for name, value in {"BIN": Path(sys.executable).parent, **variables}.items()
    ]
    command = ["make", "--silent", "--old-file=setup", "study", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=root, env=environment(), stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


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
    assert "continuing after epoch" in printed
    assert "the same command continues" not in printed
    assert not list(project.glob(".work/*/checkpoint.pt"))
    made = contents(project, *MADE)
    assert {path.parts[0] for path in made} == {"models", "results"}
    cells = [f"certify@digits-{method}-0.5-0" for method in ("gaussian", "macer")]
    assert re.findall("Running stage '(.*)'", run(project, "dvc", "repro", *cells)) == [
        "fingerprint_first"
    ]
    run(project, "dvc", "repro", "--force", *cells)
    assert contents(project, *MADE) == made


@pytest.mark.trust_only("kills and interruptions")
def test_a_cell_that_fails_stops_those_that_need_it_and_no_others(project):
    module = project / "rs" / "methods" / "gaussian.py"
    module.write_text(
        module.read_text().replace(
            "        logits = ", "        raise SystemExit(7)\n        logits = "
        )
    )
    printed, code = finished(study(project, TARGETS="^certify@"))
    assert code not in (0, 124, 137)
    assert "train@digits-gaussian-0.5-0" in printed
    assert sorted(path.name for path in (project / "results/digits/0.5").glob("*.tsv")) == [
        "macer-0.tsv"
    ]


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
    lines = [(root / "params.yaml").read_text().splitlines() for root in (ROOT, tmp_path)]
    changed = [after for before, after in zip(*lines, strict=True) if after != before]
    assert [line.split()[:2] for line in changed] == [["dataset:", "svhn"]]
