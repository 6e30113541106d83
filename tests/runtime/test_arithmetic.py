import os
import platform

import pytest
import torch

from rs.models import checkpoint
from rs.runtime import arithmetic
from rs.runtime.device import resolve_device
from rs.storage.files import read_json
from tests.support.helpers import needs_x86, refuses, stage, tiny_params, write_params, write_tiny

OTHER_MACHINE = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott",
    "MKL_CBWR": "SSE4_2",
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
}
"""What makes a processor compute as another one would: no vectors, old kernels of BLAS, more
threads.
"""


def made(folder, tiny, **environment):
    """Bytes of a model, and of its certificates, that stages of portable arithmetic make."""
    folder.mkdir()
    training = {**tiny_params()["recipes"]["tiny"]["training"], "eval_every": 1}
    params = write_params(folder / "params.json", arithmetic="portable", training=training)
    how = ["--dataset", "tiny", "--data", tiny, "--params", params, "--device", "cpu"]
    trained = ["--sigma", 0.25, "--seed", 0, "--out", folder / "model", "--log", folder / "log"]
    environment["RS_WORK"] = str(folder / "work")
    stage("stages.train", "advmacer", *trained, *how, **environment)
    rows = folder / "rows.tsv"
    stage("stages.certify", folder / "model", "--out", rows, *how, **environment)
    names = ("model/model.safetensors", "model/model.json", "log/history.csv", "rows.tsv")
    return {name: (folder / name).read_bytes() for name in names}


@needs_x86
@pytest.mark.slow
def test_portable_arithmetic_makes_the_same_bytes_whatever_processor_is_imitated(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    here = tmp_path / "here"
    assert made(here, tiny) == made(tmp_path / "there", tiny, **OTHER_MACHINE)
    assert checkpoint.read_card(here / "model").arithmetic == "portable"
    assert read_json(here / "rows.json")["arithmetic"] == "portable"


def test_the_arithmetic_of_a_process_is_what_all_its_variables_say(monkeypatch):
    for name, value in arithmetic.PORTABLE.items():
        monkeypatch.setenv(name, value)
    assert arithmetic.current() == "portable"
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert arithmetic.current() == "native"


def chosen(recipe):
    """Make the arithmetic that of a recipe."""
    where = "recipes.tiny.arithmetic"
    arithmetic.set_arithmetic(
        arithmetic.recipe_arithmetic({"recipes": {"tiny": recipe}}, "tiny"), where
    )


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"arithmetic": "exact"},
            r"recipes\.tiny\.arithmetic: .*'portable' or 'native', got 'exact'",
        ),
        (
            {"training": {"engine": "compiled"}},
            r"recipes\.tiny\.training\.engine = compiled depends on the processor",
        ),
        (
            {"certify": {"precision": "bfloat16"}},
            r"recipes\.tiny\.certify\.precision = bfloat16 depends",
        ),
        (
            {"macer": {"training": {"engine": "compiled"}}},
            r"recipes\.tiny\.macer\.training\.engine = compiled depends",
        ),
        (
            {"training": {"precision": {0.25: "float32", 0.5: "bfloat16"}}},
            r"training\.precision = bfloat16 depends",
        ),
        ({}, r"chosen before numpy and torch are loaded, .* set it to native"),
    ],
)
@needs_x86
def test_arithmetic_that_cannot_be_is_refused(monkeypatch, recipe, message):
    monkeypatch.setenv("MKL_CBWR", "AVX2")  # this process is not portable already
    with refuses(message):
        chosen({"arithmetic": "portable"} | recipe)


def test_a_recipe_must_say_its_arithmetic():
    with refuses(r"must have the key recipes\.tiny\.arithmetic; known here: model"):
        chosen({"model": {}})


def test_native_arithmetic_changes_nothing_and_another_processor_computes_natively_and_says_so(
    monkeypatch, capfd
):
    monkeypatch.delenv("MKL_CBWR", raising=False)
    before = dict(os.environ)
    chosen({"arithmetic": "native"})
    assert dict(os.environ) == before
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    chosen({"arithmetic": "portable"})
    assert dict(os.environ) == before
    said = "warning: recipes.tiny.arithmetic is portable on x86-64 only; here it is native\n"
    assert capfd.readouterr().err == said


def test_portable_arithmetic_is_refused_where_torch_runs_another(monkeypatch):
    for name, value in arithmetic.PORTABLE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    with refuses("must run on an x86-64 CPU with AVX2, got cpu and DEFAULT"):
        resolve_device("auto")
