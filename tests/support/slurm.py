"""A SLURM of two nodes on this machine, with a configuration, keys and ports of its own, for one
user.
"""

import getpass
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress

import psutil

from tests.support.helpers import ROOT

NODES = ("node1", "node2")


class Cluster:
    """Runs from ``start`` to ``stop``; programs of SLURM find it by the variable SLURM_CONF."""

    def __init__(self, folder):
        self.folder, self.configuration, self.daemons = folder, folder / "slurm.conf", []

    def start(self):
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        key = self.folder / "key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        template = (ROOT / "tests" / "cluster" / "slurm.conf").read_text()
        values = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": self.folder}
        self.configuration.write_text(template.format(ports=free_ports(3), **values))
        files = [f"--{name}-file={self.folder}/{name}" for name in ("key", "pid", "log", "seed")]
        self.begin(
            "munged", "--force", "--foreground", *files, f"--socket={self.folder}/munge.socket"
        )
        wait_until(lambda: (self.folder / "munge.socket").exists())
        self.begin("slurmctld", "-D")
        for node in NODES:
            self.begin_node(node)

    def begin_node(self, node):
        """Start a node, and wait until it takes jobs."""
        self.begin("slurmd", "-D", "-N", node, name=node)
        wait_until(lambda: self.state(node) == "idle")

    def begin(self, program, *words, name=None):
        """Start a daemon; what it starts knows by its environment of which node it is."""
        environment = os.environ | {
            "SLURM_CONF": str(self.configuration),
            "SLURMD_NODENAME": name or program,
        }
        with (self.folder / f"{name or program}.out").open("w") as out:
            command = ["nice", "-n", "19", program, *words]
            self.daemons.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))

    def state(self, node):
        """State of a node, empty as long as nobody answers."""
        words = ["sinfo", "--noheader", f"--nodes={node}", "--format=%T"]
        environment = os.environ | {"SLURM_CONF": str(self.configuration)}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False
        ).stdout.strip()

    def kill(self, node=None):
        """Kill all processes of a node, of SLURM and of jobs, or of the cluster, as if it lost its
        power.
        """
        processes = [process for process in psutil.process_iter() if self._is_of(process, node)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none tells of the end of another
            for process in processes:
                process.send_signal(number)
        for daemon in self.daemons:
            if node is None or daemon.args[-1] == node:
                daemon.wait()

    def _is_of(self, process, node):
        with suppress(psutil.Error):
            if process.name() == "slurmstepd":  # which clears its own environment
                return any(self._is_of(child, node) for child in process.children())
            known = process.environ()
            return known.get("SLURM_CONF") == str(self.configuration) and node in (
                None,
                known.get("SLURMD_NODENAME"),
            )
        return False


def free_ports(count):
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [one.getsockname()[1] for one in sockets]


def wait_until(is_true, seconds=300):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.2)
