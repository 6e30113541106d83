"""The cells of a study on the disk: which there are is up to the parameters, never to what lies in a folder.

RESULTS/SIGMA/METHOD-SEED.tsv and .json     certificate rows, and what made them
RESULTS/SIGMA/pool/METHOD-SEED.tsv, .json   the same of the further seeds, which are certified with the ensembles
LOGS/SIGMA/METHOD/SEED/history.csv          one line per training epoch
LOGS/SIGMA/METHOD/SEED/timing.csv           training seconds up to the end of each epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rs import files, metrics
from rs import rows as certificates
from rs.errors import InputError
from rs.params import NonNegativeCount, Positive, check, for_sigma, section
from rs.results import Circumstances, Result
from rs.subset import subset_name

SHOWN = ("steps", "draws", "epsilon", "lam", "gamma", "beta", "eta", "epochs", "batch")
"""Hyper-parameters that the cost table shows, where a method has them."""


@dataclass(frozen=True)
class Cell:
    """One training run of the study."""

    dataset: str
    method: str
    sigma: Any  # as it stands in the parameters: it is part of file names
    seed: int
    further: bool = False  # a further seed of a member of ensembles, which stages of their own make

    def target(self, stage: str) -> str:
        """Return DVC's name of this cell of ``stage``."""
        if self.further and stage == "certify":
            return pool_target(self.dataset, self.sigma)
        stage = f"{stage}_members" if self.further else stage
        return f"{stage}@{self.dataset}-{self.method}-{self.sigma}-{self.seed}"

    def command(self, stage: str) -> str:
        """Return the command that makes this cell's output of ``stage``."""
        return f"dvc repro {self.target(stage)}"

    def rows(self, results: Path) -> Path:
        """Path of the certificate rows."""
        folder = results / str(self.sigma)
        return (folder / "pool" if self.further else folder) / f"{self.method}-{self.seed}.tsv"

    def log(self, logs: Path, name: str) -> Path:
        """Path of a training log."""
        return logs / str(self.sigma) / self.method / str(self.seed) / name


def cells(values: dict[str, Any], dataset: str) -> list[Cell]:
    """Return ``sigmas`` x (``methods`` x ``seeds`` and ``members`` x ``member_seeds``), each once.

    Raises:
        InputError: If there is none, or a key is missing.
    """
    given = {"members": [], "member_seeds": []} | {key: value for key, value in values.items() if value is not None}
    methods, members = (check(list[str], section(given, key), key) for key in ("methods", "members"))
    first_seeds, seeds = (check(list[NonNegativeCount], section(given, key), key) for key in ("seeds", "member_seeds"))
    sigmas = section(values, "sigmas")
    check(list[Positive], sigmas, "sigmas")
    first = {(method, seed): False for method in methods for seed in first_seeds}
    pairs = first | {(method, seed): True for method in members for seed in seeds if (method, seed) not in first}
    found = [
        Cell(dataset, method, sigma, seed, further) for sigma in sigmas for (method, seed), further in pairs.items()
    ]
    if not found:
        raise InputError("params.yaml must list a method, a seed and a sigma at least; there is nothing to do")
    return found


def pool_target(dataset: str, sigma: Any) -> str:
    """Return DVC's name of the cell that certifies further seeds and ensembles."""
    return f"certify_ensembles@{dataset}-{sigma}"


def read_result(cell: Cell, results: Path, logs: Path) -> Result:
    """Read the rows of a cell, their sidecar, and the seconds its training took.

    Raises:
        InputError: If a file is missing (names the command that makes it) or is not of this cell.
    """
    rows, sidecar = read_rows(cell.rows(results), cell.sigma, cell.command("certify"))
    seconds = float(_log(cell, logs, "timing.csv", ["epoch", "seconds"])["seconds"].iloc[-1])
    return Result(
        cell.method,
        float(cell.sigma),
        cell.seed,
        rows,
        subset_of(sidecar),
        seconds,
        sidecar.get("classes") if metrics.mode_of(rows) == "certify" else None,
        rows["scope"].iloc[0],
        circumstances=Circumstances.of(sidecar),
    )


def read_rows(path: Path, sigma: Any, command: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read rows and their sidecar, after checking that they are of each other and of this noise level.

    Raises:
        InputError: If not; ``command`` makes them.
    """
    sidecar = files.read_json(_existing(_existing(path, command).with_suffix(".json"), command))
    rows = certificates.read(path)
    if not isinstance(sidecar, dict) or sidecar.get("rows", len(rows)) != len(rows):
        raise InputError(f"{path} has {len(rows)} rows, not those its sidecar says; run {command}")
    for name in ("n0", "n", "alpha", "sigma"):
        inside, beside = metrics.budget(rows, name), sidecar.get(name)
        if inside not in (0, beside) and not pd.isna(inside):  # 0: all n draws were skipped
            raise InputError(f"{path} has {name} {inside:g} but its sidecar {beside}; run {command}")
    if metrics.budget(rows, "sigma") != float(sigma):
        raise InputError(f"{path} must be of sigma {sigma}, but is not; run {command}")
    return rows, sidecar


def subset_of(sidecar: dict[str, Any]) -> str:
    """Which images the rows of a sidecar are of, in words."""
    subset = sidecar.get("subset", "not stated")
    return subset if isinstance(subset, str) else subset_name(subset)


def best_acr_over_time(cells: Sequence[Cell], logs: Path) -> pd.DataFrame:
    """Return the best ACR so far at each evaluated epoch, mean over the seeds.

    Returns:
        Columns ``method sigma epoch seconds acr``; no line for a run that was never evaluated.
    Raises:
        InputError: If a log is missing or has other columns.
    """
    runs = []
    for cell in cells:
        history = _log(cell, logs, "history.csv", ["epoch", "acr"])
        timing = _log(cell, logs, "timing.csv", ["epoch", "seconds"])
        run = history.dropna(subset="acr").merge(timing, on="epoch")
        run = run.assign(method=cell.method, sigma=float(cell.sigma), acr=run["acr"].cummax())
        runs.append(run[["method", "sigma", "epoch", "seconds", "acr"]])
    together = pd.concat(runs, ignore_index=True)
    return together.groupby(["method", "sigma", "epoch"], sort=False, as_index=False).mean()


def configuration(values: dict[str, Any], dataset: str, method: str, sigma: float) -> dict[str, Any]:
    """Return the hyper-parameters :data:`SHOWN` of ``recipes.DATASET.METHOD`` at ``sigma``, where there are any."""
    recipe = (values.get("recipes") or {}).get(dataset) or {}
    own = for_sigma(recipe.get(method) or {}, sigma, f"recipes.{dataset}.{method}")
    common = for_sigma(recipe.get("training") or {}, sigma, f"recipes.{dataset}.training")
    merged = {**common, **own.get("training", {}), **own}
    return {name: merged[name] for name in SHOWN if name in merged}


def base_dataset(values: dict[str, Any], dataset: str) -> str:
    """Return the data set under a recipe's name: ``cifar10`` for ``cifar10-fast``."""
    return ((values.get("datasets") or {}).get(dataset) or {}).get("dataset", dataset)


def _log(cell: Cell, logs: Path, name: str, columns: list[str]) -> pd.DataFrame:
    return read_table(cell.log(logs, name), columns, cell.command("train"))


def read_table(path: Path, columns: list[str], command: str, empty: bool = False) -> pd.DataFrame:
    """Read a CSV file that ``command`` makes.

    Raises:
        InputError: If it is missing or damaged, lacks one of ``columns``, or has no rows and may not be ``empty``.
    """
    try:
        frame = pd.read_csv(_existing(path, command))
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a table, but: {error}; run {command}") from error
    if not set(columns) <= set(frame) or (frame.empty and not empty):
        raise InputError(f"{path} must have rows with {', '.join(columns)}; run {command}")
    return frame


def _existing(path: Path, command: str) -> Path:
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run {command}")
    return path
