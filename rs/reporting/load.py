"""The ensembles of a study on the disk: which there are is up to the parameters.

RESULTS/SIGMA/pool/ENSEMBLE.tsv and .json   certificate rows, and what made them
RESULTS/SIGMA/times/alone.csv               seconds of a certificate of each classifier of the pool alone
WEIGHTS/SIGMA/spreads.csv, bounds.csv       the theory of ensembles in numbers (``rs.reporting.variance_tables``)
WEIGHTS/SIGMA.seconds.csv                   seconds that weights take, of one image and one member
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Circumstances, Result
from rs.statistics import metrics
from rs.storage import certificate_rows as certificates
from rs.storage import files
from rs.study.ensembles import EnsembleDeclaration, kind_of
from rs.study.grid import Cell, pool_target
from rs.study.subset import subset_name


def read_ensemble(one: EnsembleDeclaration, dataset: str, sigma: Any, results: Path, default: str) -> Result:
    """Read the rows of an ensemble and their sidecar.

    Args:
        default: The combination that goes without saying in its label.
    Raises:
        InputError: As :func:`read_result`.
    """
    path = results / str(sigma) / "pool" / f"{one.slug}.tsv"
    rows, sidecar = read_rows(path, sigma, command := f"dvc repro {pool_target(dataset, sigma)}")
    scope = rows["scope"].iloc[0]
    if scope != one.combination.scope:
        raise InputError(
            f"{path} must be of scope {one.combination.scope}, as the parameters say, got {scope}; run {command}"
        )
    return Result(
        one.label(default),
        float(sigma),
        None,
        rows,
        subset_of(sidecar),
        None,
        None if scope == "set" else sidecar.get("classes"),
        scope,
        one.name,
        one.key,
        one.members,
        Circumstances.of(sidecar),
    )


def read_theory(weights: Path, dataset: str, sigmas: Sequence[Any], name: str) -> pd.DataFrame:
    """Read ``spreads`` or ``bounds`` of all noise levels, of which there is at least one; with a column ``sigma``."""
    frames = [
        read_table(weights / str(sigma) / f"{name}.csv", ["ensemble", "images"], f"dvc repro weights@{dataset}-{sigma}")
        for sigma in sigmas
    ]
    return pd.concat([frame.assign(sigma=float(s)) for s, frame in zip(sigmas, frames, strict=True)], ignore_index=True)


def seconds_alone(
    found: Sequence[EnsembleDeclaration], dataset: str, sigma: Any, results: Path, weights: Path, default: str
) -> dict[str, float]:
    """Seconds of a certificate of each classifier of a pool alone; with those of its weights, if images choose them.

    Returns:
        By kind of ensemble (``Result.kind``), and by METHOD-SEED of a member.
    """
    command = f"dvc repro {pool_target(dataset, sigma)}"
    alone = read_table(results / str(sigma) / "times" / "alone.csv", ["classifier", "seconds"], command, empty=True)
    per_member = read_table(weights / f"{sigma}.seconds.csv", ["seconds"], f"dvc repro weights@{dataset}-{sigma}")
    seconds = dict(zip(alone["classifier"], alone["seconds"], strict=True))
    for one in found:
        if one.slug in seconds:
            extra = (
                len(one.members) * float(per_member["seconds"].iloc[0]) if one.combination.scope == "per-image" else 0.0
            )
            name = one.label(default).replace(one.name, kind_of(one.members), 1)
            seconds[name] = seconds.pop(one.slug) + extra
    return seconds


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
