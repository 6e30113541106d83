"""Settings every test shares."""

import gc
import os
import pickle
import shutil
import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path

# One thread a process, subprocesses included, unless more are asked for: tiny models are fastest
# so, and tests do not slow each other down on a shared machine. Must stand before torch is
# imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Code that torch has compiled for one processor's instructions is kept for that one: torch looks it
# up by the network alone, and does not find that another processor, or one that is imitated, has
# them not.
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR",
    f"{tempfile.gettempdir()}/rs-compiled-{os.getuid()}-"
    f"{os.environ.get('ATEN_CPU_CAPABILITY', 'native')}",
)

# Torch need not compile programs to see which vector instructions the compiler knows: the
# processor's flags say it.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

os.environ.pop("COLUMNS", None)  # with it, commands break long lines

import pytest
from hypothesis import settings
from ruamel.yaml import YAML

from rs import params
from rs.runtime import code_fingerprint


class RememberedYAML(YAML):
    """A reader that parses each text once: most commands read the same parameters."""

    def load(self, text):
        if text not in PARSED:
            PARSED[text] = pickle.dumps(super().load(text))
        return pickle.loads(PARSED[text])


PARSED = {}
params.YAML = RememberedYAML

CHECKOUT, read_code = code_fingerprint.ROOT, code_fingerprint.code_hash
remembered_hash = cache(read_code)


def hash_checkout_once(*entries, method=None):
    """Return the hash of code; no test changes the checkout's own, so it is computed once."""
    code_hash = remembered_hash if code_fingerprint.ROOT == CHECKOUT else read_code
    return code_hash(*entries, method=method)


code_fingerprint.code_hash = hash_checkout_once

settings.register_profile("rs", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("rs")


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    """Folder for the unfinished work of one test; no other test waits for it or continues it."""
    monkeypatch.setenv("RS_WORK", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def tiny(tmp_path):
    """Folder of the tiny data set of ``helpers``."""
    from tests.support.helpers import write_tiny

    return write_tiny(tmp_path / "tiny")


@pytest.fixture
def tiny_project(tmp_path, monkeypatch):
    """The current folder has the tiny data set, parameters and an untrained model."""
    from tests.support.helpers import write_params, write_tiny
    from tests.support.untrained import save_model

    monkeypatch.chdir(tmp_path)
    write_tiny(Path("data"))
    write_params(Path("params.yaml"))
    save_model(Path("model"))


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Folder of the models of ``untrained``, METHOD/SEED."""
    from tests.support.untrained import save_models

    folder = tmp_path_factory.mktemp("saved")
    save_models(folder)
    return folder


@pytest.fixture
def models_here(tmp_path, monkeypatch, saved):
    """The current folder is an empty one but for these models."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved, "models")


@pytest.fixture(scope="session")
def solved_pool(tmp_path_factory):
    """Folder of the pool of ``tiny_pool`` with its weights."""
    from tests.support.tiny_pool import make_pool, solve

    root = make_pool(tmp_path_factory.mktemp("pool"))
    with chdir(root):
        solve()
    return root


@pytest.fixture
def pool_here(tmp_path, monkeypatch, solved_pool):
    """The current folder is a copy of this pool."""
    monkeypatch.chdir(shutil.copytree(solved_pool, tmp_path / "project"))


def pytest_collection_finish():
    """Leave what has been imported out of every later search for garbage, which is slow."""
    gc.collect()
    gc.freeze()
