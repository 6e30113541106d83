"""A copy of the project with a study that takes seconds, for tests of the pipeline as a whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rs import params

ROOT = Path(__file__).parents[2]
MADE = ("fingerprints", "data", "models", "logs", "ensembles", "weights", "results", ".work")


def small_project(root: Path, **training: Any) -> Path:
    """Make a repository in ``root``: the code, the pipeline, and a study of two methods, one epoch and ten images."""
    root.mkdir()
    for folder in ("rs", "stages", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", root)
    shutil.copy(ROOT / ".dvcignore", root)
    (root / ".gitignore").write_text("".join(f"/{name}\n" for name in MADE))
    values = params.read(ROOT / "params.yaml")
    values |= {"sigmas": [0.5], "methods": ["gaussian", "macer"], "members": ["macer"], "member_seeds": [1]}
    values["ensembles"] = [
        {"members": {"macer": 2}, "combinations": ["average", "optimal"]},
        {"members": {"macer": [0, 1]}, "combinations": ["per-image"]},
    ]
    digits = values["recipes"]["digits"]
    digits["weights"] = {"noises": 2, "copies": 2, "images": 20}
    digits["pool"] = {"timed": 20}
    digits["training"] |= {"epochs": 1, "milestones": [], "eval_images": 5, "eval_n0": 10, "eval_n": 20, **training}
    digits["certify"] |= {"n": 20, "subset": {"first": 10}}
    write_params(root, values)
    run(root, "git", "init", "-q")
    run(root, "dvc", "init", "-q")
    return root


def write_params(root: Path, values: dict[str, Any]) -> None:
    """Write ``params.yaml``."""
    with (root / "params.yaml").open("w") as file:
        YAML().dump(values, file)


def environment() -> dict[str, str]:
    """In which the stages' ``python`` is this one."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run(root: Path, *words: str) -> str:
    """Run a command in ``root``; its output."""
    command = [sys.executable, "-m", *words] if words[0] == "dvc" else list(words)
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
