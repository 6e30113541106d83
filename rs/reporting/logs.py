"""Sidecars of rows, and files that belong to no study: rows of this project and logs of other
programs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from typing_extensions import TypedDict

from rs.errors import InputError
from rs.params import Count, record
from rs.reporting.results import Provenance, Result
from rs.statistics import metrics
from rs.statistics.certificate import SET_SCOPE, votes_of
from rs.storage import certificate_rows, files
from rs.storage.certificate_rows import sidecar_of
from rs.storage.row_writer import SHARE
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
    split_size: Count  # images of the split, of which the subset is one; older sidecars lack it
    share: str  # of the subset
    classes: Count
    device: str
    precision: str
    engine: str
    arithmetic: str
    noise: str
    seed: int  # of the noise
    code: str  # fingerprint
    versions: dict[str, str]


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
    sidecar = files.read_json(beside) if has_sidecar else {}
    if sidecar != {}:
        check_sidecar(path, rows, sidecar, "certify again, or remove the sidecar")
    provenance = Provenance.of(sidecar) if sidecar else None
    sigma, scope = metrics.budget(rows, "sigma"), rows["scope"].iloc[0]
    subset = subset_of(sidecar) + (f", share {sidecar[SHARE]}" if SHARE in sidecar else "")
    about = {"subset": subset, "scope": scope, "provenance": provenance, "sidecar": sidecar}
    return Result(name=str(path), sigma=sigma, seed=None, rows=rows, **about)


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
        raise InputError(
            f"{path} has scope {scope} but its sidecar {sidecar.get('scope')}; {remedy}"
        )
    subset, size, share = subset_of(sidecar), sidecar.get("split_size"), sidecar.get(SHARE, "1/1")
    if "subset" in sidecar and not is_subset(rows["idx"].tolist(), subset, size, share):
        some = f"{subset} of {size}" if size else subset
        raise InputError(
            f"{path} must be of the images {some}, as its sidecar says, but is of others; {remedy}"
        )
    _, voted, _ = votes_of(pd.concat([rows["counts0"], rows["counts"]]))
    classes = max(
        rows["label"].max() + 1, voted.max(initial=-1) + (scope != SET_SCOPE)
    )  # the last one: for no class
    if sidecar.get("classes", classes) < classes:
        raise InputError(
            f"{path} has labels or votes of {classes} classes but its sidecar "
            f"{sidecar['classes']}; {remedy}"
        )


def subset_of(sidecar: dict[str, Any]) -> str:
    """Return which images the rows of a sidecar are of, in words."""
    subset = sidecar.get("subset", "not stated")
    return subset if isinstance(subset, str) else subset_name(subset)
