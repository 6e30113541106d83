"""Cells of the tables of the pages, and the estimates in them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.page_tables.committed import LEVELS
from rs.reporting.tables.formatting import signed_with_errors
from rs.statistics.comparison import Estimate, Sample, estimate

Lines = list[list[str]]
"""A table: the titles of its columns, then the cells of each line."""

NOISE = [f"σ = {level}" for level in LEVELS]


def acr_of(scores: Sample) -> float:
    """Return the average certified radius of a sample."""
    return estimate(scores).value


def acr_cell(scores: Sample, places: int = 3) -> str:
    """Return the ACR of a sample with its errors."""
    return estimated_acr_cell(estimate(scores), places)


def estimated_acr_cell(acr: Estimate, places: int = 3) -> str:
    """Return an ACR with its error over images and, where it is known, over seeds too."""
    cell = f"{acr.value:.{places}f} ± {acr.error_images:.{places}f}"
    return cell if acr.error is None else f"{cell} [{acr.error:.{places}f}]"


def gain_cell(scores: Sample, reference: Sample) -> str:
    """Return the difference of two ACRs with its errors, and whether it is a tie."""
    return estimated_gain_cell(estimate(scores, reference))


def estimated_gain_cell(gain: Estimate) -> str:
    """Return a difference with its errors, and whether it is a tie."""
    cell = signed_with_errors(gain)
    return f"{cell} tie" if gain.tie else cell


def reported(row: pd.Series, value: str, error_images: str, error: str) -> Estimate:
    """Return a value of a report and its two errors, by the names of their columns."""
    return Estimate(
        value=float(row[value]),
        error_images=float(row[error_images]),
        error=None if np.isnan(row[error]) else float(row[error]),
        p_value=np.nan,
        images=int(row["images"]),
        seeds=int(row["seeds"]),
    )


def reported_gain(row: pd.Series, prefix: str) -> Estimate:
    """Return a difference of a report."""
    return reported(row, f"{prefix}_difference", f"{prefix}_error_images", f"{prefix}_error")


def paired_titles(title: str) -> list[str]:
    """Return the titles of an ACR and a difference at each noise level."""
    titles = []
    for noise in NOISE:
        titles += [noise, title]
    return titles
