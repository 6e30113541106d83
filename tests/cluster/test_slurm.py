"""``examples/slurm`` on a real SLURM of two nodes: arrays, requeues, cancellations, nodes that die."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.support.helpers import ROOT
from tests.support.slurm import Cluster, free_ports, wait_until
from tests.support.small_project import contents, run, small_project

PROGRAMS = ("slurmctld", "slurmd", "munged")
pytestmark = [
    pytest.mark.trust_only,
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)), reason="no SLURM: apt-get install slurm-wlm munge"
    ),
]
MADE = ("models", "results", "ensembles", "weights")
TRAIN, CERTIFY = "train@digits-macer-0.5-0", "certify@digits-macer-0.5-0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster, which all programs of SLURM of this process speak to."""
    running = Cluster(tmp_path_factory.mktemp("slurm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.configuration))
        try:
            running.start()
            yield running
        finally:
            running.kill()


def project_in(folder):
    """The small project, whose trainings take some seconds, with the scripts of SLURM."""
    project = small_project(folder, epochs=16)
    shutil.copytree(ROOT / "examples" / "slurm", project / "examples" / "slurm")
    return project


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What plain ``dvc repro`` makes."""
    project = project_in(tmp_path_factory.mktemp("plain") / "project")
    run(project, "dvc", "repro")
    return contents(project, *MADE)


@pytest.fixture
def project(tmp_path):
    return project_in(tmp_path / "project")


def submit(project):
    """The lines of ``make study EXECUTOR=slurm``: stages and how many cells of each were submitted."""
    words = [
        "make",
        "--silent",
        "--old-file=setup",
        "study",
        "EXECUTOR=slurm",
        f"BIN={Path(sys.executable).parent}",
    ]
    printed = run(project, *words)
    return dict(re.findall(r"^(\w+): (\d+) cells, job ", printed, re.MULTILINE)) or printed


def wait_until_empty():
    wait_until(lambda: not run(ROOT, "squeue", "--noheader"))


def wait_until_begun(project):
    """Wait for the first checkpoint, and return a job that runs."""
    wait_until(lambda: list(project.glob(".work/*/checkpoint.pt")))
    return run(project, "squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]


def seconds_begun(project):
    """Seconds of the first epoch of each training that has stopped after a checkpoint."""
    checkpoints = [
        torch.load(path, weights_only=True) for path in project.glob(".work/*/checkpoint.pt")
    ]
    return {checkpoint["progress"]["timing"][0]["seconds"] for checkpoint in checkpoints}


def seconds_logged(project):
    """Seconds of the first epoch of each training that has ended."""
    return {
        float(path.read_text().splitlines()[1].split(",")[1])
        for path in project.glob("logs/**/timing.csv")
    }


def test_a_study_is_submitted_once_and_ends_with_the_bytes_of_dvc_repro(cluster, plain, project):
    stages = {
        "train": "3",
        "certify": "2",
        "ensemble": "1",
        "weights": "1",
        "certify_ensembles": "1",
        "tables": "1",
    }
    assert submit(project) == stages
    assert "nothing to submit; in the queue: " in submit(project)
    wait_until_empty()
    assert contents(project, *MADE) == plain
    assert "nothing to submit; in the queue: 0 cells" in submit(project)

    (project / "results" / "digits" / "0.5" / "macer-0.tsv").unlink()
    assert submit(project) == {"certify": "1", "tables": "1"}
    wait_until_empty()
    assert contents(project, *MADE) == plain
    assert re.findall("Running stage '(.*)'", run(project, "dvc", "repro")) == ["fingerprint_first"]


def test_a_study_that_is_requeued_and_cancelled_continues_when_it_is_submitted_again(
    cluster, plain, project
):
    assert submit(project)["train"] == "3"
    job = wait_until_begun(project)
    run(project, "scontrol", "requeue", job)
    wait_until(lambda: "Restarts=1" in run(project, "scontrol", "show", "job", job))
    wait_until(lambda: "JobState=RUNNING" in run(project, "scontrol", "show", "job", job))
    run(project, "scancel", "--me")
    wait_until_empty()
    unfinished = 3 - len(list(project.glob("models/digits/0.5/*/*/model.json")))
    assert unfinished > 0
    begun = seconds_begun(project)
    assert begun
    again = submit(project)
    assert (again["train"], again["tables"]) == (str(unfinished), "1")
    wait_until_empty()
    assert begun <= seconds_logged(project)
    assert contents(project, *MADE) == plain


def test_a_cell_of_a_node_that_dies_continues_on_another(cluster, plain, project):
    run(project, "dvc", "repro", "fingerprint_first", "prepare")
    logs = project / ".work" / "slurm"
    logs.mkdir(parents=True)
    words = ["env", f"CELLS={TRAIN}", "sbatch", "--parsable", "--array=0", "examples/slurm/cell.sh"]
    log = logs / f"{run(project, *words).strip()}_0.log"
    wait_until_begun(project)
    node = run(project, "squeue", "--noheader", "--format=%N").strip()
    cluster.kill(node)
    begun = seconds_begun(project)
    wait_until_empty()
    cluster.begin_node(node)
    assert begun == seconds_logged(project), log.read_text()
    trained = contents(project, "models")
    assert trained == {path: content for path, content in plain.items() if path in trained}
    assert len(trained) == 2


def test_two_nodes_certify_a_cell_to_the_bytes_of_one_process(cluster, plain, project):
    run(project, "dvc", "repro", TRAIN)
    path, (port,) = project / "params.yaml", free_ports(1)
    launcher = (
        "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $PROCESSES --rdzv-id $SLURM_JOB_ID "
    )
    launcher += f"--rdzv-backend c10d --rdzv-endpoint $HEAD:{port}"
    path.write_text(
        re.sub("^launcher:.*$", f"launcher: {launcher}", path.read_text(), flags=re.MULTILINE)
    )
    words = [
        "--wait",
        "--cpus-per-task=2",
        "--output=nodes.log",
        "examples/slurm/nodes.sh",
        CERTIFY,
    ]
    run(project, "sbatch", *words)
    log = (project / "nodes.log").read_text()
    assert "process 4 of 4" in log, log
    rows = contents(project, "results")
    assert rows == {path: content for path, content in plain.items() if path in rows}
    assert len(rows) == 2
