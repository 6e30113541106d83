"""The cells of a study on the disk: which there are is up to the parameters, never to what lies in a folder.

RESULTS/SIGMA/METHOD-SEED.tsv and .json     certificate rows, and what made them
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
from rs.combination import declared
from rs.errors import InputError
from rs.ladder import identify_budget
from rs.params import NonNegativeCount, Positive, check, for_sigma, section
from rs.results import Result
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
        stage = f"{stage}_members" if self.further else stage
        return f"{stage}@{self.dataset}-{self.method}-{self.sigma}-{self.seed}"

    def command(self, stage: str) -> str:
        """Return the command that makes this cell's output of ``stage``."""
        return f"dvc repro {self.target(stage)}"

    def rows(self, results: Path) -> Path:
        """Path of the certificate rows."""
        return results / str(self.sigma) / f"{self.method}-{self.seed}.tsv"

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


def pool_cells(values: dict[str, Any], dataset: str, sigma: float) -> list[Cell]:
    """Return the cells at ``sigma`` that are certified together: further seeds, and the members of all ensembles.

    Raises:
        InputError: If the parameters do not declare this data set or sigma, or lack a member of an ensemble.

    >>> grid = {"sigmas": [0.5], "methods": ["macer"], "seeds": [0], "members": ["macer"], "member_seeds": [1, 2]}
    >>> made = pool_cells(grid | {"recipes": {"digits": {}}}, "digits", 0.5)
    >>> [cell.target("train") for cell in made]
    ['train_members@digits-macer-0.5-1', 'train_members@digits-macer-0.5-2']
    """
    section(values, "recipes", dataset)
    here = {(cell.method, cell.seed): cell for cell in cells(values, dataset) if cell.sigma == sigma}
    if not here:
        raise InputError(
            f"sigma must be one of the sigmas of the parameters, {', '.join(map(str, values['sigmas']))}; got {sigma}"
        )
    wanted = {pair for one in declared(values) for pair in one.members}
    for method, seed in sorted(wanted - set(here)):
        raise InputError(
            f"params.yaml: ensembles need {method} with seed {seed}, but the grid does not train it; add it to members "
            "and member_seeds, or remove the ensembles (ensembles: [])"
        )
    return [cell for pair, cell in here.items() if cell.further or pair in wanted]


def read_result(cell: Cell, results: Path, logs: Path) -> Result:
    """Read the rows of a cell, their sidecar, and the seconds its training took.

    Raises:
        InputError: If a file is missing (names the command that makes it) or is not of this cell.
    """
    path = _existing(cell.rows(results), cell, "certify")
    sidecar = files.read_json(_existing(path.with_suffix(".json"), cell, "certify"))
    rows = certificates.read(path)
    if not isinstance(sidecar, dict) or sidecar.get("rows", len(rows)) != len(rows):
        raise InputError(f"{path} has {len(rows)} rows, not those its sidecar says; run {cell.command('certify')}")
    for name in ("n0", "n", "alpha", "sigma"):
        inside, beside = metrics.budget(rows, name), sidecar.get(name)
        if inside != beside and not pd.isna(inside):
            raise InputError(f"{path} has {name} {inside:g} but its sidecar {beside}; run {cell.command('certify')}")
    if metrics.budget(rows, "sigma") != float(cell.sigma):
        raise InputError(f"{path} must be of sigma {cell.sigma}, but is not; run {cell.command('certify')}")
    subset = sidecar.get("subset", "not stated")
    return Result(
        cell.method,
        float(cell.sigma),
        cell.seed,
        rows,
        subset if isinstance(subset, str) else subset_name(subset),
        float(_log(cell, logs, "timing.csv", ["epoch", "seconds"])["seconds"].iloc[-1]),
        sidecar.get("classes"),
        rows["scope"].iloc[0],
    )


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


def read_outside(name: str, path: Path, beside: Sequence[Result], **known: float | None) -> Result:
    """Read a log from elsewhere, cut to the images of the results it will stand beside.

    Args:
        name: What to call it.
        path: Rows of this project, or a log in the field's six columns.
        beside: The results of the study.
        known: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log; what is ``None`` is told from its ladder.
    Raises:
        InputError: If the budget or the sigma stays unknown, or the images are not among those of the log.
    """
    rows = certificates.read_any(path, **known)
    if pd.isna(metrics.budget(rows, "sigma")) or pd.isna(metrics.budget(rows, "n") * metrics.budget(rows, "alpha")):
        rows = rows.assign(**_identified(path, rows, sorted({result.sigma for result in beside}), known))
    sigma = metrics.budget(rows, "sigma")
    like = next((result for result in beside if result.sigma == sigma), None)
    if like is None:
        raise InputError(f"{path} is of sigma {sigma:g}, but no result of the study is; leave it out")
    return Result(name, sigma, None, _same_images(path, rows, like), like.subset)


def _identified(
    path: Path, rows: pd.DataFrame, sigmas: list[float], known: dict[str, float | None]
) -> dict[str, float]:
    given = known.get("sigma")
    found = {sigma: identify_budget(rows["radius"], sigma) for sigma in ([given] if given else sigmas)}
    fits = {sigma: budget for sigma, budget in found.items() if budget is not None}
    if len(fits) != 1:
        raise InputError(f"{path} does not say its sigma, n and alpha, and its radii do not tell; give them as options")
    ((sigma, (n, alpha)),) = fits.items()
    for name, value in (("n", n), ("alpha", alpha)):
        if known.get(name) not in (None, value):
            raise InputError(
                f"{path} was made with {name} = {value}, as its radii tell, not {known[name]}; leave it out"
            )
    return {"sigma": sigma, "n": n, "alpha": alpha}


def _same_images(path: Path, rows: pd.DataFrame, like: Result) -> pd.DataFrame:
    missing = set(like.rows["idx"]) - set(rows["idx"])
    if missing:
        raise InputError(
            f"{path} must hold the images of the study, but lacks {len(missing)}, image {min(missing)} first"
        )
    return rows[rows["idx"].isin(like.rows["idx"])].reset_index(drop=True)


def _log(cell: Cell, logs: Path, name: str, columns: list[str]) -> pd.DataFrame:
    path = _existing(cell.log(logs, name), cell, "train")
    try:
        frame = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a table, but: {error}; run {cell.command('train')}") from error
    if not set(columns) <= set(frame) or frame.empty:
        raise InputError(f"{path} must have rows with {', '.join(columns)}; run {cell.command('train')}")
    return frame


def _existing(path: Path, cell: Cell, stage: str) -> Path:
    if not path.is_file():
        raise InputError(f"{path} must be a file, but there is none; run {cell.command(stage)}")
    return path
