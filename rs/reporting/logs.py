"""Sidecars of rows, and files that belong to no study: rows of this project and logs of other
programs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Result
from rs.statistics import metrics
from rs.statistics.certificate import SET_SCOPE, votes_of
from rs.storage import certificate_rows
from rs.storage.certificate_rows import sidecar_of
from rs.storage.provenance import Provenance
from rs.study.subset import is_subset, subset_name


def read_alone(path: Path, **known: float | None) -> Result:
    """Read a row file that belongs to no study, under the name of its path.

    Args:
        path: Rows of this project, or a log in the field's six columns, whatever lies beside it.
        known: ``sigma``, ``n0``, ``n`` and ``alpha`` of a six-column log.
    Raises:
        InputError: If the rows are damaged, or the sidecar is not theirs.
    """
    rows, beside = certificate_rows.read_any(path, **known), sidecar_of(path)
    has_sidecar = beside.exists() and not certificate_rows.is_field_log(path)
    provenance = Provenance()
    if has_sidecar:
        remedy = "certify again, or remove the sidecar"
        provenance = Provenance.read(path, remedy)
    if provenance != Provenance():
        check_sidecar(path, rows, provenance, remedy)
    sigma, scope = metrics.budget(rows, "sigma"), rows["scope"].iloc[0]
    subset = subset_of(provenance)
    if provenance.share is not None:
        subset = f"{subset}, share {provenance.share}"
    return Result(
        name=str(path),
        sigma=sigma,
        seed=None,
        rows=rows,
        subset=subset,
        scope=scope,
        provenance=provenance,
    )


def read_several_alone(paths: Sequence[Path], **stated: float | None) -> list[Result]:
    """Read row files that belong to no study, as :func:`read_alone`.

    Each is named after its file, and the folders below the one that all share, without ``.tsv`` if
    names then differ.
    """
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    full = [str(path.absolute().relative_to(shared)) for path in paths]
    short = [name.removesuffix(".tsv") for name in full]
    names = short if len({*short}) == len({*full}) else full
    return [
        replace(read_alone(path, **stated), name=name)
        for name, path in zip(names, paths, strict=True)
    ]


def check_sidecar(path: Path, rows: pd.DataFrame, provenance: Provenance, remedy: str) -> None:
    """Refuse a sidecar of other rows."""
    if provenance.rows not in (None, len(rows)):
        raise InputError(f"{path} has {len(rows)} rows, not those its sidecar says; {remedy}")
    for name in metrics.BUDGET:
        inside, beside = metrics.budget(rows, name), getattr(provenance, name)
        if inside not in (0, beside) and not pd.isna(inside):  # 0: all n draws were skipped
            raise InputError(f"{path} has {name} {inside:g} but its sidecar {beside}; {remedy}")
    scope = rows["scope"].iloc[0]
    if provenance.scope != scope:
        raise InputError(f"{path} has scope {scope} but its sidecar {provenance.scope}; {remedy}")
    subset, size = subset_of(provenance), provenance.split_size
    indices = rows["idx"].tolist()
    is_stated = provenance.subset is not None
    if is_stated and not is_subset(indices, subset, size, provenance.share or "1/1"):
        some = f"{subset} of {size}" if size else subset
        raise InputError(
            f"{path} must be of the images {some}, as its sidecar says, but is of others; {remedy}"
        )
    _, voted, _ = votes_of(pd.concat([rows["counts0"], rows["counts"]]))
    classes = max(
        rows["label"].max() + 1, voted.max(initial=-1) + (scope != SET_SCOPE)
    )  # the last one: for no class
    if provenance.classes is not None and provenance.classes < classes:
        raise InputError(
            f"{path} has labels or votes of {classes} classes but its sidecar "
            f"{provenance.classes}; {remedy}"
        )


def subset_of(provenance: Provenance) -> str:
    """Return which images rows are of, in words."""
    subset = provenance.subset
    if subset is None:
        return "not stated"
    return subset if isinstance(subset, str) else subset_name(subset)
