"""Two-sided certificates from stored votes: rows keep the counts of every class, so no draw is repeated."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN
from rs.statistics.metrics import budget, mode_of
from rs.statistics.radius import two_sided_radius
from rs.statistics.votes import dense_votes


def two_sided(rows: pd.DataFrame, classes: int, share: float = 0.9) -> pd.DataFrame:
    """Return rows with the two-sided certificates of the same votes (``rs.statistics.radius.two_sided_radius``).

    The predicted class is the one that the n0 draws chose, also where the one-sided certificate abstains.

    Args:
        rows: As ``rs.storage.certificate_rows.read`` gives them, with the votes of every class.
        classes: K, the number of classes, with or without votes.
        share: Part of alpha spent on the predicted class.
    Raises:
        InputError: If the rows do not hold all their votes.
    """
    if mode_of(rows) != "certify":
        raise InputError(
            f"a two-sided radius needs rows of a fixed number of draws, got {mode_of(rows)}; certify again"
        )
    first, votes = (dense_votes(list(rows[name]), classes) for name in ("counts0", "counts"))
    if not first.any(axis=1).all():
        raise InputError("a two-sided radius needs the votes of the n0 draws; certify with this project's rows")
    chosen = first.argmax(axis=1)  # the lowest class of several
    drawn = rows["n"].to_numpy() > 0
    if (votes.sum(axis=1) != rows["n"]).any():
        raise InputError("a two-sided radius needs the votes of all classes in every row; certify again")
    radii = np.zeros(len(rows))
    if drawn.any():
        sigma, alpha = budget(rows, "sigma"), budget(rows, "alpha")
        radii[drawn] = two_sided_radius(votes[drawn], chosen[drawn], sigma, alpha, share)
    predict = np.where(drawn & (radii == 0), ABSTAIN, chosen)
    return rows.assign(radius=radii, predict=predict, correct=(predict == rows["label"]).astype(int))
