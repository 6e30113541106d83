"""``benchmarks.gpu_check``, whose checks of one GPU run on a simulated one."""

import pytest

from benchmarks import gpu_check
from benchmarks.common import Architecture
from rs.runtime.device import resolve_device
from tests.support.helpers import ROOT, ended
from tests.support.simulated_gpu import simulated_gpu

pytestmark = pytest.mark.trust_only


def test_where_all_is_well_the_verdict_says_it(monkeypatch, capfd):
    """Except for the group of processes and TF32, which no simulation has."""
    unsimulated = (gpu_check.nccl, gpu_check.tensor_cores)
    checks = {what: one for what, one in gpu_check.CHECKS.items() if one not in unsimulated}
    monkeypatch.setattr(gpu_check, "CHECKS", checks)
    monkeypatch.setattr(gpu_check, "NETWORK", Architecture.smallnet)
    monkeypatch.setattr("rs.smoothing.classifier.default_batch", lambda x: 100)
    monkeypatch.chdir(ROOT)
    with simulated_gpu():
        code, out, _ = ended(capfd, gpu_check.main)
    assert code == 0, out
    assert out.splitlines()[-1] == f"verdict: all {len(checks)} checks passed"


def test_a_gpu_that_does_not_round_is_found_out(monkeypatch):
    """As the simulated one does not."""
    monkeypatch.setattr(gpu_check, "NETWORK", Architecture.smallnet)
    with simulated_gpu():
        said = gpu_check.tensor_cores(resolve_device("cuda"))
    assert said.startswith("with engine plain logits in tf32 differ by ")
