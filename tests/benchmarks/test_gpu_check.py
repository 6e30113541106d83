"""What only a GPU can show: ``benchmarks.gpu_check``, whose checks of one GPU run on a simulated
one.
"""

import ast
import re

import pytest

from benchmarks import gpu_check
from benchmarks.common import Architecture
from rs.runtime.device import device_named
from tests.support.helpers import ROOT, ended
from tests.support.simulated_gpu import simulated_gpu

pytestmark = pytest.mark.trust_only

TOUCHES = ("torch.cuda", "torch.compiler", "torch.compile", "nccl")
CHECKED = {name for _, functions, _ in gpu_check.CHECKS for name in functions}


def touching():
    """Functions of the library that call what a CPU does not have."""
    found = set()
    for path in (ROOT / "rs").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                (isinstance(part, ast.Attribute) and ast.unparse(part) in TOUCHES)
                or (isinstance(part, ast.Constant) and part.value in TOUCHES)
                for part in ast.walk(node)
            ):
                found.add(f"{module}.{node.name}")
    return found


def test_every_function_that_a_cpu_cannot_run_whole_is_checked_by_the_command():
    assert touching() <= CHECKED
    others = {
        "rs.runtime.streams.stream",
        "rs.runtime.device.products",
    }  # another generator, and other products
    assert CHECKED - touching() == others


def test_the_page_lists_these_functions_and_no_others():
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    section = text.split("## What only a GPU can show")[1].split("\n## ")[0]
    assert set(re.findall(r"`(rs\.[\w.]+)`", section)) == CHECKED


def test_without_a_gpu_it_says_so(monkeypatch, capfd):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = ended(capfd, gpu_check.main)
    assert (code, out) == (2, "")
    assert "no CUDA device" in err


def test_where_all_is_well_the_verdict_says_it(monkeypatch, capfd):
    """Without the group of processes and TF32, which no simulation has, with a small network and
    small batches.
    """
    unsimulated = (gpu_check.nccl, gpu_check.tensor_cores)
    monkeypatch.setattr(gpu_check, "NETWORK", Architecture.smallnet)
    monkeypatch.setattr(
        gpu_check, "CHECKS", [one for one in gpu_check.CHECKS if one[2] not in unsimulated]
    )
    monkeypatch.setattr("rs.smoothing.classifier.default_batch", lambda x: 100)
    monkeypatch.chdir(ROOT)
    with simulated_gpu():
        code, out, _ = ended(capfd, gpu_check.main)
    assert code == 0, out
    assert out.splitlines()[-1] == f"verdict: all {len(gpu_check.CHECKS)} checks passed"


def test_a_gpu_that_does_not_round_is_found_out(monkeypatch):
    """As the simulated one does not."""
    monkeypatch.setattr(gpu_check, "NETWORK", Architecture.smallnet)
    with simulated_gpu():
        said = gpu_check.tensor_cores(device_named("cuda"))
    assert said.startswith("with engine plain logits in tf32 differ by ")
