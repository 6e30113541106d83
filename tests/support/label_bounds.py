"""What the page of a report says of the label's probability, in Python: the oracle of its program."""

import numpy as np

from rs.statistics.certificate import votes_for, votes_of
from rs.statistics.metrics import budget
from rs.statistics.radius import lower_bound


def label_bounds(rows):
    """Return for every image a lower bound of p_A, the probability of the label under noise.

    Where the certificate is right this is its own bound. An image that is wrong or abstains has the
    bound of the votes for its label, 1/2 at most, so that it stands below every right one; it has 0
    where no votes tell: the n draws were skipped or stopped early.

    Args:
        rows: As ``rs.storage.certificate_rows.read_any`` gives them.
    Returns:
        Bounds (N,), in the order of the rows, each at the level alpha of its row.
    """
    has_votes = (rows["mode"].to_numpy() == "certify") & (rows["counts"].to_numpy() != "-")
    of_votes = np.zeros(len(rows))
    if has_votes.any():
        votes = votes_for(votes_of(rows["counts"]), rows["label"].to_numpy())[has_votes]
        draws = rows["n"].to_numpy()[has_votes]
        of_votes[has_votes] = np.minimum(lower_bound(votes, draws, budget(rows, "alpha")), 0.5)
    return np.where(rows["correct"] == 1, rows["p_lower"], of_votes)
