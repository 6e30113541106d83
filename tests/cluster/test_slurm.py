"""``examples/slurm`` on a real SLURM of two nodes: a study, a requeue, two nodes for one cell."""

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.helpers import ROOT, wait_until
from tests.support.small_project import contents, run, small_project

PROGRAMS = ("slurmctld", "slurmd", "munged")
pytestmark = [
    pytest.mark.trust_only,
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)), reason="no SLURM: apt-get install slurm-wlm munge"
    ),
]
NODES = ("node1", "node2")
MADE = ("models", "results", "ensembles", "weights")
TRAIN, CERTIFY = "train@digits-macer-0.5-0", "certify@digits-macer-0.5-0"


def free_ports(count):
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(server.getsockname()[1])
        return ports


def is_idle(node):
    words = ["sinfo", "--noheader", f"--nodes={node}", "--format=%T"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() == "idle"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A SLURM of two nodes on this machine, with a configuration, a key and ports of its own."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", *NODES):
        (folder / name).mkdir()
    key = folder / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        (ROOT / "tests" / "cluster" / "slurm.conf")
        .read_text()
        .format(
            host=socket.gethostname(),
            user=getpass.getuser(),
            folder=folder,
            ports=free_ports(3),
        )
    )
    files = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "log", "seed")]
    sockets = f"--socket={folder}/munge.socket"
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SLURM_CONF", str(configuration))

        def begin(*command):
            daemon = subprocess.Popen(["nice", "-n", "19", *command])
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)

        begin("munged", "--force", "--foreground", *files, sockets)
        wait_until((folder / "munge.socket").exists)
        begin("slurmctld", "-D")
        for node in NODES:
            begin("slurmd", "-D", "-N", node)
            wait_until(lambda node=node: is_idle(node))
        yield


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
    """Submit all missing cells; return how many of each stage were submitted, or what was said."""
    words = ["--silent", "--old-file=setup", "study", "EXECUTOR=slurm"]
    printed = run(project, "make", *words, f"BIN={Path(sys.executable).parent}")
    return dict(re.findall(r"^(\w+): (\d+) cells, job ", printed, re.MULTILINE)) or printed


def wait_until_empty():
    wait_until(lambda: not run(ROOT, "squeue", "--noheader"))


def test_a_study_is_submitted_once_and_ends_with_the_bytes_of_dvc_repro(cluster, plain, project):
    assert submit(project)["train"] == "3"
    assert "nothing to submit; in the queue: " in submit(project)
    wait_until_empty()
    assert contents(project, *MADE) == plain

    (project / "results" / "digits" / "0.5" / "macer-0.tsv").unlink()
    assert submit(project) == {"certify": "1", "tables": "1"}
    wait_until_empty()
    assert contents(project, *MADE) == plain


def test_a_study_that_is_requeued_and_canceled_continues_when_it_is_submitted_again(
    cluster, plain, project
):
    submit(project)
    wait_until(lambda: list(project.glob(".work/*/checkpoint.pt")))
    job = run(project, "squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    run(project, "scontrol", "requeue", job)
    for state in ("Restarts=1", "JobState=RUNNING"):
        wait_until(lambda state=state: state in run(project, "scontrol", "show", "job", job))
    run(project, "scancel", "--me")
    wait_until_empty()
    unfinished = 3 - len(list(project.glob("models/digits/0.5/*/*/model.json")))
    assert unfinished > 0
    assert submit(project)["train"] == str(unfinished)
    wait_until_empty()
    assert contents(project, *MADE) == plain


def test_two_nodes_certify_a_cell_to_the_bytes_of_one_process(cluster, plain, project):
    run(project, "dvc", "repro", TRAIN)
    (port,) = free_ports(1)
    launcher = (
        "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $PROCESSES "
        f"--rdzv-id $SLURM_JOB_ID --rdzv-backend c10d --rdzv-endpoint $HEAD:{port}"
    )
    path = project / "params.yaml"
    text = re.sub("^launcher:.*$", f"launcher: {launcher}", path.read_text(), flags=re.MULTILINE)
    path.write_text(text)
    options = ["--wait", "--cpus-per-task=2", "--output=nodes.log"]
    run(project, "sbatch", *options, "examples/slurm/nodes.sh", CERTIFY)
    log = (project / "nodes.log").read_text()
    assert "process 4 of 4" in log, log
    rows = contents(project, "results")
    assert len(rows) == 2
    assert all(plain[name] == content for name, content in rows.items())
