"""Checks of certificate rows: what is read is recomputed from its votes, not believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rs.statistics.certificate import ABSTAIN, MIN_ALPHA, UNLABELED, Votes, votes_for
from rs.statistics.procedures.table import PROCEDURES, procedure_of
from rs.storage import tsv

if TYPE_CHECKING:
    import pandas as pd


def check_columns(path: Path, rows: pd.DataFrame) -> None:
    """Refuse rows whose class, label and radius contradict each other, or have an impossible alpha.

    The message names the line. Logs have no alpha.
    """
    alpha = rows.get("alpha", np.array([0.5]))
    for bad, rule in (
        (rows["idx"].duplicated(), "idx must be unique"),
        (
            (alpha < MIN_ALPHA) | (alpha >= 1),
            f"alpha must lie strictly between 0 and 1, at least {MIN_ALPHA}",
        ),
        (rows["idx"] < 0, "idx must be at least 0"),
        (rows["predict"] < ABSTAIN, "predict must be a class, or -1 (abstains)"),
        (
            (rows["label"] < 0) & (rows["label"] != UNLABELED),
            "label must be a class, or -2 (not known)",
        ),
        (~np.isin(rows["correct"], (0, 1)), "correct must be 0 or 1"),
        (
            (rows["predict"] == rows["label"]) != (rows["correct"] == 1),
            "correct must be 1 iff predict is label",
        ),
        (
            (rows["label"] == UNLABELED) != (rows["label"][0] == UNLABELED),
            "label must be known of all or none",
        ),
        (rows["radius"] < 0, "radius must not be negative"),
        (
            (rows["predict"] == ABSTAIN) & (rows["radius"] != 0),
            "radius must be 0 where predict is -1 (abstains)",
        ),
    ):
        tsv.refuse_rows(path, bad, rule)


def check_votes(path: Path, rows: pd.DataFrame, first: Votes, second: Votes) -> None:
    """Check class, bound and radius of each row by its votes, as its procedure demands."""
    selected = _most_votes(first, len(rows))
    is_other_class = (rows["predict"] != selected) & (rows["predict"] != ABSTAIN)
    tsv.refuse_rows(
        path, is_other_class, "predict must be the class with the most votes of counts0, or -1"
    )
    votes = votes_for(second, selected)
    names = rows["mode"].map(procedure_of).to_numpy()
    for name, procedure in PROCEDURES.items():
        is_own = names == name
        if not is_own.any():
            continue
        own_rows = {str(key): column.to_numpy()[is_own] for key, column in rows.items()}
        for is_bad, rule in procedure.row_rules(own_rows, selected[is_own], votes[is_own]):
            is_bad_row = is_own.copy()
            is_bad_row[is_own] = is_bad
            tsv.refuse_rows(path, is_bad_row, rule)


def _most_votes(votes: Votes, rows: int) -> NDArray[np.int64]:
    """Return the class with the most votes of each row, the lowest of equals; :data:`ABSTAIN` of no
    votes.
    """
    row, classes, numbers = votes
    order = np.lexsort((classes, -numbers, row))
    first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    winners = np.full(rows, ABSTAIN)
    winners[row[first]] = classes[first]
    return winners
