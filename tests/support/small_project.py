"""A copy of the project with a study that takes seconds, for tests of the pipeline as a whole."""

import os
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import chdir, contextmanager
from importlib import import_module
from pathlib import Path

from dvc.repo import Repo
from ruamel.yaml import YAML

from rs import params
from tests.support.helpers import exit_code

ROOT = Path(__file__).parents[2]
MADE = (
    "fingerprints",
    "data",
    "models",
    "logs",
    "ensembles",
    "weights",
    "results",
    "times",
    ".work",
)


def small_project(root, **training):
    """Make a repository with a study of two methods, one epoch and ten images."""
    copy_project(root)
    values = params.read_params(root / "params.yaml")
    values |= {"methods": ["gaussian", "macer"], "members": ["macer"], "member_seeds": [1]}
    values["ensembles"] = {
        "macer x2": {"members": {"macer": 2}, "combinations": ["average", "optimal"]},
        "macer 0-1": {"members": {"macer": [0, 1]}, "combinations": ["per-image"]},
    }
    shrink(values, "digits", **training)
    for section in ("datasets", "recipes"):  # DVC reads all of the file again and again
        values[section] = {"digits": values[section]["digits"]}
    write_params(root, values)
    return root


def copy_project(root):
    """Make a repository in ``root`` of what the pipeline needs."""
    root.mkdir()
    for folder in ("rs", "stages", "benchmarks"):
        shutil.copytree(
            ROOT / folder, root / folder, symlinks=True
        )  # with what Python has compiled
    shutil.copytree(ROOT / "docs" / "falsification", root / "docs" / "falsification")
    for name in ("dvc.yaml", "params.yaml", ".dvcignore", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    (root / ".gitignore").write_text("__pycache__/\n" + "".join(f"/{name}\n" for name in MADE))
    run(root, "git", "init", "-q")
    run(root, "dvc", "init", "-q")


def shrink(values, dataset, **training):
    """Make the study one noise level, and a recipe one epoch and ten images."""
    values["sigmas"] = [0.5]
    few = {
        "weights": {"noises": 2, "copies": 2, "draws": 5, "images": 20},
        "pool": {"timed": 20},
        "training": {
            "epochs": 1,
            "milestones": [],
            "eval_images": 5,
            "eval_n0": 10,
            "eval_n": 20,
            "engine": "plain",
        },
        "certify": {"n": 20, "subset": {"first": 10}, "engine": "plain"},
    }
    recipe = values["recipes"][dataset]
    recipe["arithmetic"] = "native"  # which a process that has imported torch can compute with
    for name, section in few.items():
        recipe[name] = {**recipe.get(name, {}), **section}
    recipe["training"] |= training


def write_params(root, values):
    with (root / "params.yaml").open("w") as file:
        YAML().dump(values, file)


def environment():
    """Variables with which commands find the ``python`` and ``dvc`` of this process, and keep
    unfinished work in the project.
    """
    variables = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    }
    variables.pop("RS_WORK", None)
    return variables


def run(root, *words):
    """Run a command in ``root``; its output."""
    done = subprocess.run(
        words, cwd=root, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def opened(root):
    """Enter a repository, and run DVC in this process, because its command starts slowly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries of DVC
        with chdir(root), Repo() as repo:
            yield repo


def make_cells(root, *stages):
    """Run the cells of stages that ``dvc repro`` would run, in this process; return their names.

    The stages are in their order, because DVC looks at what a cell depends on.
    """
    made = []
    with opened(root) as repo:
        for name in stages:
            for cell in repo.reproduce(name, dry=True, single_item=True):
                python, option, module, *words = shlex.split(cell.cmd)
                assert (python, option) == ("python", "-m")
                assert exit_code(import_module(module).main, *words) == 0
                made.append(cell.addressing)
    return made


def contents(root, *folders):
    """What lies in folders, but for wall times."""
    files = [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    return {
        path.relative_to(root): path.read_bytes()
        for path in files
        if "times" not in path.parts and "seconds" not in path.name and path.name != ".gitignore"
    }
