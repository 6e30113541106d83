"""Other certificates from the same votes: rows keep the counts of every class, so no draw is repeated."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.metrics import budget, mode_of
from rs.radius import two_sided_radius
from rs.rows import ABSTAIN, parse_counts


def two_sided(rows: pd.DataFrame, classes: int, share: float = 0.9) -> pd.DataFrame:
    """Return the rows with the two-sided certificate of the same votes (``rs.radius.two_sided_radius``).

    The predicted class is the one that the n0 draws chose, also where the one-sided certificate abstains.

    Args:
        rows: As ``rs.rows.read`` gives them, with the votes of every class.
        classes: K, the number of classes, with or without votes.
        share: Part of alpha spent on the predicted class.
    Raises:
        InputError: If the rows do not hold all their votes.
    """
    if mode_of(rows) != "certify":
        raise InputError(
            f"a two-sided radius needs rows of a fixed number of draws, got {mode_of(rows)}; certify again"
        )
    chosen = np.array([_winner(text) for text in rows["counts0"]])
    votes = np.array([_dense(text, classes) for text in rows["counts"]]).reshape(-1, classes)
    drawn = rows["n"].to_numpy() > 0
    if (votes.sum(axis=1) != rows["n"]).any():
        raise InputError("a two-sided radius needs the votes of all classes in every row; certify again")
    radii = np.zeros(len(rows))
    if drawn.any():
        sigma, alpha = budget(rows, "sigma"), budget(rows, "alpha")
        radii[drawn] = two_sided_radius(votes[drawn], chosen[drawn], sigma, alpha, share)
    predict = np.where(drawn & (radii == 0), ABSTAIN, chosen)
    return rows.assign(radius=radii, predict=predict, correct=(predict == rows["label"]).astype(int))


def _winner(text: str) -> int:
    """Return the class with most votes, the lowest of several."""
    votes = parse_counts(text)
    if not votes:
        raise InputError("a two-sided radius needs the votes of the n0 draws; certify with this project's rows")
    return max(votes, key=lambda k: (votes[k], -k))


def _dense(text: str, classes: int) -> list[int]:
    votes = parse_counts(text)
    if max(votes, default=0) >= classes:
        raise InputError(f"votes must be for one of {classes} classes, got {text}; give the right number of classes")
    return [votes.get(k, 0) for k in range(classes)]
