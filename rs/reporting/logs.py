"""Sidecars of rows, and files that belong to no study: rows of this project and logs of other programs."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from typing_extensions import TypedDict

from rs.errors import InputError
from rs.params import Count, record
from rs.reporting.results import Provenance, Result
from rs.statistics import metrics
from rs.statistics.certificate import UNDECIDED, votes_of
from rs.statistics.log_budget import identify_budget, identify_sigma
from rs.storage import certificate_rows, files
from rs.storage.certificate_rows import sidecar_of
from rs.study.subset import is_subset, subset_name


class MemberIdentity(TypedDict):
    """A member of an ensemble, as the sidecar of its rows names it."""

    method: str
    seed: int
    classifier: str  # fingerprint


class Sidecar(TypedDict, total=False):
    """What is read of a sidecar, if it says it; rows of other programs may say less, and more."""

    model: str | None
    classifier: str  # fingerprint of the model, or of the ensemble
    members: list[MemberIdentity]  # of the ensemble
    weights: str  # SHA-256 of the weights that images have
    dataset: str
    images: str  # fingerprint of the images
    subset: str | dict[str, int | list[int]]
    classes: Count
    device: str
    precision: str
    engine: str
    arithmetic: str
    noise: str
    seed: int  # of the noise
    code: str  # fingerprint
    versions: dict[str, str]


def read_log(path: Path, sigmas: Collection[float] = (), **known: float | None) -> pd.DataFrame:
    """Read rows of either kind; of a log in the field's six columns, its radii tell what nobody says.

    Args:
        path: Rows of this project, or a log in the field's six columns.
        sigmas: Noise levels that the log may be of, if ``known`` has none.
        known: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Returns:
        The rows; sigma, n and alpha as they are known where the radii do not tell them, NaN where they are not.
    Raises:
        InputError: If the rows are damaged, or the radii of a log contradict what is known.
    """
    rows = certificate_rows.read_any(path, **known)
    return rows if is_stated(rows) else rows.assign(**_identified(path, rows, sigmas, known))


def read_alone(path: Path, sigmas: Collection[float] = (), **known: float | None) -> tuple[Result, dict[str, Any]]:
    """Read a row file that belongs to no study, under the name of its path.

    Args:
        path: Rows of this project, or a log in the field's six columns, whatever lies beside it.
        sigmas, known: As for :func:`read_log`.
    Returns:
        The result, and its sidecar; empty where there is none.
    Raises:
        InputError: If the rows are damaged, or the sidecar is not theirs.
    """
    rows, beside = read_log(path, sigmas, **known), sidecar_of(path)
    has_sidecar = beside.exists() and not certificate_rows.is_field_log(path)
    sidecar = files.read_json(beside) if has_sidecar else {}
    if sidecar != {}:
        check_sidecar(path, rows, sidecar, "certify again, or remove the sidecar")
    provenance = Provenance.of(sidecar) if sidecar else None
    sigma, scope = metrics.budget(rows, "sigma"), rows["scope"].iloc[0]
    about = {"subset": subset_of(sidecar), "scope": scope, "provenance": provenance}
    return Result(name=str(path), sigma=sigma, seed=None, rows=rows, **about), sidecar


def read_several_alone(paths: Sequence[Path], **stated: float | None) -> list[tuple[Result, dict[str, Any]]]:
    """Read row files that belong to no study, as :func:`read_alone`.

    Each is named after its file, and the folders below the one that all share.
    """
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    read = ((path.absolute().relative_to(shared), read_alone(path, (), **stated)) for path in paths)
    return [(replace(result, name=str(name.with_suffix(""))), sidecar) for name, (result, sidecar) in read]


def check_sidecar(path: Path, rows: pd.DataFrame, sidecar: Any, remedy: str) -> None:
    """Refuse a sidecar that is damaged or of other rows."""
    if not isinstance(sidecar, dict) or sidecar.get("rows", len(rows)) != len(rows):
        raise InputError(f"{path} has {len(rows)} rows, not those its sidecar says; {remedy}")
    record(Sidecar, sidecar, f"{path} must have a sidecar of its rows", remedy)
    for name in metrics.BUDGET:
        inside, beside = metrics.budget(rows, name), sidecar.get(name)
        if inside not in (0, beside) and not pd.isna(inside):  # 0: all n draws were skipped
            raise InputError(f"{path} has {name} {inside:g} but its sidecar {beside}; {remedy}")
    scope = rows["scope"].iloc[0]
    if sidecar.get("scope") != scope:
        raise InputError(f"{path} has scope {scope} but its sidecar {sidecar.get('scope')}; {remedy}")
    if "subset" in sidecar and not is_subset(rows["idx"].tolist(), subset := subset_of(sidecar)):
        raise InputError(f"{path} must be of the images {subset}, as its sidecar says, but is of others; {remedy}")
    _, voted, _ = votes_of(pd.concat([rows["counts0"], rows["counts"]]))
    classes = max(rows["label"].max() + 1, voted.max(initial=-1) + (scope != UNDECIDED))  # the last one: for no class
    if sidecar.get("classes", classes) < classes:
        raise InputError(
            f"{path} has labels or votes of {classes} classes but its sidecar {sidecar['classes']}; {remedy}"
        )


def subset_of(sidecar: dict[str, Any]) -> str:
    """Return which images the rows of a sidecar are of, in words."""
    subset = sidecar.get("subset", "not stated")
    return subset if isinstance(subset, str) else subset_name(subset)


def budget_warning(rows: pd.DataFrame) -> str:
    """Return what is to be said of the sigma of a six-column log, which only its radii can contradict; or nothing.

    ``rows`` are as :func:`read_log` reads them; n and alpha are NaN where the radii do not tell them.
    """
    if is_stated(rows):
        return ""
    sigma, identified = metrics.budget(rows, "sigma"), identify_sigma(rows["radius"])
    silent = "a log in six columns does not say its sigma"
    if identified is None:
        return f"{silent}; give --sigma, by which its radii may tell n and alpha" if math.isnan(sigma) else ""
    told, n, alpha = identified
    radii_say = f"its radii are those of sigma = {told:g}, n = {n:,} and alpha = {alpha:g}"
    if math.isnan(sigma):
        return f"{silent}, but {radii_say}; give --sigma {told:g}"
    return "" if told == sigma else f"{radii_say}, not of sigma = {sigma:g}; give --sigma {told:g}"


def is_stated(rows: pd.DataFrame) -> bool:
    """Return whether rows say their sigma, n and alpha, or their radii did."""
    return not any(math.isnan(metrics.budget(rows, name)) for name in ("sigma", "n", "alpha"))


def _identified(
    path: Path, rows: pd.DataFrame, sigmas: Collection[float], known: Mapping[str, float | None]
) -> dict[str, float]:
    """Return sigma, n and alpha of a log from its radii, else the only sigma there is for a known n and alpha."""
    stated, n, alpha = (known.get(name) for name in ("sigma", "n", "alpha"))
    candidates: Collection[float] = sigmas if stated is None else [stated]
    budgets = {sigma: identify_budget(rows["radius"], sigma) for sigma in candidates}
    fits = [(sigma, *budget) for sigma, budget in budgets.items() if budget is not None]
    if len(fits) == 1:
        ((sigma, told_n, told_alpha),) = fits
        if n not in (None, told_n) or alpha not in (None, told_alpha):
            told = f"n = {told_n} and alpha = {told_alpha}"
            raise InputError(f"{path} was made with {told}, as its radii tell; leave other values out")
        n, alpha = told_n, told_alpha
    elif len(candidates) == 1 and n is not None and alpha is not None:
        (sigma,) = candidates
    else:
        return {}
    certificate_rows.check_ladder(path, rows, sigma, int(n), alpha)
    return {"sigma": sigma, "n": n, "alpha": alpha}
