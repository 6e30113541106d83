import numpy as np
import pytest

from rs.statistics.log_budget import impossible
from rs.statistics.radius import lower_bound, radius


@pytest.mark.parametrize("n", [1, 10, 1000])
@pytest.mark.parametrize("alpha", [0.001, 0.3])
def test_every_radius_that_votes_give_is_possible_however_it_is_rounded_and_none_between_two_is(
    n, alpha
):
    possible = np.unique(radius(lower_bound(np.arange(n + 1), n, alpha), 0.5))
    assert not impossible(possible, 0.5, n, alpha).any()
    for digits in range(1, 13):
        significant = [float(f"{r:.{digits}}") for r in possible]
        assert not impossible(significant, 0.5, n, alpha).any()
        assert not impossible(possible.round(digits), 0.5, n, alpha).any()
    assert impossible((possible[1:] + possible[:-1]) / 2, 0.5, n, alpha).all()
    assert impossible([2 * possible.max() + 1e-3], 0.5, n, alpha).all()
