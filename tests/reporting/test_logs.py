"""Logs from elsewhere beside a study: ``rs.reporting.logs``."""

import numpy as np
import pytest

from rs.errors import InputError
from rs.reporting.logs import read_external_log
from rs.statistics import metrics
from rs.statistics.radius import lower_bound, radius
from rs.storage import certificate_rows
from tests.support.helpers import write_row_file
from tests.support.tiny_study import result

UNKNOWN = {"sigma": None, "n0": 100, "n": None, "alpha": None}
LADDER = radius(lower_bound(np.arange(9_990, 10_001), 10_000, 0.001), 0.5)
"""The eleven largest radii that 10,000 draws give at sigma 0.5."""


@pytest.fixture
def ours():
    return [result("a", LADDER, sigma=sigma, n=10_000, alpha=0.001, n0=100) for sigma in (0.25, 0.5)]


@pytest.fixture
def log(tmp_path, ours):
    return written(tmp_path / "log.tsv", ours[1].rows)


def written(path, frame):
    """A log in the field's six columns, every image of class 0."""
    certificate_rows.write_field_log(frame.assign(predict=0), path)
    return path


def test_budget_and_sigma_of_an_external_log_are_told_by_its_largest_radii(log, ours):
    found = read_external_log("b", log, ours, **UNKNOWN)
    assert (found.sigma, metrics.budget(found.rows, "n"), metrics.budget(found.rows, "alpha")) == (0.5, 10_000, 0.001)
    assert (found.name, found.seed, found.subset) == ("b", None, "all")
    np.testing.assert_allclose(found.rows["radius"], LADDER, rtol=1e-15)


@pytest.mark.parametrize(("known", "said"), [({"n": 7}, "made with n = 10000"), ({"alpha": 0.01}, "alpha = 0.001")])
def test_a_budget_that_the_radii_contradict_is_refused(log, ours, known, said):
    with pytest.raises(InputError, match=said):
        read_external_log("b", log, ours, **UNKNOWN | known)


def test_a_log_whose_radii_do_not_tell_needs_its_budget_said(tmp_path, ours):
    """Radii of 0.1 stand on no ladder's rungs."""
    log = written(tmp_path / "log.tsv", ours[1].rows.assign(radius=0.1))
    with pytest.raises(InputError, match=r"does not say its sigma; give --external-log-sigma, by which"):
        read_external_log("b", log, ours, **UNKNOWN)
    with pytest.raises(InputError, match=r"its n, alpha, .*; give --external-log-n, --external-log-alpha$"):
        read_external_log("b", log, ours, **UNKNOWN | {"sigma": 0.5})
    found = read_external_log("b", log, ours, sigma=0.5, n0=100, n=10_000, alpha=0.001)
    assert (found.sigma, metrics.budget(found.rows, "n")) == (0.5, 10_000)


def test_a_log_of_another_noise_level_is_refused(log, ours):
    with pytest.raises(InputError, match=r"is of sigma 0\.5, but no result of the study is; leave it out"):
        read_external_log("b", log, ours[:1], sigma=0.5, n0=100, n=10_000, alpha=0.001)


def test_a_sigma_that_the_radii_contradict_is_refused_with_the_one_they_are_of(log, ours):
    with pytest.raises(InputError, match=r"radii are those of sigma = 0\.5, .*; give --external-log-sigma 0\.5$"):
        read_external_log("b", log, ours, **UNKNOWN | {"sigma": 0.25})


def test_a_log_is_cut_to_the_images_of_the_study(log, ours):
    some = [result("a", LADDER[:4], sigma=0.5, n=10_000, alpha=0.001, n0=100)]
    found = read_external_log("b", log, some, sigma=0.5, n0=100, n=10_000, alpha=0.001)
    assert found.rows["idx"].tolist() == [0, 1, 2, 3]


def test_a_log_that_lacks_images_of_the_study_is_refused(tmp_path, ours):
    log = written(tmp_path / "log.tsv", ours[1].rows.drop(index=[2, 5]))
    with pytest.raises(InputError, match="lacks 2, image 2 first"):
        read_external_log("b", log, ours, sigma=0.5, n0=100, n=10_000, alpha=0.001)


def test_rows_of_this_project_say_their_budget_themselves(tmp_path, ours):
    whole = {"correct": 1, "predict": 0, "label": 0, "counts0": "0:100", "counts": "0:10000", "mode": "certify"}
    whole["p_lower"] = lower_bound(10_000, 10_000, 0.001)
    whole["radius"] = radius(whole["p_lower"], 0.25)
    write_row_file(ours[0].rows.assign(**whole, scope="model"), tmp_path / "rows.tsv")
    found = read_external_log("b", tmp_path / "rows.tsv", ours, **UNKNOWN)
    assert (found.sigma, metrics.budget(found.rows, "alpha")) == (0.25, 0.001)
