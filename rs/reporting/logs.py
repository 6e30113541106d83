"""Read sidecars, and row files that belong to no study: our rows and logs of other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Result
from rs.statistics import metrics
from rs.statistics.certificate import votes_of
from rs.statistics.radius import cap
from rs.storage import certificate_rows
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from rs.study.subset import is_subset, subset_name

REMEDY = "certify again, or remove the sidecar"

MIN_LARGEST = 10
"""Number of images with the largest radius that shows it to be the radius of n unanimous votes."""


def read_alone(path: Path, **log_values: float | None) -> Result:
    """Read a row file that belongs to no study, under the name of its path.

    Args:
        path: Rows of this project, or a log in Cohen's six-column format, even if a sidecar lies
            next to it.
        log_values: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Raises:
        InputError: If the rows are damaged, or the sidecar is of other rows.
    """
    rows = certificate_rows.read_any(path, **log_values)
    provenance = Provenance()
    if sidecar_of(path).exists() and not certificate_rows.is_field_log(path):
        provenance = Provenance.read(path, REMEDY)
        check_sidecar(path, rows, provenance, REMEDY)
    subset = subset_of(provenance)
    if provenance.share is not None:
        subset += f", share {provenance.share}"
    return Result(
        name=str(path),
        sigma=metrics.budget(rows, "sigma"),
        seed=None,
        rows=rows,
        subset=subset,
        scope=rows["scope"].iloc[0],
        provenance=provenance,
        origin={"file": str(path), "command": f"rs show {path}"},
    )


def has_smaller_cap(rows: pd.DataFrame) -> bool:
    """Return whether several images share a largest radius that is too small for their settings.

    It should be the radius of ``n`` unanimous votes. If it is smaller, the log probably has another
    sigma, n or alpha than stated.

    Args:
        rows: Rows of a six-column log. Without sigma, n and alpha the answer is False.
    """
    n = metrics.budget(rows, "n")
    alpha = metrics.budget(rows, "alpha")
    sigma = metrics.budget(rows, "sigma")
    largest = float(rows["radius"].max())
    images = (rows["radius"] == largest).sum()
    if np.isnan([n, alpha, sigma]).any() or largest <= 0 or images < MIN_LARGEST:
        return False
    return largest < 0.95 * cap(int(n), alpha, sigma)


def read_several_alone(paths: Sequence[Path], **stated: float | None) -> list[Result]:
    """Read row files that belong to no study, as :func:`read_alone`.

    Each has its name of :func:`short_names`.
    """
    results = []
    for name, path in zip(short_names(paths), paths, strict=True):
        results.append(replace(read_alone(path, **stated), name=name))
    return results


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the paths below the folder that all share, without ``.tsv`` if they still differ."""
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    full = [str(path.absolute().relative_to(shared)) for path in paths]
    short = [name.removesuffix(".tsv") for name in full]
    return short if len({*short}) == len({*full}) else full


def check_sidecar(path: Path, rows: pd.DataFrame, provenance: Provenance, remedy: str) -> None:
    """Refuse a sidecar of other rows."""
    if provenance.rows not in (None, len(rows)):
        raise InputError(f"{path} has {len(rows)} rows, not those its sidecar says; {remedy}")
    for name in metrics.BUDGET:
        value = metrics.budget(rows, name)
        stated = getattr(provenance, name)
        if value not in (0, stated) and not pd.isna(value):  # 0: all n samples were skipped
            raise InputError(f"{path} has {name} {value:g} but its sidecar {stated}; {remedy}")
    scope = rows["scope"].iloc[0]
    if provenance.scope != scope:
        raise InputError(f"{path} has scope {scope} but its sidecar {provenance.scope}; {remedy}")
    if provenance.subset is not None:
        subset = subset_of(provenance)
        size = provenance.split_size
        if not is_subset(rows["idx"].tolist(), subset, size, provenance.share or "1/1"):
            images = f"{subset} of {size}" if size else subset
            raise InputError(
                f"{path} must be of the images {images}, as its sidecar says, but is of others; "
                f"{remedy}"
            )
    _, voted, _ = votes_of(pd.concat([rows["counts0"], rows["counts"]]))
    classes = max(rows["label"].max(), voted.max(initial=-1)) + 1
    if provenance.classes is not None and provenance.classes < classes:
        raise InputError(
            f"{path} has labels or votes of {classes} classes but its sidecar "
            f"{provenance.classes}; {remedy}"
        )


def subset_of(provenance: Provenance) -> str:
    """Return in words which images rows are of."""
    subset = provenance.subset
    if subset is None:
        return "not stated"
    return subset if isinstance(subset, str) else subset_name(subset)
