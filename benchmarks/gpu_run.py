"""Train and certify the networks of a grid on one GPU in minutes.

``python -m benchmarks.gpu_run benchmarks/gpu-levels.yaml --data FOLDER --out FOLDER`` trains
AdvMacer at three noise levels, and certifies the first 500 test images at n = 100,000.
``benchmarks/gpu-methods.yaml`` has five methods, three seeds each, and their ensembles.

All networks train for equal seconds: method after method, the seeds of a method side by side. Each
command is a process of its own, so one that fails does not stop the others.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML

from benchmarks.common import machine
from rs.command_line.shell import run
from rs.params import read_params
from rs.study.grid import cells
from rs.study.layout import GridCell

ROOT = Path(__file__).parents[1]

STARTUP = 25
"""Seconds that a process needs to read the images, and to evaluate the network at the end."""

REHEARSAL: dict[str, dict[str, Any]] = {
    "model": {"architecture": "resnet8"},
    "training": {"batch": 32, "precision": "float32", "engine": "plain", "eval_images": 5},
    "certify": {"n": 200, "subset": {"first": 5}, "precision": "float32", "engine": "plain"},
}
"""Settings of a rehearsal, in place of those of the recipe."""

Command = list[str]
"""The name of a module, and its arguments."""


@cache
def stage_commands() -> dict[str, str]:
    """Return the commands of ``dvc.yaml`` by stage, with places such as ``${item.sigma}``."""
    stages = YAML(typ="safe", pure=True).load(ROOT / "dvc.yaml")["stages"]
    return {name: stage["cmd"] for name, stage in stages.items() if "cmd" in stage}


def stage_command(stage: str, item: Mapping[str, Any], *options: object) -> Command:
    """Return the command of a cell of a stage of ``dvc.yaml``, with more options.

    Args:
        stage: Name of the stage.
        item: The values of this cell by the names in the stage's matrix, such as ``dataset``.
        options: What to add to the command.
    """
    text = stage_commands()[stage].removeprefix("python -m ")
    for name, value in item.items():
        text = text.replace(f"${{item.{name}}}", str(value))
    return [*shlex.split(text), *map(str, options)]


@dataclass(frozen=True)
class Run:
    """Where commands run, and until when."""

    folder: Path
    device: str
    end: float
    """The ``time.monotonic()`` at which every command is stopped."""

    def run_together(self, commands: list[Command]) -> None:
        """Run commands at the same time, until all have ended."""
        with ThreadPoolExecutor(max(1, len(commands))) as threads:
            list(threads.map(self.run_command, commands))

    def run_command(self, words: Command) -> str:
        """Run a module in a process of its own; print and return its last line."""
        search_path = [str(ROOT)]
        if "PYTHONPATH" in os.environ:
            search_path.append(os.environ["PYTHONPATH"])
        environment = {"RS_DEVICE": self.device, "PYTHONPATH": os.pathsep.join(search_path)}
        start = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=self.folder,
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=max(self.end - start, 1.0),
                check=False,
            )
        except subprocess.TimeoutExpired:
            result = "failed: it ran past the time of all commands"
        else:
            output = done.stdout if done.returncode == 0 else done.stderr
            result = (output.strip().splitlines() or ["done"])[-1]
            if done.returncode != 0:
                result = f"failed: {result}"
        print(f"{time.monotonic() - start:6.1f} s  {' '.join(words[:2])}: {result}", flush=True)
        return result


def main(
    parameters: Annotated[Path, typer.Argument(help="What differs from params.yaml.")],
    data: Annotated[Path, typer.Option(help="Folder of CIFAR-10 as parquet files.")],
    out: Annotated[Path, typer.Option(help="Folder for weights, histories and rows.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for everything.")] = 9.5,
    certify_minutes: Annotated[
        float, typer.Option(min=0.0, help="Part of it that is kept for certification.")
    ] = 2.5,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Train small networks for two seconds each.")
    ] = False,
) -> None:
    """Train every network of a grid; certify those of the first seeds, and all ensembles."""
    values = merged_parameters(parameters, data, rehearse)
    write_parameters(values, out)
    dataset = values["dataset"]
    study = Run(out, device, time.monotonic() + 60 * minutes)
    grid = cells(values, dataset)
    rounds: dict[tuple[Any, str], list[GridCell]] = {}
    for cell in grid:
        rounds.setdefault((cell.sigma, cell.method), []).append(cell)

    study.run_together([stage_command("prepare", {"dataset": dataset})])
    if not rehearse:
        commands = [["benchmarks.gpu_check", "--device", device]]
        for group in rounds.values():  # a second of training compiles the steps of all seeds
            another_seed = vars(group[0]) | {"seed": 99}
            commands.append(stage_command("train", another_seed, "--seconds", 1))
        study.run_together(commands)
    time_left = study.end - time.monotonic() - 60 * certify_minutes
    seconds = 2 if rehearse else max(1, round(time_left / len(rounds) - STARTUP))
    for group in rounds.values():
        commands = [stage_command("train", vars(cell), "--seconds", seconds) for cell in group]
        study.run_together(commands)

    pools = []
    if values["ensembles"]:
        pools = [{"dataset": dataset, "sigma": sigma} for sigma in values["sigmas"]]
    commands = [stage_command("ensemble", pool) for pool in pools]
    for cell in grid:
        if not cell.is_member_seed:
            commands.append(stage_command("certify", vars(cell)))
    study.run_together(commands)
    for stage in ("weights", "certify_ensembles"):
        study.run_together([stage_command(stage, pool) for pool in pools])

    rows = sorted(map(str, out.glob("results/**/*.tsv")))
    if rows:
        show = ["rs.command_line.main", "show", *rows]
        subprocess.run([sys.executable, "-m", *show], check=True)
    print(machine(device))


def merged_parameters(path: Path, data: Path, rehearse: bool) -> dict[str, Any]:
    """Return the parameters of a file, and those of params.yaml that it does not state."""
    values = read_params(Path("params.yaml"))
    own = read_params(path)
    own["recipes"] = values["recipes"] | own["recipes"]
    values |= own
    dataset = values["dataset"]
    values["datasets"][dataset]["root"] = str(data.resolve())
    if rehearse:
        recipe = values["recipes"][dataset]
        for section, settings in REHEARSAL.items():
            recipe[section] = recipe.get(section, {}) | settings
    return values


def write_parameters(values: dict[str, Any], folder: Path) -> None:
    """Write parameters to the ``params.yaml`` of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    yaml = YAML()
    yaml.representer.ignore_aliases = lambda _: True
    with (folder / "params.yaml").open("w") as file:
        yaml.dump(values, file)


if __name__ == "__main__":
    run(main)
