"""The ensembles of a study on the disk: which there are is up to the parameters.

RESULTS/SIGMA/pool/ENSEMBLE.tsv and .json   certificate rows, and what made them
RESULTS/SIGMA/times/alone.csv               seconds of a certificate of each classifier of the pool alone
WEIGHTS/SIGMA/spreads.csv, bounds.csv       the theory of ensembles in numbers (``rs.theory_tables``)
WEIGHTS/SIGMA.seconds.csv                   seconds that weights take, of one image and one member
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rs.combination import Declared, declared, kind_of
from rs.errors import InputError
from rs.params import section
from rs.results import Circumstances, Result
from rs.study import Cell, cells, pool_target, read_rows, read_table, subset_of


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


def read_ensemble(one: Declared, dataset: str, sigma: Any, results: Path, default: str) -> Result:
    """Read the rows of an ensemble and their sidecar.

    Args:
        default: The combination that goes without saying in its label.
    Raises:
        InputError: As :func:`read_result`.
    """
    path = results / str(sigma) / "pool" / f"{one.slug}.tsv"
    rows, sidecar = read_rows(path, sigma, command := f"dvc repro {pool_target(dataset, sigma)}")
    scope = rows["scope"].iloc[0]
    if scope != one.how.scope:
        raise InputError(f"{path} must be of scope {one.how.scope}, as the parameters say, got {scope}; run {command}")
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
        one.combination,
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
    found: Sequence[Declared], dataset: str, sigma: Any, results: Path, weights: Path, default: str
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
            extra = len(one.members) * float(per_member["seconds"].iloc[0]) if one.how.scope == "per-image" else 0.0
            name = one.label(default).replace(one.name, kind_of(one.members), 1)
            seconds[name] = seconds.pop(one.slug) + extra
    return seconds
