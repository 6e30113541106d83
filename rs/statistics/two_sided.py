"""Two-sided certificates from stored votes: rows keep the counts of every class, so no draw is repeated.

What the lower bound of the predicted class leaves of alpha pays for upper bounds of the other classes. How it is split
may depend on the n0 draws: given these, it is fixed before the n draws, whose bounds hold together with probability
1 - alpha, whatever the n0 draws say.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rs.errors import InputError
from rs.statistics.certificate import ABSTAIN
from rs.statistics.metrics import acr, budget, check_labels, mode_of
from rs.statistics.radius import two_sided_radius
from rs.statistics.resampling import dense_votes

Split: TypeAlias = Literal["even", "votes"]
"""How the rest of alpha is split over the other classes.

``even``: each has the same part. ``votes``: in proportion to its votes among the n0 draws and one more, so that the
class that bounds the radius has most of it.
"""

SPLITS: tuple[Split, ...] = get_args(Split)


def two_sided(rows: pd.DataFrame, classes: int, split: Split = "even") -> pd.DataFrame:
    """Return rows with the two-sided certificates of the same votes (``rs.statistics.radius.two_sided_radius``).

    The predicted class is the one that the n0 draws chose, also where the one-sided certificate abstains.

    Args:
        rows: As ``rs.storage.certificate_rows.read_rows`` gives them, with the votes of every class.
        classes: K, the number of classes, with or without votes.
        split: How the others share the rest.
    Raises:
        InputError: If the rows do not hold all their votes.
    """
    predict, radii = _certified(rows, *_votes(rows, classes), split)
    return rows.assign(radius=radii, predict=predict, correct=(predict == rows["label"]).astype(int))


def two_sided_acrs(rows: pd.DataFrame, classes: int) -> dict[Split, float]:
    """Return the ACR of :func:`two_sided` for every split, which read the votes once.

    Raises:
        InputError: As :func:`two_sided`, or if the labels are not known.
    """
    check_labels(rows)
    votes, labels = _votes(rows, classes), rows["label"].to_numpy()
    certified = {split: _certified(rows, *votes, split) for split in SPLITS}
    return {
        split: acr({"radius": radii, "correct": predict == labels}) for split, (predict, radii) in certified.items()
    }


def _votes(rows: pd.DataFrame, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the votes of the n0 draws and of the n draws, each (N, K)."""
    if mode_of(rows) != "certify":
        raise InputError(
            f"a two-sided radius needs rows of a fixed number of draws, got {mode_of(rows)}; certify again"
        )
    first, votes = (dense_votes(rows[name], classes) for name in ("counts0", "counts"))
    if not first.any(axis=1).all():
        raise InputError("a two-sided radius needs the votes of the n0 draws; certify with this project's rows")
    if (votes.sum(axis=1) != rows["n"].to_numpy()).any():
        raise InputError("a two-sided radius needs the votes of all classes in every row; certify again")
    return first, votes


def _certified(
    rows: pd.DataFrame, first: NDArray[np.int64], votes: NDArray[np.int64], split: Split
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return classes and radii, each (N,); the lowest class of several, which abstains where its radius is 0."""
    drawn, radii = rows["n"].to_numpy() > 0, np.zeros(len(rows))
    if drawn.any():
        radii[drawn] = split_radius(first[drawn], votes[drawn], budget(rows, "sigma"), budget(rows, "alpha"), split)
    return np.where(drawn & (radii == 0), ABSTAIN, first.argmax(axis=1)), radii


def split_radius(
    first: NDArray[np.int64],
    votes: NDArray[np.int64],
    sigma: ArrayLike,
    alpha: float,
    split: Split = "even",
) -> NDArray[np.float64]:
    """Return two-sided radii of the class with the most votes among the n0 draws, the lowest of several.

    Args:
        first: Votes of the n0 draws, (N, K). All that ``split`` depends on.
        votes: Votes of the n draws, (N, K).
        sigma: Standard deviation of the noise; positive.
        alpha: Chance of error allowed for the whole statement, in (0, 1).
        split: How the other classes share the rest.
    Returns:
        Radii, (N,); 0 where the bounds overlap.
    Raises:
        ValueError: As :func:`rs.statistics.radius.two_sided_radius`.

    >>> first, votes = np.array([[90, 9, 1, 0]]), np.array([[900, 60, 30, 10]])
    >>> {split: float(split_radius(first, votes, 1.0, 0.001, split=split)[0].round(3)) for split in SPLITS}
    {'even': 1.211, 'votes': 1.216}
    """
    weights = first + 1 if split == "votes" else None
    return two_sided_radius(votes, first.argmax(axis=-1), sigma, alpha, weights=weights)
