"""Logs from elsewhere, to stand beside the results of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rs.errors import InputError
from rs.reporting.results import Result
from rs.statistics import metrics
from rs.statistics.log_budget import identify_budget
from rs.storage import certificate_rows as certificates


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
    scope = rows["scope"].iloc[0]
    return Result(name, sigma, None, _same_images(path, rows, like), like.subset, scope=scope)


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
