import numpy as np
import pytest

from rs.errors import InputError
from rs.statistics.radius import two_sided_radius
from rs.statistics.two_sided import two_sided
from rs.storage import certificate_rows
from tests.support import tiny_study
from tests.support.tiny_study import ALPHA, IMAGES, cell_rows


def test_two_sided_rows_use_the_class_of_the_n0_draws_and_all_votes():

    frame = cell_rows("gaussian", 0.5, 0)
    found = two_sided(frame, tiny_study.CLASSES)
    votes = np.array([[certificate_rows.parse_counts(text).get(k, 0) for k in range(3)] for text in frame["counts"]])
    radii = two_sided_radius(votes, np.zeros(IMAGES, int), 0.5, ALPHA)
    assert found["radius"].tolist() == radii.tolist()
    assert found["predict"].tolist() == np.where(radii > 0, 0, certificate_rows.ABSTAIN).tolist()
    with pytest.raises(InputError, match="one of 1 classes"):
        two_sided(frame, 1)
    with pytest.raises(InputError, match="needs the votes"):
        two_sided(frame.assign(counts="0:1"), 3)
    with pytest.raises(InputError, match="votes of the n0 draws"):
        two_sided(frame.assign(counts0="-"), 3)
