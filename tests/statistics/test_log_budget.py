import numpy as np
import pytest

from rs.statistics.log_budget import impossible
from rs.statistics.radius import lower_bound, radius
from rs.storage import certificate_rows
from tests.support.helpers import refuses

FIELD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


def ladder(n, alpha, sigma):
    """The radii of the best 30 outcomes."""
    return radius(lower_bound(np.arange(n - 29, n + 1), n, alpha), sigma)


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


@pytest.mark.parametrize("false", ["5.0", "0.94", "3.73"])
def test_a_radius_that_no_votes_give_is_refused_by_its_line(tmp_path, false):
    lines = [f"{i}\t0\t0\t{r:.3}\t1\t1.0\n" for i, r in enumerate(ladder(100_000, 0.001, 0.25))]
    lines[7] = f"7\t0\t0\t{false}\t1\t1.0\n"
    (tmp_path / "log.tsv").write_text(FIELD + "".join(lines))
    with refuses(r"log\.tsv, line 9: radius must be one that n = 100000, .*; 1 such line\(s\), "):
        certificate_rows.read_field_log(tmp_path / "log.tsv", sigma=0.25, n=100_000, alpha=0.001)
