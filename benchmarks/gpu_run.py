"""Train and certify the networks of a grid on one GPU in minutes.

``python -m benchmarks.gpu_run benchmarks/gpu-levels.yaml --data FOLDER --out FOLDER`` trains
AdvMacer at three noise levels, and certifies the first 500 test images at n = 100,000.
``benchmarks/gpu-methods.yaml`` has five methods, three seeds each, and their ensembles.

All networks train for equal seconds: method after method, the seeds of a method side by side. Each
command is a process of its own, so one that fails does not stop the others.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML

from benchmarks.common import machine
from rs.command_line.shell import run
from rs.params import read_params
from rs.study.grid import cells
from rs.study.layout import GridCell

STARTUP = 25
"""Seconds that a process needs to read the images, and to evaluate the network at the end."""

REHEARSAL: dict[str, dict[str, Any]] = {
    "model": {"architecture": "resnet8"},
    "training": {"batch": 32, "precision": "float32", "engine": "plain", "eval_images": 5},
    "certify": {"n": 200, "subset": {"first": 5}, "precision": "float32", "engine": "plain"},
}
"""Settings of a rehearsal, in place of those of the recipe."""

Command = list[str]
"""A module and its arguments."""


def command(module: str, *arguments: object, **options: object) -> Command:
    """Return the command that runs a module with arguments, and with options ``--NAME VALUE``."""
    words = [module, *map(str, arguments)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


@dataclass(frozen=True)
class Study:
    """The commands of a study whose files lie in one folder."""

    dataset: str
    folder: Path
    device: str

    def path(self, kind: str, *names: object) -> Path:
        """Return a path in a folder such as ``models``; ``rs.study.layout`` has them all."""
        return self.folder.joinpath(kind, self.dataset, *map(str, names))

    @property
    def params(self) -> Path:
        """The file of parameters."""
        return self.folder / "params.yaml"

    @property
    def images(self) -> dict[str, object]:
        """Options of commands that read images."""
        return {"params": self.params, "data": self.path("data"), "device": self.device}

    def prepare(self) -> Command:
        """Return the command that prepares the images."""
        return command("stages.prepare", self.dataset, params=self.params, out=self.path("data"))

    def train(self, cell: GridCell, seed: int, seconds: int) -> Command:
        """Return the command that trains a network."""
        names = (cell.sigma, cell.method, seed)
        return command(
            "stages.train",
            cell.method,
            **self.images,
            dataset=self.dataset,
            sigma=cell.sigma,
            seed=seed,
            seconds=seconds,
            out=self.path("models", *names),
            log=self.path("logs", *names),
        )

    def certify(self, cell: GridCell) -> Command:
        """Return the command that certifies a network on test images."""
        model = self.path("models", cell.sigma, cell.method, cell.seed)
        rows = cell.rows(self.path("results"))
        return command("stages.certify", model, **self.images, dataset=self.dataset, out=rows)

    def ensemble(self, sigma: object) -> Command:
        """Return the command that writes the ensembles of a noise level."""
        return command(
            "stages.ensemble",
            self.dataset,
            params=self.params,
            sigma=sigma,
            models=self.path("models", sigma),
            out=self.path("ensembles", sigma),
        )

    def weights(self, sigma: object) -> Command:
        """Return the command that fits the weights of ensembles on validation images."""
        return command(
            "stages.weights",
            self.dataset,
            **self.images,
            ensembles=self.path("ensembles", sigma),
            out=self.path("weights", sigma),
            seconds=self.path("logs", sigma, "weights.csv"),
        )

    def certify_ensembles(self, sigma: object) -> Command:
        """Return the command that certifies ensembles and their members on test images."""
        return command(
            "stages.certify_ensembles",
            self.dataset,
            **self.images,
            ensembles=self.path("ensembles", sigma),
            weights=self.path("weights", sigma),
            out=self.path("results", sigma, "pool"),
            times=self.path("logs", sigma),
        )


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
    end = time.monotonic() + 60 * minutes
    values = merged_parameters(parameters, data, rehearse)
    write_parameters(values, out)
    study = Study(values["dataset"], out, device)
    grid = cells(values, study.dataset)
    sigmas = values["sigmas"] if values["ensembles"] else []
    rounds: dict[tuple[Any, str], list[GridCell]] = {}
    for cell in grid:
        rounds.setdefault((cell.sigma, cell.method), []).append(cell)

    side_by_side([study.prepare()], end)
    if not rehearse:
        to_compile = [study.train(group[0], seed=99, seconds=1) for group in rounds.values()]
        check = command("benchmarks.gpu_check", device=device)
        side_by_side([check, *to_compile], end)
    time_left = end - time.monotonic() - 60 * certify_minutes
    seconds = 2 if rehearse else max(1, round(time_left / len(rounds) - STARTUP))
    for group in rounds.values():
        side_by_side([study.train(cell, cell.seed, seconds) for cell in group], end)

    certificates = [study.certify(cell) for cell in grid if not cell.is_member_seed]
    ensembles = [study.ensemble(sigma) for sigma in sigmas]
    side_by_side([*certificates, *ensembles], end)
    side_by_side([study.weights(sigma) for sigma in sigmas], end)
    side_by_side([study.certify_ensembles(sigma) for sigma in sigmas], end)

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
    values["datasets"][dataset]["root"] = str(data)
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


def side_by_side(commands: list[Command], end: float) -> None:
    """Run commands at the same time, until all have ended."""
    with ThreadPoolExecutor(max(1, len(commands))) as threads:
        list(threads.map(lambda words: run_command(words, end), commands))


def run_command(words: Command, end: float) -> str:
    """Run a module in a process of its own until ``end``; print and return its last line."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            timeout=max(end - start, 1.0),
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


if __name__ == "__main__":
    run(main)
